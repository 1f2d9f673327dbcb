"""`choose_precision`: which ops of a model may run in a lower precision, by measuring what each costs and what it wins.

One model is compiled whose ops' results can be moved from outside: it gives the numbers that calibration needs, and then how far
the answer moves if one op alone is rounded. What is chosen is held to the tolerance by running the model that comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import attrs
import numpy as np

from accelerators.arrays.distance import distance
from accelerators.compiling import compile as compile_model
from accelerators.errors import AcceleratorError
from accelerators.precision.calibration import METHODS, Range, calibrated
from accelerators.precision.lowered_ops import (
    KEPT,
    PRECISIONS,
    bytes_won,
    lowerable,
    lowered,
    moved_from,
    why_not,
    with_channel_scales,
)
from accelerators.precision.precision_plan import PrecisionPlan, PrecisionRow, amount, check_precision
from accelerators.process.ending import at_a_device
from accelerators.running.compiled_model import CompiledModel
from graph.build import op, variable
from graph.errors import PartitaError, did_you_mean
from graph.graph import Graph, require_graph
from graph.node import Node, NodeEntry
from graph.rewrite import Rewriter
from graph.types import Array, TensorType
from partition.fingerprint import fingerprint
from passes.constants import Namer
from passes.infer import infer

Given = Mapping[str, Array]
"""Arrays by the names of the graph's inputs."""

UNITS = {"time": "µs", "memory": "bytes"}
"""What may be won, and the unit in which it is counted."""

MOST = 24
"""How often a whole model is compiled and measured, by default."""

TURNS = 20
"""How often two whole models are run in turn; the shortest time of each counts."""

ROUNDS = 5
"""How often a model is profiled; the shortest time of each op counts."""


@attrs.frozen(slots=True)
class Option:
    """An op in one lower precision."""

    node: str
    precision: str
    error: float
    """How far the answer moves if the op alone is lowered."""
    gain: float


@at_a_device()
def choose_precision(
    graph: Graph,
    inputs: Any,
    tolerance: float = 1e-2,
    device: str | Sequence[str] = "cpu",
    config: Mapping[str, Any] | None = None,
    *,
    precisions: Sequence[str] = ("int8",),
    calibration: str = "minmax",
    win: str = "time",
    lock: Mapping[str, str] | None = None,
    most: int = MOST,
) -> PrecisionPlan:
    """The plan in which as many ops as win something run in a lower precision, and the answer stays within the tolerance.

    `inputs` are the arrays of one call, or a list of such: arrays, tuples or dictionaries by name. The error is the largest
    |a - b| over the largest |b| of an output, against float32 on the same device; it is measured with the whole plan applied.
    `win` is "time" or "memory" (bytes of weights); `lock` gives ops, by names or patterns of names, their precision;
    `calibration` is minmax, percentile or entropy; at most `most` whole models are measured."""
    require_graph(graph)
    _check(tolerance, precisions, calibration, win, most)
    batches = _batches(graph, inputs)
    typed = infer(with_channel_scales(graph), {name: array.shape for name, array in batches[0].items()}, strict=False)
    locked = _locked(typed, lock or {})
    choice = _Choosing(typed, batches, tolerance, device, config, calibration, win)
    ops, errors = [node.name for node in choice.ops], choice.errors((*precisions, *locked.values()))
    gains = choice.gains(precisions)
    options = [
        Option(name, precision, errors[name, precision], gains[name, precision])
        for name in ops for precision in precisions if name not in locked and (name, precision) in errors
    ]
    chosen, reasons, error = choice.choose(options, locked, most)
    if win == "time" and not choice.is_faster(chosen, locked):
        chosen, error = {name: precision for name, precision in locked.items() if precision != KEPT}, choice.measured(locked)
        left = [name for name in ops if name not in locked]
        reasons |= dict.fromkeys(left, "the model as a whole is not faster with what could be lowered")
    rows = {
        node.name: PrecisionRow(
            node.name, str(node.op), chosen.get(node.name, KEPT), reasons[node.name],
            {p: e for (name, p), e in errors.items() if name == node.name},
            {p: g for (name, p), g in gains.items() if name == node.name},
            node.name in locked,
        )
        for node in choice.ops
    }
    return PrecisionPlan(graph.name, fingerprint(graph), rows, choice.ranges, tolerance, error, UNITS[win])


