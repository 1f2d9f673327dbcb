"""`auto`: compiles the best few placements of a graph, measures them in turns, and chooses the fastest."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.arrays.distance import distance
from partita.accelerators.compiling import compile as compile_graph
from partita.accelerators.errors import AcceleratorError, BadConfig
from partita.accelerators.interface.accelerator import PRECISIONS
from partita.accelerators.interface.device_list import AUTO
from partita.accelerators.placement.by_cost import Setting
from partita.accelerators.placement.costs import Costs, HandOver, as_number
from partita.accelerators.placement.locked import LockedPlan
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import query
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.measured_costs import failed_device, in_turns, kept_path, measured, usable
from partita.accelerators.precision.options import Target, batches_of
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.json_form import form_error
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.store.folder import FOLDERS, keep, read_kept
from partita.graph.errors import PartitaError, check_flag
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.pictures.tables import Tabular
from partita.passes import apply_pass

if TYPE_CHECKING:
    from rich.table import Table

SECONDS = 60.0
"""The default budget."""

BORDERS = (1.0, 10.0, 100.0)
"""Factors of the launches of hand-overs: what engines fuse is lost at borders, and devices do not report that."""

WHOLE = 0.4
"""The share of the budget after which no further device is tried first, and costs are not measured."""

COMPILING = 0.75
"""The share of the budget after which nothing further is measured or compiled but what is compiled already."""

MEASURING = 0.25
"""The share of the budget after which calls suffice."""

MORE = 10
"""The calls of whole models, relative to those by which costs are measured."""

TOLERANCE = 1e-2
"""The default limit of the error of a placement in a lower precision."""

FULL, PRECISION = "f32", "PRECISION"
"""The precision that is always allowed, and the key of a device's precision."""

FAR = 1e30
"""The error that stands for an infinite one."""

NOISE = 0.02
"""The relative gain from which a placement counts as faster than that by priority."""

_FORM = {
    "rows": [{
        "title": str, "ops": {str: int}, "predicted_us": float, "us": float, "times": float, "note": str, "precision": str,
        "error": float,
    }],
    "chosen": int, "reason": str, "plan": str, "seconds": float, "is_short": bool,
}


@attrs.frozen(slots=True)
class AutoRow:
    """One placement that was considered."""

    title: str
    """Its name."""
    ops: Mapping[str, int]
    """The number of ops on each device."""
    predicted_us: float
    """The predicted microseconds; 0 if they are not known."""
    us: float
    """The median of the measured microseconds; 0 if it was not measured."""
    times: float
    """The median ratio of the time by priority to its own; 0 if it was not measured."""
    note: str
    """The reason why it was not measured; empty if it was."""
    precision: str = FULL
    """The precision of its first device; f32: that of the model."""
    error: float = 0.0
    """The largest |a - b| over the largest |b| of an output, against the placement by priority."""


