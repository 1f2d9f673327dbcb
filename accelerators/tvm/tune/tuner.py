"""Kernels generated in several variants and measured, one choice after another.

Bodies that take the most time come first, each with a share of the remaining time. For each choice the candidates are tried in
the cost model's order: a batch is compiled on all cores, then each kernel is measured alone, next to the best one so far. After
two batches without gain the next choice follows. A kernel whose results differ from those of the cost model's kernel is
rejected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.interface.accelerator import TunedKernel
from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.code.codegen import generate
from partita.accelerators.tvm.compiled.subgraph import as_tensor
from partita.accelerators.tvm.lower.lowering import Lowered, lower, nameless
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.run.threads import set_tvm_threads
from partita.accelerators.tvm.tune.findings import Finding, add, digest_of, findings
from partita.graph.types import Array, numpy_dtype

COLD = 16 << 20
"""Bytes that a measurement touches before it returns to the same arrays: in a model, other layers run in between."""

COPIES = 8
"""Maximum number of copies of the arrays."""

MEASURED = 0.04
"""Seconds of measurement per kernel in a batch."""

GAIN = 0.97
"""A candidate must take less than this fraction of the best time: a smaller gain is noise."""

PATIENCE = 2
"""Number of consecutive batches without gain before the next choice."""


class Tuner:
    """Tunes bodies for a machine until a deadline."""

    def __init__(
        self, machine: Machine, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]
    ) -> None:
        self.machine = machine
        self.config = config
        self.deadline = deadline
        self.shown = shown

    def run(self, bodies: Sequence[Body]) -> None:
        """Tune the bodies, equal ones once. Each result is stored at once."""
        count: dict[str, int] = {}
        for body in bodies:
            count[body.key] = count.get(body.key, 0) + 1
        distinct = {body.key: body for body in bodies}.values()
        plain = [trial for trial in self._compiled([_Trial(body, {}) for body in distinct]) if trial.offered]
        self._measure(plain)
        waiting = sorted(plain, key=lambda trial: -trial.seconds * count[trial.body.key])
        weights = [trial.seconds * count[trial.body.key] for trial in waiting]
        for i, trial in enumerate(waiting):
            now = time.monotonic()
            if i and now >= self.deadline:
                return
            share = max(weights[i] / sum(weights[i:]), 1 / (len(waiting) - i) / 2)
            self._tune(trial, now + (self.deadline - now) * share)

    def _tune(self, plain: _Trial, until: float) -> None:
        best, tried = self._known(plain), 1
        for what, candidates in plain.offered.items():
            rest = [name for name in candidates if name != best.chosen(what)]
            idle = 0
            while rest and idle < PATIENCE and time.monotonic() < until:
                batch, rest = rest[: usable_cores()], rest[usable_cores() :]
                trials = self._compiled([_Trial(plain.body, {**best.choices, what: name}) for name in batch])
                self._measure([best, plain, *trials])
                tried += len(trials)
                fastest = min([best, *trials], key=lambda trial: trial.seconds)
                better = fastest.seconds < GAIN * best.seconds and self._same(fastest, plain)
                best, idle = (fastest, 0) if better else (best, idle + 1)
                if better:
                    self._keep(best, plain, tried)
        self._measure([plain, best])
        if best.seconds >= plain.seconds:
            best = plain
        self._keep(best, plain, tried)
        name = plain.body.symbol
        self.shown(TunedKernel(name, plain.seconds * 1e6, best.seconds * 1e6, tried, best.choices))

    def _known(self, plain: _Trial) -> _Trial:
        """The trial to start with: the stored best one, if there is one."""
        known = findings(self.config, self.machine).get(digest_of(plain.body.key))
        if known is None or not known.choices:
            return plain
        compiled = self._compiled([_Trial(plain.body, known.choices)])
        self._measure([plain, *compiled])
        return compiled[0] if compiled and self._same(compiled[0], plain) else plain

    def _keep(self, best: _Trial, plain: _Trial, tried: int) -> None:
        add(self.config, self.machine, plain.body.key, Finding(best.choices, best.seconds, plain.seconds, tried))

    def _compiled(self, trials: Sequence[_Trial]) -> list[_Trial]:
        """The trials that compile."""
        with Pool(usable_cores()) as pool:
            return [trial for trial, ready in zip(trials, pool.map(self._compile, trials), strict=True) if ready]

    def _compile(self, trial: _Trial) -> bool:
        try:
            trial.lowered = lower(trial.body, self.machine, trial.choices, trial.offered)
            if not trial.offered:
                return True
            kernels = {name: nameless(kernel) for name, kernel in trial.lowered.kernels().items()}
            trial.library = generate(kernels, self.machine.target)
            trial.library[trial.symbol]
        except CompileError:
            return False
        return True

    def _measure(self, trials: Sequence[_Trial]) -> None:
        """Measure all trials under the same conditions."""
        set_tvm_threads(self.machine.threads)
        runs = [trial.prepared() for trial in dict.fromkeys(trials)]
        fastest = [float("inf")] * len(runs)
        end = time.monotonic() + MEASURED * len(runs)
        while True:
            for i, run in enumerate(runs):
                fastest[i] = min(fastest[i], run())
            if time.monotonic() >= end:
                break
        for trial, seconds in zip(dict.fromkeys(trials), fastest, strict=True):
            trial.seconds = seconds

    def _same(self, one: _Trial, other: _Trial) -> bool:
        pairs = zip(one.results(), other.results(), strict=True)
        return all(np.allclose(a, b, rtol=1e-3, atol=1e-4 * float(np.abs(b).max(initial=0))) for a, b in pairs)


@attrs.define(slots=True, eq=False)
class _Trial:
    """One variant of a body's kernel."""

    body: Body
    choices: Mapping[str, str]
    offered: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    seconds: float = float("inf")
    lowered: Lowered | None = None
    library: Any = None
    _sets: list[list[Any]] = attrs.field(factory=list)

    @property
    def symbol(self) -> str:
        assert self.lowered is not None
        return next(iter(self.lowered.symbols.values()))

    def chosen(self, what: str) -> str:
        """Candidate that the trial uses for the choice `what`."""
        return self.choices.get(what, self.offered[what][0])

    def prepared(self) -> Callable[[], float]:
        """A function that runs the kernel on all sets of arrays and returns the mean time of one run."""
        if not self._sets:
            arrays = self._arrays()
            copies = min(COPIES, 1 + COLD // max(sum(array.nbytes for array in arrays), 1))
            self._sets = [[as_tensor(array.copy()) for array in arrays] for _ in range(copies)]
        run, sets = self.library[self.symbol], self._sets

        def timed() -> float:
            start = time.perf_counter()
            for tensors in sets:
                run(*tensors)
            return (time.perf_counter() - start) / len(sets)

        return timed

    def _arrays(self) -> list[Array]:
        """Inputs, weights in this kernel's layout, and zeroed outputs."""
        assert self.lowered is not None
        random, kernel = np.random.default_rng(0), self.lowered.kernels()[self.symbol]
        arrays = []
        for i, (node, param) in enumerate(zip(self.body.graph.inputs, kernel.params)):
            array = _numbers(random, shape_of(node[0]), element_of(node[0]))
            if i in self.lowered.packs:
                array = np.asarray(self.lowered.packs[i](array), order="C")
            arrays.append(array.reshape([int(size) for size in param.ty.shape]))
        for param in list(kernel.params)[len(arrays) :]:
            arrays.append(np.full([int(size) for size in param.ty.shape], 0, numpy_dtype(str(param.ty.dtype))))
        return arrays

    def results(self) -> list[Array]:
        """Arrays that the kernel computes."""
        run = self.prepared()
        run()
        return [tensor.numpy().reshape(-1) for tensor in self._sets[0][len(self.body.graph.inputs) :]]


def _numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Random floats; zeros for integers, because they may be indices."""
    if dtype in ("float32", "float64"):
        return random.standard_normal(shape).astype(dtype)
    return np.zeros(shape, numpy_dtype(dtype))
