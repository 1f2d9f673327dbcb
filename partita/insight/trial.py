"""One cut on its device with the trusted run's values for its inputs: right, or wrong in which way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import HOST
from partita.accelerators.building.units import Unit, compile_unit
from partita.accelerators.errors import CompileError, RunError
from partita.accelerators.interface.device_list import Device
from partita.by_layer import Layer, is_numeric, layer_of
from partita.compare import STEPS, Difference, compare, tolerance_of
from partita.graph.build import constant
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import CONSTANT, Node, NodeEntry
from partita.graph.ops.schemas import is_random
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType
from partita.insight.cutting import Cut, Cutter
from partita.insight.trusted import is_finite
from partita.passes.deciding import deciding, deciding_inputs
from partita.passes.infer import infer

RIGHT, WRONG, NAN, INFINITE, VARIES, RAISES, UNCOMPILED = (
    "right", "wrong numbers", "NaN", "infinity", "not deterministic", "fails while it runs", "does not compile"
)
"""What may come of a trial."""

NUMBERS = (WRONG, NAN, INFINITE)
"""What concerns the numbers themselves."""


SHIFTED = 0.1
"""The part of an op's integers that roundings to another step explain."""

MANY = 32
"""So many of them can be told apart."""


@attrs.frozen(slots=True, eq=False)
class Trial:
    """What came of running one graph on a device."""

    members: tuple[int, ...]
    """The ops that it has, as numbers in the graph that it was cut from."""
    kind: str
    """RIGHT, or the way in which it is wrong."""
    excess: float = 0.0
    """The largest error of an output over what is allowed there: more than 1 is wrong."""
    layers: tuple[Layer, ...] = ()
    """How far each output is from the trusted one."""
    message: str = ""
    """What the device said, where it failed."""
    hides: bool = False
    """True if it is right only because values that are rounded to few steps may be off by one."""


@attrs.frozen(slots=True)
class Measure:
    """What counts as wrong."""

    tolerance: float | None = None
    """The largest error, max|a - b| over max|b|; None: that of the element types."""
    precision: str = "f32"
    """The precision that the device was asked for, which widens the error that the element types allow."""
    runs: int = 2
    """How often each graph runs; the runs have to agree bit by bit."""


class _Apart:
    """The ops of a graph side by side, none of which reads another's result."""

    def __init__(self, ops: Sequence[Node], known: Mapping[NodeEntry, Any]) -> None:
        self.ops, self.known = ops, known
        self.reads: list[NodeEntry] = []
        """For each input the value that it stands for."""
        self.makes: list[NodeEntry] = []
        """For each output the value that it is."""
        self.members: list[int] = []
        """And the number of its op."""
        self._inputs: dict[tuple[NodeEntry, bool], Node] = {}

    def graph(self, whole: Graph) -> Graph:
        """The graph of these ops."""
        outputs: list[NodeEntry] = []
        for number, op in enumerate(self.ops):
            sizes = deciding(op)
            inputs = [None if entry is None else self._given(entry, entry in sizes, bool(sizes)) for entry in op.inputs]
            captures = [self._given(entry, False, False) for entry in op.captures]
            apart = op.evolve(inputs=tuple(inputs), captures=tuple(captures), after=())
            there = [(old, new) for old, new in zip(op.outputs, apart.outputs, strict=True) if old.name]
            self.makes += [old for old, _ in there]
            self.members += [number] * len(there)
            outputs += [new for _, new in there]
        self.reads = [entry for (entry, _), node in self._inputs.items() if node.is_variable]
        variables = [node for node in self._inputs.values() if node.is_variable]
        graph = Graph(outputs, variables, whole.name, whole.opsets, output_names=[f"value{i}" for i in range(len(outputs))])
        return infer(graph, strict=False)

    def _given(self, entry: NodeEntry, is_size: bool, is_static: bool) -> NodeEntry:
        """What stands for a value: a constant for sizes, else an input."""
        if entry.node.value is not None:
            return entry
        key = entry, is_size or is_static
        if key not in self._inputs:
            value, name = np.asarray(self.known[entry]), f"value{len(self._inputs)}/given"
            known = TensorType(value.dtype.name, value.shape) if is_static and value.dtype.kind not in "OSU" else entry.type
            node = constant(value, name=name) if is_size else Node(name, None, output_names=(name,), output_types=(known,))
            self._inputs[key] = node
        return self._inputs[key][0]