@attrs.frozen(slots=True)
class AutoChoice(Tabular):
    """The placements that were measured, and the one that is recommended."""

    name: str
    """The graph's name."""
    rows: tuple[AutoRow, ...]
    """The placements; that by priority is the first."""
    chosen: int
    """The index of the recommended one."""
    reason: str
    """The reason for it, a sentence."""
    plan: LockedPlan
    """The device of each op, for `compile(graph, plan=...)`."""
    seconds: float
    """The budget."""
    is_short: bool
    """True if the budget did not suffice for all placements."""

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """The configuration that `compile` needs beside the plan and the caller's: the precision of the recommended placement."""
        precision = self.rows[self.chosen].precision
        return {} if precision == FULL else {self.plan.devices[0]: {PRECISION: precision}}

    def lock(self, path: str | os.PathLike[str]) -> None:
        """Write the recommended placement into a file, as `placement.lock` does."""
        self.plan.save(path)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, except the plan."""
        rows = [attrs.asdict(row) for row in self.rows]
        whole = {"chosen": self.chosen, "reason": self.reason, "seconds": self.seconds, "is_short": self.is_short}
        return {"graph": self.name, "rows": rows, **whole}

    def to_table(self) -> Table:
        """The placements as a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        columns = ("placement", "ops", "predicted µs", "measured µs", "error", "times as fast")
        table = Table(*columns, title=Text(self.name), caption=Text(self.reason))
        for column in table.columns[2:]:
            column.justify = "right"
        for i, row in enumerate(self.rows):
            ops = ", ".join(f"{count} on {label}" for label, count in row.ops.items())
            known = [f"{us:,.1f}" if us else "" for us in (row.predicted_us, row.us)]
            error, last = (f"{row.error:.2g}", f"{row.times:.2f}") if row.us else ("", row.note)
            table.add_row(Text(row.title), Text(ops), *known, error, Text(last), style="bold" if i == self.chosen else None)
        return table

    def __str__(self) -> str:
        lines = [self.name]
        for row in self.rows:
            took = f"{row.us:,.1f} µs, {row.times:.2f} times as fast as by priority, off by {row.error:.2g}"
            took = took if row.us else f"not measured: {row.note}"
            lines.append(f"  {row.title}: {took}")
        return "\n".join([*lines, f"  {self.reason}"])

    def to_json(self) -> str:
        """Everything as text."""
        content = {**self.to_dict(), "plan": self.plan.to_json()}
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: bytes, name: str) -> AutoChoice:
        """The choice in the output of `to_json`."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise AcceleratorError(f"this is not JSON: {error}", where="auto") from error
        wrong = form_error(content, _FORM)
        if wrong is None and not 0 <= content["chosen"] < len(content["rows"]):
            wrong = "it has no such row"
        if wrong is not None:
            raise AcceleratorError(wrong, where="auto")
        rows = tuple(AutoRow(**{field.name: row[field.name] for field in attrs.fields(AutoRow)}) for row in content["rows"])
        plan = LockedPlan.from_json(content["plan"], "auto")
        return cls(name, rows, content["chosen"], content["reason"], plan, content["seconds"], content["is_short"])


@at_a_device()
def auto(
    graph: Graph,
    devices: str | Sequence[str] | None = None,
    *,
    inputs: Any = None,
    config: Mapping[str, Any] | None = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    seconds: float = SECONDS,
    precisions: Sequence[str] = (FULL,),
    tolerance: float = TOLERANCE,
    again: bool = False,
    progress: bool = True,
) -> AutoChoice:
    """The fastest of several placements of a graph: by priority, with each device first, and by measured costs.

    Each device that has a PRECISION is also measured in those of `precisions` (such as "bf16"). One of them is recommended only
    if its error is at most `tolerance`: the largest |a - b| over the largest |b| of an output, against the placement by priority.

    They are compiled, run from end to end and take turns; one that is not faster than that by priority is not chosen. After
    `seconds`, which include measuring the costs, nothing new is begun. `devices`, `config`, `pin` and `forbid` are as for
    `query`, `inputs` are the arrays of one call (default: random ones). `progress` is printed to stderr. The choice is kept
    in the cache for this graph, machine and version of the devices; `again` measures anew."""
    check_flag(again, "option again", AcceleratorError)
    check_flag(progress, "option progress", AcceleratorError)
    if not as_number(seconds) > 0:
        raise AcceleratorError(f"{seconds!r:.80} is not a time", where="auto, option seconds", remedy="Give seconds, above 0")
    is_list = isinstance(precisions, (Sequence, AbstractSet)) and not isinstance(precisions, str)
    if not is_list or not all(isinstance(one, str) and one in PRECISIONS for one in precisions):
        remedy = f"Give a list of {', '.join(PRECISIONS)}"
        raise AcceleratorError(f"{precisions!r:.80} are not precisions", where="auto, option precisions", remedy=remedy)
    if not as_number(tolerance) >= 0:
        remedy = "Give a number from 0 on"
        raise AcceleratorError(f"{tolerance!r:.80} is not an error", where="auto, option tolerance", remedy=remedy)
    lower = tuple(precision for precision in PRECISIONS if precision in precisions and precision != FULL)
    start = perf_counter()
    base = query(graph, devices, config=config, pin=pin, forbid=forbid)
    target = Target(devices, config)
    batch = None if inputs is None else batches_of(base.graph, inputs, "auto")[0]
    path = kept_path(FOLDERS[2], base, target, batch, str(pin), str(forbid), lower, float(tolerance))
    known = None if again or path is None else read_kept(path)
    if known is not None:
        with contextlib.suppress(PartitaError):  # a file of another version counts as none
            kept = AutoChoice.from_json(known, base.graph.name)
            if kept.seconds >= seconds or not kept.is_short:
                return kept
    rules = {"pin": pin, "forbid": forbid}
    candidates = _Candidates(
        graph, base, target, batch, float(seconds), start, bool(again), bool(progress), lower, float(tolerance), rules
    )
    choice = candidates.choice()
    if path is not None:
        keep(path, choice.to_json().encode())
    return choice


@attrs.define(slots=True, eq=False)
class _Candidates:
    """The placements of one graph that are compared."""

    graph: Graph
    """The user's graph."""
    base: Placement
    """The placement by priority."""
    target: Target
    """The devices."""
    batch: Mapping[str, Any] | None
    """The inputs of a call; None for random ones."""
    seconds: float
    """The budget."""
    start: float
    """The time at which it began."""
    again: bool
    """True to measure costs that are known."""
    progress: bool
    """True to print what is being measured."""
    precisions: Sequence[str]
    """The lower precisions that are allowed."""
    tolerance: float
    """The greatest error of those."""
    rules: Mapping[str, Any]
    """The options `pin` and `forbid`."""
    placements: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """The distinct placements by title."""
    lowered: dict[str, tuple[str, LockedPlan]] = attrs.field(factory=dict)
    """The precision and the plan of those in a lower one."""
    models: dict[str, CompiledModel] = attrs.field(factory=dict)
    """Those that are compiled."""
    notes: dict[str, str] = attrs.field(factory=dict)
    """The reason why others are not."""
    is_short: bool = False
    """True if the budget did not suffice."""

    def choice(self) -> AutoChoice:
        """The result."""
        base = self.base
        labels = [device.label for device in usable(self.target) if not device.accelerator.last_resort]
        self._enter("by priority", dict(base), WHOLE)
        able = {name: base.able(name) for name in base if name not in base.computed}
        for label in labels:
            where = {name: label if label in able.get(name, ()) else base[name] for name in base}
            self._enter(f"{label} first", where, WHOLE)
        for precision in self.precisions:
            for device in usable(self.target):
                if device.label in labels and PRECISION in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS"):
                    self._enter_lower(device.label, precision)
        setting = None if self._is_late(WHOLE) else self._setting(able, labels)
        if setting is None:
            self.is_short = True
        else:
            self._enter_by_cost(setting)
        return self._measured(setting)

    def _enter_lower(self, label: str, precision: str) -> None:
        """Compiles the placement with a device first, in a lower precision."""
        title, config = f"{label} first, {precision}", _with_precision(self.target.config or {}, label, precision)
        order = [label, *(other for other in self.base.devices if other != label)]
        try:
            placed = query(self.graph, order, config=config, **self.rules)
        except PartitaError as error:
            self.placements[title], self.notes[title] = {}, error.cause
            return
        plan = LockedPlan.of(placed)
        self.lowered[title] = precision, plan
        self._enter(title, dict(placed), WHOLE, plan, config)

    def _enter_by_cost(self, setting: Setting) -> None:
        """Compiles the placements by cost."""
        for factor in BORDERS:
            title = "by cost" if factor == 1 else f"by cost, launches × {factor:g}"
            with contextlib.suppress(AcceleratorError):  # some op has no time, since its device could not be measured
                costs = _dearer(setting.costs, self.base.devices, factor)
                self._enter(title, dict(attrs.evolve(setting, costs=costs).placed()), COMPILING)

    def _is_late(self, share: float) -> bool:
        """True if that share of the budget is used up."""
        return perf_counter() > self.start + share * self.seconds

    def _setting(self, able: Mapping[str, tuple[str, ...]], labels: Sequence[str]) -> Setting | None:
        """The problem with measured costs; None if the time does not suffice."""
        end = self.start + COMPILING * self.seconds
        costs = measured(self.base, self.target, self.batch, labels, False, self.again, end, self.progress)
        return None if costs is None else Setting(self.base, costs, able, dict.fromkeys(self.base.devices, math.inf))

    def _enter(
        self, title: str, where: Mapping[str, str], share: float, plan: LockedPlan | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Compiles a placement, unless there is an equal one, or that share of the budget is used up. A plan and a configuration
        are given for one in a lower precision."""
        if plan is None and where in [one for other, one in self.placements.items() if other not in self.lowered]:
            return
        self.placements[title] = where
        if self.models and self._is_late(share):
            self.notes[title], self.is_short = f"the budget of {self.seconds:g} s was used up", True
            return
        plan, config = (self._plan(where), self.target.config) if plan is None else (plan, config)
        try:
            model = compile_graph(self.graph, list(plan.devices), config, plan=plan).wait()
        except PartitaError as error:
            if not self.models:
                raise
            self.notes[title] = error.cause
            return
        failed = failed_device(model)
        if self.models and failed is not None:
            self.notes[title] = f"{failed} cannot compile what it would take"
        else:
            self.models[title] = model

    def _plan(self, where: Mapping[str, str]) -> LockedPlan:
        return LockedPlan.of(self.base).with_devices(where)

    def _measured(self, setting: Setting | None) -> AutoChoice:
        """The choice by calls in turns."""
        first = self.models["by priority"]
        given = dict(self.batch or zip([name for name, _ in first.properties.inputs], first.example_inputs()))
        left = max(0.0, min(self.start + self.seconds - perf_counter(), MEASURING * self.seconds))
        calls = [partial(model, given) for model in self.models.values()]
        taken = dict(zip(self.models, in_turns(calls, left, times_more=MORE)))
        times = {title: statistics.median(b / a for a, b in zip(us, taken["by priority"])) for title, us in taken.items()}
        wanted = list(first(given))
        errors = {title: min(distance(list(model(given)), wanted), FAR) for title, model in self.models.items()}
        allowed = [title for title in times if title not in self.lowered or errors[title] <= self.tolerance]
        best = max(allowed, key=times.__getitem__)
        reason = f"{best}: {times[best]:.2f} times as fast as by priority"
        if times[best] <= 1 + NOISE:
            best, reason = "by priority", f"by priority: no other one was more than {NOISE:.0%} faster"
        reason += f", in the median of {counted(len(taken[best]), 'alternating call')}"
        reason += f"; off by {errors[best]:.2g}, where {self.tolerance:g} is allowed" if best in self.lowered else ""
        rows = []
        for title, where in self.placements.items():
            us, ops = statistics.median(taken.get(title, [0.0])), dict(Counter(where.values()))
            precision = self.lowered[title][0] if title in self.lowered else FULL
            predicted = _predicted(setting, where) if precision == FULL and where else 0.0
            note, error = self.notes.get(title, ""), errors.get(title, 0.0)
            rows.append(AutoRow(title, ops, predicted, us, times.get(title, 0.0), note, precision, error))
        plan = self.lowered[best][1] if best in self.lowered else self._plan(self.placements[best])
        chosen = list(self.placements).index(best)
        return AutoChoice(self.base.graph.name, tuple(rows), chosen, reason, plan, self.seconds, self.is_short)


def _with_precision(config: Mapping[str, Any], label: str, precision: str) -> dict[str, Any]:
    """The configuration, flat or by device, with this precision in place of the device's own."""

    def others(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key.removeprefix("KEY_") != PRECISION}

    return {**others(config), label: {**others(config.get(label, {})), PRECISION: precision}}


def _predicted(setting: Setting | None, where: Mapping[str, str]) -> float:
    """The microseconds of a placement by measured costs; 0 if they are not known."""
    with contextlib.suppress(AcceleratorError):  # some op has no time on any device
        predicted = math.inf if setting is None else setting.predicted_us(where)
        return predicted if predicted < math.inf else 0.0
    return 0.0


def _dearer(costs: Costs, labels: Sequence[str], factor: float) -> Costs:
    """The costs with launches that take longer by a factor."""
    over = {(a, b): costs.hand_over(a, b) or HandOver() for a in labels for b in labels if a != b}
    dearer = {pair: HandOver(factor * one.launch_us, one.bytes_per_us) for pair, one in over.items()}
    return attrs.evolve(costs, hand_overs=dearer)


def compiled(
    graph: Graph, devices: Sequence[str], config: Mapping[str, Any] | None, pin: Pin | None, forbid: Forbid | None, **options: Any
) -> CompiledModel:
    """The graph, compiled as `auto` recommends."""
    if config is not None and not isinstance(config, Mapping):
        remedy = 'Write {"AUTO": {"SECONDS": 30}}'
        raise BadConfig(f"{config!r:.80} is not a mapping", where="compile, option config", remedy=remedy)
    given = dict(config or {})
    own = given.pop(AUTO, {})
    if not isinstance(own, Mapping) or not own.keys() <= {"SECONDS", "PRECISIONS", "TOLERANCE"}:
        cause = f"it has the keys SECONDS, PRECISIONS and TOLERANCE, not {own!r:.80}"
        raise BadConfig(cause, where=f"config of {AUTO}", remedy='Write {"SECONDS": 30}')
    if options["shapes"] is not None:
        graph = apply_pass(graph, "InferShape", shapes=options["shapes"], strict=True, check_fits=True, verify=False)
    wishes = {key.lower(): value for key, value in own.items()}
    choice = auto(graph, devices, config=given or None, pin=pin, forbid=forbid, **wishes)
    for label, values in choice.config.items():
        given = _with_precision(given, label, values[PRECISION])
    return compile_graph(graph, list(choice.plan.devices), given or None, plan=choice.plan, **options)