class _Choosing:
    """What is known of a model's ops, found out step by step."""

    def __init__(
        self, graph: Graph, batches: Sequence[Given], tolerance: float, device: Any, config: Any, calibration: str, win: str
    ) -> None:
        self.graph, self.batches, self.tolerance = graph, batches, tolerance
        self.device, self.config, self.win, self.unit = device, config, win, UNITS[win]
        self.ops = lowerable(graph)
        self.probe = _Probe(graph, self.ops)
        self.model = self._compiled(self.probe.graph)
        read = self.probe.reads
        self.ranges: dict[str, Range] = calibrated(lambda: self._seen(read), calibration)
        self.wanted = [self._run(batch) for batch in batches]
        self.refused: dict[tuple[str, str], str] = {}

    def _compiled(self, graph: Graph) -> CompiledModel:
        return compile_model(graph, self.device, self.config)

    def _probed(self, batch: Given, moved: Mapping[str, Array]) -> Any:
        return self.model({**batch, **self.probe.still, **{self.probe.shifts[name]: array for name, array in moved.items()}})

    def _run(self, batch: Given, moved: Mapping[str, Array] | None = None) -> list[Any]:
        return list(self._probed(batch, moved or {}))[: len(self.graph.outputs)]

    def _seen(self, names: Sequence[str]) -> Iterator[Mapping[str, Array]]:
        for batch in self.batches:
            values = list(self._probed(batch, {}))[len(self.graph.outputs) :]
            known = dict(zip(self.probe.seen, values, strict=True))
            yield {name: np.asarray(known[name]) for name in names}

    # -- what each op costs --------------------------------------------------------------------------------

    def errors(self, precisions: Iterable[str]) -> dict[tuple[str, str], float]:
        """How far the answer to the first input moves if one op alone runs in a precision, by op and precision."""
        (seen,) = (values for i, values in enumerate(self._seen(self.probe.seen)) if i == 0)
        errors: dict[tuple[str, str], float] = {}
        for precision in dict.fromkeys(p for p in precisions if p != KEPT):
            for name, result in self._alone(precision, seen, self._taking(precision)).items():
                shift = np.asarray(result, np.float32) - seen[self.graph[name][0].name]
                answer = self._run(self.batches[0], {name: shift})
                errors[name, precision] = distance(answer, self.wanted[0])
        return errors

    def _taking(self, precision: str) -> list[Node]:
        """The ops that ONNX has in a precision; the others are noted."""
        reasons = {node: why_not(node, precision, self.graph.opsets.get("", 1)) for node in self.ops}
        self.refused |= {(node.name, precision): reason for node, reason in reasons.items() if reason is not None}
        return [node for node, reason in reasons.items() if reason is None]

    def _alone(self, precision: str, seen: Mapping[str, Array], ops: Sequence[Node]) -> dict[str, Any]:
        """What each op makes in a precision of the values that it reads in float32. What the device refuses has no result."""
        if not ops:
            return {}
        isolated = _isolated(self.graph, ops, precision, self.ranges)
        given = {f"given{i}": seen[read_by(node).name] for i, node in enumerate(ops)}
        try:
            return dict(zip([node.name for node in ops], self._compiled(isolated)(given), strict=True))
        except PartitaError as error:
            if len(ops) == 1:
                self.refused[ops[0].name, precision] = error.cause
                return {}
        half = len(ops) // 2
        return {**self._alone(precision, seen, ops[:half]), **self._alone(precision, seen, ops[half:])}

    # -- what each op wins ---------------------------------------------------------------------------------

    def gains(self, precisions: Sequence[str]) -> dict[tuple[str, str], float]:
        """What an op wins in a precision, by op and precision."""
        if self.win == "memory":
            return {
                (node.name, precision): bytes_won(node, precision)
                for node in self.ops for precision in precisions if (node.name, precision) not in self.refused
            }
        before = self._times(self.graph)
        gains = {}
        for precision in precisions:
            everything = {node.name: precision for node in self.ops if (node.name, precision) not in self.refused}
            if everything:
                after = self._times(lowered(self.graph, everything, self.ranges))
                gains.update({(name, precision): before.get(name, 0.0) - after.get(name, 0.0) for name in everything})
        return gains

    def _times(self, graph: Graph) -> dict[str, float]:
        """The microseconds of each op. The time of a kernel of several ops is shared out among them."""
        model, names = self._compiled(graph), {node.name for node in self.ops}
        rounds: list[dict[str, float]] = []
        parts = {(kernel.symbol, kernel.nodes[0]): [name for name in kernel.nodes if name in names] for kernel in model.kernels()}
        for _ in range(ROUNDS):
            times: dict[str, float] = {}
            for row in model.profile(dict(self.batches[0])).rows:
                shared = parts.get((row.exec_type, row.node), [row.node] if row.node in names else [])
                for name in shared:
                    times[name] = times.get(name, 0.0) + row.real_us / len(shared)
            rounds.append(times)
        return {name: min(times.get(name, 0.0) for times in rounds) for name in names}

    # -- what is chosen ------------------------------------------------------------------------------------

    def choose(
        self, options: Sequence[Option], locked: Mapping[str, str], most: int
    ) -> tuple[dict[str, str], dict[str, str], float]:
        """The precisions of ops that are lowered, the reason of every op, and the error of the whole."""
        chosen = dict(locked)
        error = self.measured(chosen)
        if error > self.tolerance:
            raise AcceleratorError(
                f"what is locked moves the answer by {error:.2g} already, and {self.tolerance:g} is allowed",
                where=f"graph {self.graph.name!r}", remedy="Lock fewer ops, or allow more",
            )
        reasons = {node.name: self._refusal(node.name, options) for node in self.ops}
        reasons |= dict.fromkeys(locked, "said from outside")
        later: dict[str, list[Option]] = {}
        for option in sorted(filter(self._is_worth_it, options), key=_gain, reverse=True):
            later.setdefault(option.node, []).append(option)
        queue, left = sorted([choices.pop(0) for choices in later.values()], key=_benefit, reverse=True), most
        while queue:
            good, bad, size, off = 0, len(queue) + 1, len(queue), np.inf
            while bad - good > 1 and left:
                measured, left = self.measured(chosen | _precisions(queue[:size])), left - 1
                if measured <= self.tolerance:
                    good, error = size, measured
                else:
                    bad, off = size, measured
                size = (good + bad) // 2
            chosen |= _precisions(queue[:good])
            reasons |= {
                option.node: f"it wins {amount(option.gain, self.unit)}, and alone moves the answer by {option.error:.2g}"
                for option in queue[:good]
            }
            rejected, queue = queue[good:bad], queue[bad:]
            if bad - good > 1:
                reasons |= {option.node: f"not tried: {most} models were measured" for option in (*rejected, *queue)}
                break
            for option in rejected:
                reasons[option.node] = f"with it in {option.precision} the whole answer is off by {off:.2g}"
                queue += later[option.node][:1]
                del later[option.node][:1]
        return {name: precision for name, precision in chosen.items() if precision != KEPT}, reasons, error

    def _is_worth_it(self, option: Option) -> bool:
        return option.gain > 0 and option.error <= self.tolerance

    def _refusal(self, name: str, options: Sequence[Option]) -> str:
        """Why an op is not lowered at all, by each of its options."""
        own = [option for option in options if option.node == name]
        refused = [f"{precision}: {why}" for (node, precision), why in self.refused.items() if node == name]
        costly = [f"{o.precision} alone moves the answer by {o.error:.2g}" for o in own if o.error > self.tolerance]
        useless = [f"{o.precision} wins nothing" for o in own if o.error <= self.tolerance and o.gain <= 0]
        return "; ".join([*refused, *costly, *useless]) or "no lower precision was asked for"

    def is_faster(self, chosen: Mapping[str, str], locked: Mapping[str, str]) -> bool:
        """Is the model faster in the chosen precisions than with those alone that are locked?"""
        if chosen.items() <= locked.items():
            return True
        batch, models = dict(self.batches[0]), [self._lowered(precisions) for precisions in (chosen, locked)]
        times: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for model, taken in zip(models, times, strict=True):
                start = perf_counter()
                model(batch)
                taken.append(perf_counter() - start)
        return min(times[0]) < min(times[1])

    def _lowered(self, precisions: Mapping[str, str]) -> CompiledModel:
        return self._compiled(infer(lowered(self.graph, precisions, self.ranges), strict=False))

    def measured(self, precisions: Mapping[str, str]) -> float:
        """How far the model in these precisions is from float32, over all inputs."""
        if not any(precision != KEPT for precision in precisions.values()):
            return 0.0
        model = self._lowered(precisions)
        return max(distance(list(model(dict(batch))), wanted) for batch, wanted in zip(self.batches, self.wanted, strict=True))