def tried_unit(unit: Unit, inputs: Sequence[Any], expected: Sequence[Any], measure: Measure) -> Trial:
    """The trial of a subgraph that is compiled."""
    members = tuple(range(len(unit.ops)))
    return _tried(unit, members, inputs, expected, measure)


class Trials:
    """Tries groups of one subgraph's ops on the subgraph's device, each group once."""

    def __init__(
        self,
        body: Graph,
        device: Device,
        config: Mapping[str, Any],
        known: Mapping[NodeEntry, Any],
        measure: Measure,
    ) -> None:
        self.cutter = Cutter(body)
        self.device = device
        self.config = config
        self.known = known
        """The trusted run's value of each of the body's values."""
        self.measure = measure
        self.tried: dict[tuple[int, ...], Trial] = {}
        """What came of each group."""
        self.whole = 0
        """How often the whole was compiled with its ops apart."""

    def add(self, trial: Trial) -> None:
        """A group whose trial was made elsewhere."""
        self.tried[trial.members] = trial

    def __call__(self, members: Sequence[int] | set[int]) -> Trial:
        """Compile these ops alone, and run them on the values that the trusted run gives them."""
        key = tuple(sorted(members))
        if key not in self.tried:
            self.tried[key] = self._tried(self.cut(key))
        return self.tried[key]

    def cut(self, members: Sequence[int]) -> Cut:
        """These ops as a graph. Where sizes follow from values that it is given, it is of the trusted run's sizes alone, since no
        device could compile it before it knows them."""
        cut = self.cutter.cut(members)
        frozen = {node: np.asarray(self.known[entry]) for node, entry in zip(cut.graph.inputs, cut.reads, strict=True)}
        sizes = deciding_inputs(cut.graph)
        if not sizes:
            return cut

        rewriter = Rewriter(cut.graph)
        for node in cut.graph.nodes:
            rewriter.keep(node, node.evolve(op=CONSTANT, value=frozen[node]) if node in sizes else None)
        left = [(node, entry) for node, entry in zip(cut.graph.inputs, cut.reads, strict=True) if node not in sizes]
        graph = rewriter.finish(inputs=[node for node, _ in left])
        shapes = {node.name: frozen[node].shape for node, _ in left if isinstance(node[0].type, TensorType)}
        return attrs.evolve(cut, graph=infer(graph, shapes, strict=False), reads=tuple(entry for _, entry in left))

    def alone(self) -> list[float]:
        """Each op's own error over what is allowed, from one graph in which every op reads the trusted run's values; nothing
        where the device does not compile that."""
        seen = _Apart(self.cutter.ops, self.known)
        self.whole += 1
        try:
            graph = seen.graph(self.cutter.graph)
            unit = compile_unit("each op alone", self.device, graph, self.config)
            outputs = _run(unit, [self.known[entry] for entry in seen.reads])
        except PartitaError:
            return []
        excesses = [0.0] * len(self.cutter.ops)
        expected = [self.known[entry] for entry in seen.makes]
        differences = compare(graph, outputs, expected, self.measure.tolerance, self.measure.precision, inner=True)
        for member, difference, a, b in zip(seen.members, differences, outputs, expected, strict=True):
            excesses[member] = max(excesses[member], _excess(difference), _shifted(a, b))
        return excesses

    def _tried(self, cut: Cut) -> Trial:
        try:
            unit = compile_unit(f"{cut.ops[0].name}...", self.device, cut.graph, self.config)
        except CompileError as error:
            return Trial(cut.members, UNCOMPILED, np.inf, message=error.cause)
        return _tried(unit, cut.members, self.inputs(cut), self.expected(cut), self.measure)

    def inputs(self, cut: Cut) -> list[Any]:
        """The trusted values that the cut reads."""
        return [self.known[entry] for entry in cut.reads]

    def expected(self, cut: Cut) -> list[Any]:
        """The trusted values that it has to make."""
        return [self.known[entry] for entry in cut.makes]


