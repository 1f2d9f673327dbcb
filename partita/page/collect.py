"""Collects the scene of a page from a graph, a plan, a placement or a compiled model."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from partita.accelerators import CompiledModel, Placement, Profile
from partita.accelerators.building.report import CompileReport, move_lines
from partita.accelerators.errors import MEND, DeviceMistake
from partita.accelerators.interface.compile_story import KernelWork
from partita.accelerators.placement.by_cost import LATENCY, SHOWN, Certificate, CostedPlacement
from partita.accelerators.runtime.profile import PLAIN
from partita.accelerators.runtime.real_runs import Timeline
from partita.graph.errors import GraphError, PartitaError
from partita.graph.formatting import in_code
from partita.graph.graph import Graph
from partita.graph.summary import summarize
from partita.page.boxes import Boxes, count_ops
from partita.page.scene import NOWHERE, Bar, Item, Refusal, Scene, Subgraph, Transfer, Wall
from partita.page.sections import add_sections, children, open_some
from partita.page.times import add_times, laps_of, seen_of
from partita.partition import AffinityProperty, PartitionReport, Plan
from partita.passes import apply_pass
from partita.passes.registry import REPORT

Subject = Graph | Plan | Placement | CompiledModel
"""Objects that a page can show."""


def collect(
    subject: Subject, profile: Profile | None = None, placement: Placement | None = None, timeline: Timeline | None = None
) -> Scene:
    """Everything that the page shows. Linear, except for sorting."""
    if isinstance(subject, CompiledModel):
        return _of_model(subject, profile, timeline)
    if timeline is not None:
        remedy = "Show the model: report_page(model, path, timeline=timeline)"
        raise GraphError("a timeline is that of a compiled model", where="report_page", remedy=remedy)
    if isinstance(subject, Placement):
        placed = subject.apply(subject.graph).evolve(attrs={})
        placed = apply_pass(placed, "PartitionGraph", subgraph_property=AffinityProperty(), growth="largest")
        collector = _Collector(placed, _placed_on(subject), profile)
        if isinstance(subject, CostedPlacement):
            collector.facts += _certified(subject.certificate)
            collector.notes += [*subject.bytes_lines(), *str(subject.certificate).split("\n")]
            return attrs.evolve(collector.scene(placement=subject), costs=_costs(subject, collector.boxes.by_name))
        return collector.scene(placement=subject)
    if isinstance(subject, Plan):
        if subject.graph is None:
            remedy = "Show the partitioned graph: plan.apply(graph)"
            raise GraphError("the plan was read from a file, without its graph", where="report_page", remedy=remedy)
        return _Collector(subject.apply(subject.graph), "a plan", profile).scene()
    if isinstance(subject, Graph):
        calls = sum(node.is_call for node in subject.nodes)
        what = "a partitioned graph" if calls else "a graph"
        return _Collector(subject, what if placement is None else _placed_on(placement), profile).scene(placement=placement)
    raise GraphError(
        f"a page shows a Graph, Plan, Placement or CompiledModel, not {type(subject).__name__}",
        where="report_page",
    )


def _certified(certificate: Certificate) -> list[tuple[str, str]]:
    """The predicted cost, its bound, and the tensors handed over at the greatest cost."""
    facts = [("predicted", f"{certificate.predicted_us:,.1f} µs"), ("proven bound", f"{certificate.bound_us:,.1f} µs")]
    if math.isfinite(certificate.priority_us):
        facts.append(("by priority", f"{certificate.priority_us:,.1f} µs"))
    bottlenecks = [f"{one.name}: {one.source} to {one.destination}, {one.us:,.1f} µs" for one in certificate.cut[:SHOWN]]
    return [*facts, *(("bottleneck", text) for text in bottlenecks)]


def _costs(placement: CostedPlacement, by_name: Mapping[str, int]) -> dict[str, Any] | None:
    """The costs as plain data; None for throughput, where they are not added up."""
    if placement.certificate.objective != LATENCY:
        return None
    names, problem, tensors = placement.to_problem()
    is_limited = any(map(math.isfinite, placement.limits.values()))
    rows = zip(tensors, problem.producers.tolist(), problem.readers, problem.hand_overs.tolist())
    return {
        "devices": list(placement.devices),
        "items": [by_name[name] for name in names],
        "times": [[us if math.isfinite(us) else None for us in row] for row in problem.times.tolist()],
        "tensors": [{"name": name, "producer": made, "readers": read, "over": over} for name, made, read, over in rows],
        "unit": placement.certificate.unit,
        "notes": ["Limits on memory are not checked here."] if is_limited else [],
    }


def _placed_on(placement: Placement) -> str:
    return f"placed on {', '.join(placement.devices)}"


def _of_model(model: CompiledModel, profile: Profile | None, timeline: Timeline | None) -> Scene:
    collector = _Collector(model.graph, f"compiled for {', '.join(model.properties.devices) or 'no device'}", profile)
    add_kernels(collector.boxes, model)
    seconds = {unit.name: unit.seconds for unit in model.units}
    recorded, report = model.recorded, model.report
    at_work: dict[str, Any] = {}
    if recorded is not None:
        collector.notes += [f"recorded: {line}" for line in str(recorded).split("\n")]
        at_work["seen"], at_work["probes"] = seen_of(collector.boxes, recorded)
        at_work["recorded"] = str(recorded).partition("\n")[0]
    if timeline is not None:
        at_work["laps"], notes = laps_of(collector.boxes, timeline)
        collector.notes += notes
    if isinstance(report, CompileReport):
        collector.notes += [*report.notes, *move_lines(report.moves)]
        scene = collector.scene(placement=report.placement, partition=report.partition, seconds=seconds)
    else:
        collector.notes += report.notes
        scene = collector.scene(imported=report.data["placement"], seconds=seconds)
    return attrs.evolve(scene, **at_work)


class _Collector:
    """Collects the parts of one scene."""

    def __init__(self, graph: Graph, subtitle: str, profile: Profile | None) -> None:
        report = graph.attrs.get(REPORT)
        self.notes: list[str] = []
        self.facts: list[tuple[str, str]] = []
        """Facts about the subject beside those about its graph."""
        self.graph = graph = self._typed(graph)
        self.subtitle = subtitle
        self.profile = profile
        self.partition: PartitionReport | None = report if isinstance(report, PartitionReport) else None
        chosen = zip(self.partition.calls, self.partition.groups, strict=True) if self.partition else ()
        self.boxes = Boxes(graph, {call: group.device or group.property for call, group in chosen})

    def _typed(self, graph: Graph) -> Graph:
        """The graph with inferred types, which determine sizes; unchanged if types contradict each other."""
        if all(kind is not None for node in graph.nodes for kind in node.output_types):
            return graph
        try:
            return apply_pass(graph, "InferShape")
        except PartitaError as error:
            self.notes.append(f"The types of the values are not known: {error.cause}")
            return graph

    def scene(
        self,
        placement: Placement | None = None,
        partition: PartitionReport | None = None,
        imported: dict[str, Any] | None = None,
        seconds: dict[str, float] | None = None,
    ) -> Scene:
        boxes, report = self.boxes, partition or self.partition
        borders: list[Wall] = []
        refusals: list[Refusal] = []
        if report is not None:
            borders = walls(report, boxes.by_name)
            refusals = outside(report, boxes.by_name)
            self.notes = [*report.notes, *self.notes]
        if placement is not None:
            refusals = refused(placement, boxes.by_name) + refusals
        elif imported:
            refusals = refused_in(imported.get("refusals", {}), boxes.by_name) + refusals
        bars: list[Bar] = [] if self.profile is None else add_times(boxes, self.profile)
        crossing = _transfers(boxes)
        subgraphs = [
            Subgraph(box, count_ops(node.subgraph), (seconds or {}).get(node.name, NOWHERE))
            for box, node in boxes.calls
            if node.subgraph is not None
        ]
        facts = self._facts(borders)
        add_sections(boxes)
        open_some(boxes.items)
        return Scene(
            title=self.graph.name,
            subtitle=self.subtitle,
            owned_by="device" if any(node.affinity for _, node in boxes.calls) or not boxes.calls else "property",
            owners=self._owners(placement),
            facts=facts,
            notes=tuple(self.notes),
            items=boxes.items,
            values=boxes.values,
            edges=boxes.edges,
            walls=borders,
            refusals=refusals,
            transfers=crossing,
            subgraphs=subgraphs,
            bars=bars,
            run="" if self.profile is None else self.profile.inputs,
            total_us=0.0 if self.profile is None else self.profile.total_us,
        )

    def _facts(self, borders: list[Wall]) -> tuple[tuple[str, str], ...]:
        kinds = Counter(item.kind for item in self.boxes.items)
        summary = summarize(self.graph)
        return (
            ("ops", f"{kinds['op']:,}"),
            ("subgraphs", f"{len(self.boxes.calls):,}"),
            ("borders", f"{len(borders):,}"),
            ("parameters", f"{summary.parameters:,}"),
            *self.facts,
            *(("input", name if kind is None else f"{name}: {kind}") for name, kind in summary.inputs),
            *(("output", name if kind is None else f"{name}: {kind}") for name, kind in summary.outputs),
        )

    def _owners(self, placement: Placement | None) -> tuple[str, ...]:
        """Devices in order of preference, then the others by number of ops."""
        counts = Counter(item.owner for item in self.boxes.items if item.kind == "op" and item.owner)
        asked = () if placement is None else placement.devices
        return tuple(dict.fromkeys([*asked, *(owner for owner, _ in counts.most_common()), _OUTSIDE]))


_OUTSIDE = "outside"
"""Owner of ops that are on no device and in no subgraph."""


def _transfers(boxes: Boxes) -> list[Transfer]:
    """For each pair of devices or properties, the values that one computes and the other reads; a value that is read twice counts
    once."""
    items, values = boxes.items, boxes.values
    crossing: dict[tuple[str, str], set[int]] = defaultdict(set)
    for value, reader in boxes.edges:
        source = items[values[value].source]
        target = items[reader]
        if "input" in (source.kind, target.kind) or "output" in (source.kind, target.kind):
            continue
        if source.owner != target.owner:
            crossing[source.owner or _OUTSIDE, target.owner or _OUTSIDE].add(value)
    rows = []
    for (source_owner, target_owner), crossed in crossing.items():
        sizes = [values[value].nbytes for value in crossed]
        known = [size for size in sizes if size >= 0]
        rows.append(Transfer(source_owner, target_owner, len(sizes), sum(known), len(sizes) - len(known)))
    return sorted(rows, key=lambda row: (-row.nbytes, row.source, row.target))


MOST_WAYS = 20
"""Maximum number of borders whose cycle is searched; each search is linear."""


def walls(report: PartitionReport, by_name: Mapping[str, int]) -> list[Wall]:
    """The borders whose two ends are drawn.

    Borders of graph inputs are left out, because they are obvious."""
    calls = dict(zip([group.name for group in report.groups], report.calls, strict=True))
    borders = []
    ways = MOST_WAYS
    for border in report.borders:
        if border.rule == "input" or border.producer not in by_name or border.consumer not in by_name:
            continue
        text = border.text
        if border.rule == "cycle" and ways:
            ways -= 1
            way = report.cycle_path(border)
            text += f" (the way: {' → '.join(way)})" if way else ""
        ends = by_name[border.producer], by_name[border.consumer]
        borders.append(Wall(*ends, calls.get(border.inside, border.inside), border.rule, text))
    return borders


def outside(report: PartitionReport, by_name: Mapping[str, int]) -> list[Refusal]:
    """Reasons why ops are in no subgraph, with the ops of each."""
    rows = ((o.node, "in no subgraph", o.rule, o.text.replace(repr(o.node), "the op")) for o in report.outside)
    return _grouped(rows, by_name)


def refused(placement: Placement, by_name: Mapping[str, int]) -> list[Refusal]:
    """Reasons why the preferred devices do not run ops, with the ops of each; for ops that no device runs, the reasons of all."""
    return refused_in({name: placement.refusals(name) for name in (*placement, *placement.unsupported)}, by_name)


def refused_in(refusals: Mapping[str, Mapping[str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    """The same from a report that was saved to a file."""
    rows = (
        (name, f"not on {device}", "", reason.replace(repr(name), "the op"))
        for name, reasons in refusals.items()
        for device, reason in reasons.items()
    )
    return _grouped(rows, by_name)


def _grouped(rows: Iterator[tuple[str, str, str, str]], by_name: Mapping[str, int]) -> list[Refusal]:
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for name, *reason in rows:
        if name in by_name:
            what, rule, text = reason
            members[what, rule, text].append(by_name[name])
    refusals = [Refusal(*reason, tuple(items)) for reason, items in members.items()]
    return sorted(refusals, key=lambda refusal: -len(refusal.items))


def add_kernels(boxes: Boxes, model: CompiledModel) -> None:
    """Put ops that share a kernel into one box, in subgraphs whose devices report their kernels. Linear."""
    inside = children(boxes.items)
    sources = _sources(boxes)
    units = {unit.name: unit for unit in reversed(model.units)}  # With MULTI several devices may have a subgraph of that name.
    for box, call in boxes.calls:
        unit = units[call.name]
        kernels, story = unit.kernels(), unit.compiled.story
        odd = next((kernel for kernel in kernels if not (hasattr(kernel, "name") and hasattr(kernel, "nodes"))), None)
        if odd is not None:
            raise DeviceMistake(f"its kernels hold {in_code(odd)}, which has no name and nodes", where=unit.title, remedy=MEND)
        work = {one.kernel: one for one in story.kernels} if story is not None else {}
        if story is not None:
            boxes.items[box].details += (str(story),)
        by_name = {boxes.items[i].name: i for i in inside.get(box, ())}
        kernel_of: dict[int, int] = {}
        for k, kernel in sorted(enumerate(kernels), key=lambda numbered: -len(numbered[1].nodes)):
            for name in kernel.nodes:  # An op whose result another kernel only moves belongs to the kernel that computes it.
                if name in by_name:
                    kernel_of.setdefault(by_name[name], k)
        for i in inside.get(box, ()) if kernels else ():
            if i not in kernel_of and len(sources.get(i, ())) == 1:
                (source,) = sources[i]
                if source in kernel_of:  # the op was folded into the constants of the ops that it reads
                    kernel_of[i] = kernel_of[source]
        members: dict[int, list[int]] = {}
        for i, k in sorted(kernel_of.items()):
            members.setdefault(k, []).append(i)
        for k, ops in members.items():
            for i in ops:
                boxes.items[i].details += _precision(kernels[k])
            if len(ops) > 1:
                _enclose(boxes, box, kernels[k], ops, work.get(kernels[k].name))


def _sources(boxes: Boxes) -> dict[int, set[int]]:
    """Boxes that each box reads from."""
    sources: dict[int, set[int]] = {}
    for value, reader in boxes.edges:
        sources.setdefault(reader, set()).add(boxes.values[value].source)
    return sources


def _enclose(boxes: Boxes, call: int, kernel: Any, ops: list[int], work: KernelWork | None) -> None:
    shown = [boxes.items[i].label for i in ops if boxes.items[i].name in kernel.nodes]
    what = "+".join(shown[:4]) + ("+…" if len(shown) > 4 else "")
    cost = () if work is None else (f"compiled: {work.cost}",)
    details = (f"schedule {kernel.schedule}", *_precision(kernel), *cost)
    boxes.items.append(Item("kernel", kernel.symbol, what, call, boxes.items[call].owner, details))
    for i in ops:
        boxes.items[i].parent = len(boxes.items) - 1


def _precision(kernel: Any) -> tuple[str, ...]:
    """Element types of the kernel, unless all are float32, and why it does not compute in a narrower type."""
    types, why = getattr(kernel, "types", ""), getattr(kernel, "why_wide", "")
    return (*(() if types in PLAIN else (f"its kernel: {types}",)), *((f"in float32, since {why}",) if why else ()))