class _Probe:
    """The graph with a number added to each result of an op, which is zero or says how the op would err; it also gives the
    values that the ops read and make."""

    def __init__(self, graph: Graph, ops: Sequence[Node]) -> None:
        rewriter, namer = Rewriter(graph), Namer(graph)
        self.shifts: dict[str, str] = {}
        """The inputs that are added to the results of ops, by op."""
        self.still: dict[str, Array] = {}
        """Zeros for all of them."""
        results: dict[NodeEntry, NodeEntry] = {}
        extra: list[Node] = []
        for node in graph.nodes:
            kept = rewriter.keep(node)
            if node in set(ops):
                shift = variable(namer(f"{node.name}_shift"), type=node.output_types[0])
                extra.append(shift)
                self.shifts[node.name] = shift.name
                self.still[shift.name] = np.zeros(_sizes(node[0]), np.float32)
                name = namer(f"{node.name}_moved")
                moved = op("Add", kept[0], shift, name=name, output_names=(name,))
                results[node[0]] = kept[0]
                rewriter.replace(node[0], moved.evolve(output_types=node.output_types, affinity=node.affinity)[0])
        read = [entry for node in ops for entry in moved_from(read_by(node))]
        self.reads = list(dict.fromkeys(entry.name for entry in read))
        """The values that ops read, and what those have their numbers from."""
        seen = {entry.name: rewriter.value(entry) for entry in read}
        seen |= {entry.name: kept for entry, kept in results.items()}
        self.seen = list(seen)
        """The values that are outputs after the graph's own."""
        names = [*graph.output_names, *(namer(f"{name}_seen") for name in self.seen)]
        outputs = [*map(rewriter.value, graph.outputs), *seen.values()]
        self.graph = rewriter.finish(outputs=outputs, output_names=names, inputs=[*graph.inputs, *extra], nodes=())