def _tried(
    unit: Unit, members: tuple[int, ...], inputs: Sequence[Any], expected: Sequence[Any], measure: Measure
) -> Trial:
    try:
        outputs = _run(unit, inputs)
        again = [_run(unit, inputs) for _ in range(measure.runs - 1)]
    except RunError as error:
        return Trial(members, RAISES, np.inf, message=error.cause)
    if draws_numbers(unit.body):
        return Trial(members, RIGHT, message="it draws random numbers, which are not compared")
    layers = tuple(
        layer_of(entry.name, str(entry.node.op), True, a, b)
        for entry, a, b in zip(unit.body.outputs, outputs, expected, strict=True) if is_numeric(a) and is_numeric(b)
    )
    differences = compare(unit.body, outputs, expected, measure.tolerance, measure.precision, inner=True)
    excess = max(map(_excess, differences), default=0.0)
    if len(members) == 1:
        excess = max([excess, *map(_shifted, outputs, expected)])
    if not all(_same_bits(outputs, other) for other in again):
        return Trial(members, VARIES, np.inf, layers, "two runs on the same inputs differ")
    hides = _hides(unit.body, differences, expected, measure)
    return Trial(members, _kind(outputs, expected, excess), excess, layers, hides=hides)


def draws_numbers(graph: Graph) -> bool:
    """Does an op of the graph, or of a body inside, draw random numbers?"""
    return any(is_random(node) for inner in graphs_in(graph) for node in inner.nodes if node.is_op)


def _run(unit: Unit, inputs: Sequence[Any]) -> list[Any]:
    """The outputs; the device gets copies, so that it cannot change what others are given."""
    given = [np.array(value) if isinstance(value, np.ndarray) else value for value in inputs]
    if unit.memory == HOST:
        return [np.array(value) if isinstance(value, np.ndarray) else value for value in unit.run(given, None)]
    values = unit.run([unit.compiled.upload(value) for value in given], None)
    return [unit.compiled.download(value) for value in values]


def _excess(difference: Difference) -> float:
    """The error over what is allowed."""
    if not difference.worst:
        return 0.0
    return difference.worst / difference.tolerance if difference.tolerance else float("inf")


def _shifted(a: Any, b: Any) -> float:
    """More than 1 if so many integers of a single op are off by a step that no rounding explains it."""
    if not isinstance(b, np.ndarray) or b.dtype.name not in STEPS or b.size < MANY or np.shape(a) != b.shape:
        return 0.0
    return float((np.asarray(a) != b).mean()) / SHIFTED


def _hides(graph: Graph, differences: Sequence[Difference], expected: Sequence[Any], measure: Measure) -> bool:
    """True if an error is larger than what would be allowed if nothing were rounded to few steps."""
    for entry, difference, value in zip(graph.outputs, differences, expected, strict=True):
        own = tolerance_of(entry, value, measure.precision, rounded=False)
        if own < difference.worst and (measure.tolerance is None or measure.tolerance < difference.worst):
            return True
    return False


def _kind(outputs: Sequence[Any], expected: Sequence[Any], excess: float) -> str:
    if excess <= 1:
        return RIGHT
    broken = [a for a, b in zip(outputs, expected, strict=True) if is_finite(b) and not is_finite(a)]
    if any(np.isnan(array.astype(np.float64)).any() for array in broken):
        return NAN
    return INFINITE if broken else WRONG


def _same_bits(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(_same(a, b) for a, b in zip(first, second, strict=True))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and _same_bits(a, b)
    if not isinstance(a, np.ndarray) or a.dtype.hasobject:
        return bool(np.all(a == b))
    return isinstance(b, np.ndarray) and a.tobytes() == b.tobytes()
