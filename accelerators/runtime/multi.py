"""MULTI: a whole model on each of several devices; each call goes to one that is free."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.arrays.on_device import Wanted
from partita.accelerators.building.report import CompileReport
from partita.accelerators.building.units import Unit
from partita.accelerators.errors import NotSupported
from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.runtime.compiled_model import CompiledModel, ModelProperties
from partita.accelerators.runtime.executor import Observer, Runs, Watcher
from partita.accelerators.runtime.profile import Profile

if TYPE_CHECKING:
    from partita.accelerators.placement.costs import Costs
    from partita.accelerators.runtime.package.stages import Stages


class MultiModel(CompiledModel):
    """A model on several devices, called like any other.

    Concurrent calls, from threads or by `start`, are distributed: each goes to the least busy device, or to the one named
    first if equally busy; if all are full, it waits for the first that is free."""

    def __init__(self, models: Mapping[str, CompiledModel]) -> None:
        self.models = dict(models)
        """The model of each device, by its label: they can be called, profiled and exported individually."""
        first = next(iter(models.values()))
        super().__init__(
            first.graph, {}, _report(self.models), first.settings, first.dead,
            any(model.measured for model in models.values()), dict,
        )

    def _runs(self) -> Runs:
        """An object that distributes runs over the executors of all devices."""
        asked = self.settings.requests
        rooms = [-(-asked // len(self.models)) if asked else model.properties.optimal_requests for model in self.models.values()]
        return Spreading([model.runs for model in self.models.values()], rooms)

    def _profiled(self, arrays: list[Any], inputs: str) -> Profile:
        """Profiles the first device. `model.models[label].profile(x)` measures another."""
        return next(iter(self.models.values()))._profiled(arrays, inputs)

    @property
    def properties(self) -> ModelProperties:
        """The properties of one model, with the devices, subgraphs and concurrent calls of all of them."""
        each = [model.properties for model in self.models.values()]
        return attrs.evolve(
            each[0],
            devices=tuple(dict.fromkeys(label for one in each for label in one.devices)),
            subgraphs=sum(one.subgraphs for one in each),
            optimal_requests=sum(one.optimal_requests for one in each),
        )

    @property
    def units(self) -> tuple[Unit, ...]:
        """The compiled subgraphs, device by device."""
        return tuple(unit for model in self.models.values() for unit in model.units)

    def export(self, path: str | os.PathLike[str], *, bodies: bool = True, key: bytes | None = None) -> None:
        """Raises NotSupported: a file holds the model of one device."""
        raise self._several("exported", "Export that of one device", "export(path)")

    def stages(self, times: Profile | Costs | None = None) -> Stages:
        """Raises NotSupported: each device has the whole model."""
        raise self._several("cut into stages", "Compile it for HETERO, or take that of one device", "stages()")

    def _several(self, what: str, remedy: str, method: str) -> NotSupported:
        return NotSupported(
            f"a model that runs on several devices at once is not {what}",
            where=f"model {self.graph.name!r}",
            remedy=f"{remedy}: model.models[{next(iter(self.models))!r}].{method}",
        )

    def close(self) -> None:
        """Finish running calls, drop waiting ones, and free all devices' threads and buffers."""
        super().close()
        for model in self.models.values():
            model.close()


def _report(models: Mapping[str, CompiledModel]) -> CompileReport:
    """The first device's report, with all subgraphs."""
    reports = [model.report for model in models.values() if isinstance(model.report, CompileReport)]
    rows = tuple(row for report in reports for row in report.subgraphs)
    notes = (*reports[0].notes, f"each call runs on one of {', '.join(models)}: whichever is free")
    return attrs.evolve(reports[0], subgraphs=rows, notes=notes)


class Spreading:
    """Each executor takes as many concurrent runs as it has room for; further ones wait for the first that is free.

    A nested run stays on the executor of the outer run, so that it does not wait for itself."""

    def __init__(self, executors: Sequence[Runs], room: Sequence[int]) -> None:
        self._executors = executors
        self._room = room
        self._here = threading.local()
        self.renew()
        renewed_in_children(self)

    def run(
        self,
        arrays: list[Any],
        out: Sequence[Wanted | None] | None = None,
        observer: Observer | None = None,
        watcher: Watcher | None = None,
        in_turn: bool = False,
    ) -> list[Any]:
        """The outputs for these inputs, by the least busy executor."""
        with self._taken() as executor:
            return executor.run(arrays, out, observer, watcher, in_turn)

    def renew(self) -> None:
        """Resets the counts in a forked process, in which nothing runs."""
        self._changed = threading.Condition()
        self._running = [0] * len(self._executors)

    def close(self) -> None:
        """Frees the buffers of all executors."""
        for executor in self._executors:
            executor.close()

    @contextmanager
    def _taken(self) -> Iterator[Runs]:
        inside: int | None = getattr(self._here, "number", None)
        if inside is not None:
            yield self._executors[inside]
            return
        changed = self._changed
        with changed:
            changed.wait_for(self._is_room)
            number = min(range(len(self._room)), key=lambda i: (self._running[i] / self._room[i], i))
            self._running[number] += 1
        self._here.number = number
        try:
            yield self._executors[number]
        finally:
            self._here.number = None
            with changed:
                if changed is self._changed:
                    self._running[number] -= 1
                changed.notify()

    def _is_room(self) -> bool:
        return any(running < room for running, room in zip(self._running, self._room, strict=True))