def _isolated(graph: Graph, ops: Sequence[Node], precision: str, ranges: Mapping[str, Range]) -> Graph:
    """Ops in a lower precision, each of an input of its own in float32."""
    given = [variable(f"given{i}", type=read_by(node).type) for i, node in enumerate(ops)]
    nodes = [node.evolve(inputs=(x[0], *node.inputs[1:]), after=()) for node, x in zip(ops, given, strict=True)]
    alone = Graph([node[0] for node in nodes], given, f"{graph.name}_alone", graph.opsets)
    own = {x.name: ranges[moved_from(read_by(node))[-1].name] for node, x in zip(ops, given, strict=True)}
    return infer(lowered(alone, {node.name: precision for node in nodes}, own), strict=False)


def read_by(node: Node) -> NodeEntry:
    """The value that a product reads."""
    (value, *_) = node.reads
    return value


def _gain(option: Option) -> float:
    return option.gain


def _benefit(option: Option) -> float:
    """What is won for each error."""
    return option.gain / max(option.error, 1e-9)


def _precisions(options: Iterable[Option]) -> dict[str, str]:
    return {option.node: option.precision for option in options}


def _sizes(entry: NodeEntry) -> tuple[int, ...]:
    known = entry.type
    if not isinstance(known, TensorType) or not known.is_static or known.shape is None:
        raise AcceleratorError(
            f"the size of {entry.name!r} depends on values", where="choose_precision", remedy="Fix the sizes of the inputs"
        )
    return tuple(int(size or 0) for size in known.shape)


