"""`tune`: measures variants of a compiled model's kernels on this machine; later compilations use the fastest."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from partita.accelerators.building.specialized import SpecializedSubgraph
from partita.accelerators.building.units import Unit
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import TunedKernel
from partita.accelerators.process.descriptors import show_progress
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.graph.graph import Graph
from partita.passes.infer import infer


@attrs.frozen(slots=True)
class TuningReport:
    """The report of a tuning run."""

    kernels: tuple[TunedKernel, ...]
    """The kernels that were examined, slowest first."""
    interrupted: bool
    """True if it was interrupted from the keyboard."""
    seconds: float
    """The seconds that tuning took."""

    def __str__(self) -> str:
        better = [kernel for kernel in self.kernels if kernel.choices]
        lines = [f"{len(better)} of {len(self.kernels)} kernels are faster now ({self.seconds:.0f} s)"]
        return "\n".join([*lines, *map(line_of, better)])


def line_of(kernel: TunedKernel) -> str:
    """The result for one kernel in one line."""
    change = f"-> {kernel.after_us:.1f} µs" if kernel.choices else "as it was"
    return f"  {kernel.kernel}: {kernel.before_us:.1f} µs {change}, {kernel.tried} tried"


@at_a_device()
def tune(model: CompiledModel, budget_s: float = 60.0, *, progress: bool = True) -> TuningReport:
    """Measure variants of a compiled model's kernels for `budget_s` seconds, and remember the fastest.

    The results are kept beside the compile cache and used by every later `compile` on this machine, of this model or
    of others with the same kernels; the model itself does not change. A keyboard interrupt keeps the results so far.
    With `progress` each kernel is shown on stderr. Let nothing else run meanwhile."""
    if not isinstance(model, CompiledModel):
        cause = f"a compiled model is tuned, not {type(model).__name__}"
        raise AcceleratorError(cause, where="tune", remedy="Give what compile returned")
    if not isinstance(budget_s, (int, float)) or not budget_s >= 0:
        raise AcceleratorError(f"budget_s is {budget_s!r:.80}", where="tune", remedy="Give a number of seconds from 0 on")
    start = time.monotonic()
    kernels: list[TunedKernel] = []

    def shown(kernel: TunedKernel) -> None:
        kernels.append(kernel)
        if progress:
            left = max(0.0, start + budget_s - time.monotonic())
            show_progress(f"tune{line_of(kernel)[1:]}, {left:.0f} s left")

    interrupted = False
    tasks = list(_tasks(model.wait().units))
    try:
        for i, (unit, body) in enumerate(tasks):
            now = time.monotonic()
            share = (start + budget_s - now) / (len(tasks) - i)
            unit.device.accelerator.tune(body, unit.config, now + share, shown)
    except KeyboardInterrupt:
        interrupted = True
    return TuningReport(tuple(kernels), interrupted, time.monotonic() - start)


def _tasks(units: tuple[Unit, ...]) -> Iterator[tuple[Unit, Graph]]:
    """The bodies to be tuned, as their devices compile them; a body with dynamic sizes is tuned for the sizes that were run."""
    for unit in {id(unit.compiled): unit for unit in units}.values():
        bodies = [unit.body]
        if isinstance(unit.compiled, SpecializedSubgraph):
            names = [node.name for node in unit.body.inputs]
            bodies = [infer(unit.body, dict(zip(names, sizes)), strict=False) for sizes in unit.compiled.sizes]
        for body in bodies:
            yield unit, unit.device.accelerator.configured(unit.config).transform(body)
