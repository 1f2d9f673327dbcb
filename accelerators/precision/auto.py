"""`auto`: compiles the best few placements of a graph, measures them in turns, and chooses the fastest."""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.compiling import compile as compile_graph
from partita.accelerators.errors import AcceleratorError, BadConfig
from partita.accelerators.placement.by_cost import Setting
from partita.accelerators.placement.costs import Costs, HandOver, as_number
from partita.accelerators.placement.locked import LockedPlan
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import query
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.measured_costs import failed_device, in_turns, kept_path, measured
from partita.accelerators.precision.options import Target, batches_of
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.json_form import form_error
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.store.kept import FOLDERS, keep, read_kept
from partita.graph.errors import PartitaError, check_flag
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.passes import apply_pass

if TYPE_CHECKING:
    from rich.table import Table

AUTO = "AUTO"
"""The prefix of devices among which `compile` chooses by measuring."""

SECONDS = 60.0
"""The default budget."""

BORDERS = (1.0, 10.0, 100.0)
"""Factors of the launches of hand-overs: what engines fuse is lost at borders, and devices do not report that."""

COMPILING = 0.6
"""The share of the budget after which no further placement is compiled."""

MEASURING = 0.25
"""The share of the budget after which calls suffice."""

MORE = 10
"""The calls of whole models, relative to those by which costs are measured."""

NOISE = 0.02
"""The relative gain from which a placement counts as faster than that by priority."""

_FORM = {
    "rows": [{"title": str, "ops": {str: int}, "predicted_us": float, "us": float, "times": float, "note": str}],
    "chosen": int, "reason": str, "plan": str,
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


@attrs.frozen(slots=True)
class AutoChoice:
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

    def lock(self, path: str | os.PathLike[str]) -> None:
        """Write the recommended placement into a file, as `placement.lock` does."""
        self.plan.save(path)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, except the plan."""
        rows = [attrs.asdict(row) for row in self.rows]
        return {"graph": self.name, "rows": rows, "chosen": self.chosen, "reason": self.reason}

    def to_table(self) -> Table:
        """The placements as a rich table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        columns = ("placement", "ops", "predicted µs", "measured µs", "times as fast")
        table = Table(*columns, title=Text(self.name), caption=Text(self.reason))
        for column in table.columns[2:]:
            column.justify = "right"
        for i, row in enumerate(self.rows):
            ops = ", ".join(f"{count} on {label}" for label, count in row.ops.items())
            known = [f"{us:,.1f}" if us else "" for us in (row.predicted_us, row.us)]
            last = f"{row.times:.2f}" if row.us else row.note
            table.add_row(Text(row.title), Text(ops), *known, Text(last), style="bold" if i == self.chosen else None)
        return table

    def __rich__(self) -> Table:
        return self.to_table()

    def __str__(self) -> str:
        lines = [self.name]
        for row in self.rows:
            took = f"{row.us:,.1f} µs, {row.times:.2f} times as fast as by priority" if row.us else f"not measured: {row.note}"
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
            raise AcceleratorError(f"this is no JSON: {error}", where="auto") from error
        wrong = form_error(content, _FORM)
        if wrong is None and not 0 <= content["chosen"] < len(content["rows"]):
            wrong = "it has no such row"
        if wrong is not None:
            raise AcceleratorError(wrong, where="auto")
        rows = tuple(AutoRow(**{field.name: row[field.name] for field in attrs.fields(AutoRow)}) for row in content["rows"])
        return cls(name, rows, content["chosen"], content["reason"], LockedPlan.from_json(content["plan"], "auto"))


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
    again: bool = False,
) -> AutoChoice:
    """The fastest of several placements of a graph: by priority, with each device first, and by measured costs.

    They are compiled, run from end to end and take turns; one that is not faster than that by priority is not chosen. After
    `seconds`, which include measuring the costs, nothing new is begun. `devices`, `config`, `pin` and `forbid` are as for
    `query`, `inputs` are the arrays of one call (default: random ones). The choice is kept in the cache for this graph, machine
    and version of the devices; `again` measures anew."""
    check_flag(again, "option again", AcceleratorError)
    if not as_number(seconds) > 0:
        raise AcceleratorError(f"{seconds!r:.80} is no time", where="auto, option seconds", remedy="Give seconds, above 0")
    end = perf_counter() + seconds
    base = query(graph, devices, config=config, pin=pin, forbid=forbid)
    target = Target(devices, config)
    batch = None if inputs is None else batches_of(base.graph, inputs)[0]
    path = kept_path(FOLDERS[2], base, target, batch, str(pin), str(forbid))
    known = None if again or path is None else read_kept(path)
    if known is not None:
        try:
            return AutoChoice.from_json(known, base.graph.name)
        except PartitaError:
            pass  # a file of another version: it is measured anew
    costs = measured(base, target, batch, False, again, seconds / 60, resorts=False)
    choice = _Alternatives(base, target, costs).choice(graph, batch, seconds, end)
    if path is not None:
        keep(path, choice.to_json().encode())
    return choice