def _batches(graph: Graph, inputs: Any) -> list[Given]:
    """Each call's arrays by name."""
    names = [node.name for node in graph.inputs]
    calls = inputs if isinstance(inputs, list) else [inputs]

    def by_name(call: Any) -> Given:
        arrays = call if isinstance(call, (Mapping, tuple)) else (call,)
        given = dict(arrays) if isinstance(arrays, Mapping) else dict(zip(names, arrays))
        return {name: np.asarray(array) for name, array in given.items()}

    batches = [by_name(call) for call in calls]
    for batch in batches:
        if batch.keys() != set(names):
            missing = sorted(set(names) - batch.keys()) or sorted(batch.keys() - set(names))
            raise AcceleratorError(
                f"the inputs given are not those of the graph: {missing[0]!r}", where=f"graph {graph.name!r}",
                remedy=f"Give arrays for {', '.join(names)}, or a list of such",
            )
    if not batches:
        raise AcceleratorError("no inputs are given", where="choose_precision", remedy="Give those of one call at least")
    return batches


def _locked(graph: Graph, lock: Mapping[str, str]) -> dict[str, str]:
    """The precision of each op that a name or a pattern gives one."""
    if not isinstance(lock, Mapping):
        cause = f"it gives precisions by the names of ops, not {lock!r:.80}"
        raise AcceleratorError(cause, where="choose_precision, option lock", remedy='Write {"conv1": "float32"}')
    locked: dict[str, str] = {}
    names = [node.name for node in lowerable(graph)]
    for pattern, precision in lock.items():
        check_precision(precision, f"lock[{pattern!r}]")
        fitting = [name for name in names if name == pattern] or _matching(pattern, names)
        if not fitting:
            raise AcceleratorError(
                f"no op that may be lowered is called {pattern!r}", where="choose_precision, option lock",
                remedy=did_you_mean(pattern, names) or "Products with constant float32 weights may be lowered",
            )
        locked.update(dict.fromkeys(fitting, precision))
    return locked


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        where, remedy = "choose_precision, option lock", "Give a name, or a pattern of names"
        raise AcceleratorError(f"{pattern!r} is no pattern: {error}", where=where, remedy=remedy) from error


def _check(tolerance: float, precisions: Sequence[str], calibration: str, win: str, most: int) -> None:
    if not isinstance(most, int) or most < 1:
        raise AcceleratorError(f"most is {most!r}", where="choose_precision", remedy="Give a whole number from 1 on")
    if isinstance(precisions, str) or not isinstance(precisions, Sequence):
        cause = f"precisions are a list of names, not {precisions!r:.80}"
        raise AcceleratorError(cause, where="choose_precision", remedy='Write ["int8"]')
    if not isinstance(tolerance, (int, float)) or not tolerance >= 0:
        raise AcceleratorError(f"tolerance is {tolerance!r}", where="choose_precision", remedy="Give a number from 0 on")
    offered = {"precisions": (precisions, PRECISIONS), "calibration": ([calibration], METHODS), "win": ([win], tuple(UNITS))}
    for option, (given, known) in offered.items():
        for value in given:
            if value not in known:
                remedy = did_you_mean(str(value), known) or f"There are {', '.join(known)}"
                raise AcceleratorError(f"there is no {value!r}", where=f"choose_precision, option {option}", remedy=remedy)
