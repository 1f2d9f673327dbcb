"""A compiled model that answers at once on fast-starting devices, until its own devices are ready."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.building.report import CompileReport
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.runtime.starting.work import Starting, Work
from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words


class StartingModel(Starting, CompiledModel):
    """Called like any other model. Its graph, report and units are those of the devices that answer now; once its own devices are
    ready, they take the next calls. Running calls end where they began."""

    def __init__(self, first: CompiledModel, work: Work) -> None:
        note = f"{', '.join(first.properties.devices)} answers until the model's own devices are ready"
        units, report = {unit.name: unit for unit in first.units}, noted(first.report, note)
        super().__init__(first.graph, units, report, first.settings, first.dead, first.measured, first.measuring_units)
        self._start(work)

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """Calls the model; the first answer starts the background compilation, and later ones leave it some time."""
        start = self._work.pace.start()
        outputs = super().__call__(*args, out=out, **named)
        self._work.answered(start)
        return outputs

    def take_over(self, final: CompiledModel, seconds: float) -> None:
        """Switches to this model from the next call on."""
        self._adopt(final, ended(final.report, self.properties.devices, seconds))

    def stay(self, error: BaseException) -> None:
        """Keeps the devices that answer now, for good."""
        cause = error if isinstance(error, PartitaError) else error_in_words(error)
        note = f"its own devices are not ready, and {', '.join(self.properties.devices)} goes on: {cause}"
        self.report = noted(self.report, note)
        warnings.warn(f"model {self.graph.name!r}: {note}", stacklevel=2)

    def export(self, path: Any, *, bodies: bool = True, key: bytes | None = None) -> None:
        """Write the model as compiled by its own devices, once they are ready."""
        self.wait()
        super().export(path, bodies=bodies, key=key)

    def close(self) -> None:
        """Close the model, and stop the background compilation."""
        super().close()
        self._work.give_up()


def noted(report: Any, note: str) -> Any:
    """The report with one more note."""
    return attrs.evolve(report, notes=(*report.notes, note)) if isinstance(report, CompileReport) else report


def ended(report: Any, devices: Sequence[str], seconds: float) -> Any:
    """The report of a model's own devices, with a note on what answered before."""
    return noted(report, f"for the first {seconds:.1f} s, while it was compiled, {', '.join(devices)} answered")