class _Alternatives:
    """The placements of a graph that are compared."""

    def __init__(self, base: Placement, target: Target, costs: Costs) -> None:
        self.base, self.target = base, target
        able = {name: base.able(name) for name in base if name not in base.computed}
        self.setting = Setting(base, costs, able, dict.fromkeys(base.devices, float("inf")), False)

    def placements(self) -> dict[str, Mapping[str, str]]:
        """The distinct placements by name: that by priority, and the others by predicted time."""
        base, found = self.base, dict[str, Mapping[str, str]]()
        for label in self.setting.costs.times:
            found[f"{label} first"] = {name: label if label in self.setting.able.get(name, ()) else base[name] for name in base}
        for factor in BORDERS:
            title = "by cost" if factor == 1 else f"by cost, launches × {factor:g}"
            try:
                found[title] = dict(attrs.evolve(self.setting, costs=self._dearer(factor)).placed())
            except AcceleratorError:
                continue  # some op has no time, since its device could not be measured
        distinct: dict[str, Mapping[str, str]] = {"by priority": dict(base)}
        for title in sorted(found, key=lambda title: self.setting.predicted_us(found[title])):
            if found[title] not in distinct.values():
                distinct[title] = found[title]
        return distinct

    def _dearer(self, factor: float) -> Costs:
        """The costs with launches that take longer."""
        costs, labels = self.setting.costs, self.base.devices
        over = {(a, b): costs.hand_over(a, b) or HandOver() for a in labels for b in labels if a != b}
        return attrs.evolve(
            costs, hand_overs={pair: HandOver(factor * one.launch_us, one.bytes_per_us) for pair, one in over.items()}
        )

    def choice(self, graph: Graph, batch: Mapping[str, Any] | None, seconds: float, end: float) -> AutoChoice:
        """The result of the measurement."""
        locked = LockedPlan.of(self.base)
        placements = self.placements()
        plans = {title: locked.with_devices(where) for title, where in placements.items()}
        models, notes = dict[str, CompiledModel](), dict[str, str]()
        for title, plan in plans.items():
            if models and perf_counter() > end - (1 - COMPILING) * seconds:
                notes[title] = f"the budget of {seconds:g} s was used up"
                continue
            try:
                model = compile_graph(graph, list(self.base.devices), self.target.config, plan=plan).wait()
            except PartitaError as error:
                if not models:
                    raise
                notes[title] = error.cause
                continue
            failed = failed_device(model)
            if models and failed is not None:
                notes[title] = f"{failed} cannot compile what it would take"
            else:
                models[title] = model
        first = next(iter(models.values()))
        given = dict(batch or zip([name for name, _ in first.properties.inputs], first.example_inputs()))
        left = max(0.0, min(end - perf_counter(), MEASURING * seconds))
        taken = dict(zip(models, in_turns([partial(model, given) for model in models.values()], left, times_more=MORE)))
        times = {title: statistics.median(b / a for a, b in zip(us, taken["by priority"])) for title, us in taken.items()}
        best = max(times, key=times.__getitem__)
        reason = f"{best}: {times[best]:.2f} times as fast as by priority"
        if times[best] <= 1 + NOISE:
            best, reason = "by priority", f"by priority: no other one was more than {NOISE:.0%} faster"
        reason += f", in the median of {counted(len(taken[best]), 'call')} in turns"
        rows = [
            AutoRow(
                title, dict(Counter(where.values())), self._predicted(where), statistics.median(taken.get(title, [0.0])),
                times.get(title, 0.0), notes.get(title, ""),
            )
            for title, where in placements.items()
        ]
        return AutoChoice(self.base.graph.name, tuple(rows), list(plans).index(best), reason, plans[best])

    def _predicted(self, where: Mapping[str, str]) -> float:
        us = self.setting.predicted_us(where)
        return us if us < float("inf") else 0.0


def named_after(device: Any) -> list[str] | None:
    """The devices of "AUTO:first,second"; None for any other string."""
    head, colon, rest = device.partition(":") if isinstance(device, str) else ("", "", "")
    if not colon or head.strip().upper() != AUTO:
        return None
    return [label.strip() for label in rest.split(",") if label.strip()]


def compiled(
    graph: Graph, devices: Sequence[str], config: Mapping[str, Any] | None, pin: Pin | None, forbid: Forbid | None, **options: Any
) -> CompiledModel:
    """The graph, compiled as `auto` recommends."""
    given = dict(config or {})
    own = given.pop(AUTO, {})
    if not isinstance(own, Mapping) or not own.keys() <= {"SECONDS"}:
        cause = f"it has the key SECONDS alone, not {own!r:.80}"
        raise BadConfig(cause, where=f"config of {AUTO}", remedy='Write {"SECONDS": 30}')
    if options["shapes"] is not None:
        graph = apply_pass(graph, "InferShape", shapes=options["shapes"], strict=True, check_fits=True, verify=False)
    choice = auto(graph, devices, config=given or None, pin=pin, forbid=forbid, seconds=own.get("SECONDS", SECONDS))
    return compile_graph(graph, list(devices), given or None, plan=choice.plan, **options)
