"""Trial of one cut on its device, with the trusted run's values as inputs: right, or the kind of error."""

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
from partita.passes.infer import infer
from partita.passes.infer.shape_operands import deciding, deciding_inputs

RIGHT, WRONG, NAN, INFINITE, VARIES, RAISES, UNCOMPILED = (
    "right", "wrong numbers", "NaN", "infinity", "not deterministic", "fails while it runs", "does not compile"
)
"""Outcomes of a trial."""

NUMBERS = (WRONG, NAN, INFINITE)
"""Outcomes that concern the values."""


SHIFTED = 0.1
"""Fraction of an op's integers that may be off by a rounding step."""

MANY = 32
"""Minimum number of integers for that test."""


@attrs.frozen(slots=True, eq=False)
class Trial:
    """Outcome of running one graph on a device."""

    members: tuple[int, ...]
    """Its ops, as indices into the graph from which it was cut."""
    kind: str
    """RIGHT, or the kind of error."""
    excess: float = 0.0
    """Largest error of an output relative to the allowed one: more than 1 is wrong."""
    layers: tuple[Layer, ...] = ()
    """Comparison of each output with the trusted one."""
    message: str = ""
    """Error message of the device, if it failed."""
    hides: bool = False
    """True if it is right only because quantized values may be off by one step."""


@attrs.frozen(slots=True)
class Measure:
    """Criteria for an error."""

    tolerance: float | None = None
    """Largest allowed error, max|a - b| over max|b|; None: that of the element types."""
    precision: str = "f32"
    """The device's configured precision, which increases the error allowed by the element types."""
    runs: int = 2
    """Number of runs of each graph; they have to agree bit by bit."""


class _Apart:
    """The ops of a graph side by side, none of which reads another's result."""

    def __init__(self, ops: Sequence[Node], known: Mapping[NodeEntry, Any]) -> None:
        self.ops, self.known = ops, known
        self.reads: list[NodeEntry] = []
        """Value of the graph for each input."""
        self.makes: list[NodeEntry] = []
        """Value of the graph for each output."""
        self.members: list[int] = []
        """Index of the op of each output."""
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
        """Replacement for a value: a constant for sizes, else an input."""
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
    """Trial of a compiled subgraph."""
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
        """Outcome of each group."""
        self.whole = 0
        """Number of compilations of the whole with its ops apart."""

    def add(self, trial: Trial) -> None:
        """Add a trial that was made elsewhere."""
        self.tried[trial.members] = trial

    def __call__(self, members: Sequence[int] | set[int]) -> Trial:
        """Compile these ops alone, and run them on the trusted run's values."""
        key = tuple(sorted(members))
        if key not in self.tried:
            self.tried[key] = self._tried(self.cut(key))
        return self.tried[key]

    def cut(self, members: Sequence[int]) -> Cut:
        """These ops as a graph. If sizes depend on input values, the graph has the trusted run's static sizes, since otherwise no
        device could compile it."""
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
        """Error of each op by itself relative to the allowed one, from one graph in which every op reads the trusted run's
        values; empty if the device cannot compile that."""
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
        """The trusted values of its outputs."""
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
    """True if an op of the graph, or of a body inside, draws random numbers."""
    return any(is_random(node) for inner in graphs_in(graph) for node in inner.nodes if node.is_op)


def _run(unit: Unit, inputs: Sequence[Any]) -> list[Any]:
    """The outputs; the device gets copies of the inputs, so that it cannot change those of others."""
    given = [np.array(value) if isinstance(value, np.ndarray) else value for value in inputs]
    if unit.memory == HOST:
        return [np.array(value) if isinstance(value, np.ndarray) else value for value in unit.run(given, None)]
    values = unit.run([unit.compiled.upload(value) for value in given], None)
    return [unit.compiled.download(value) for value in values]


def _excess(difference: Difference) -> float:
    """The error relative to the allowed one."""
    if not difference.worst:
        return 0.0
    return difference.worst / difference.tolerance if difference.tolerance else float("inf")


def _shifted(a: Any, b: Any) -> float:
    """More than 1 if too many integers of a single op are off by a step for roundings to explain it."""
    if not isinstance(b, np.ndarray) or b.dtype.name not in STEPS or b.size < MANY or np.shape(a) != b.shape:
        return 0.0
    return float((np.asarray(a) != b).mean()) / SHIFTED


def _hides(graph: Graph, differences: Sequence[Difference], expected: Sequence[Any], measure: Measure) -> bool:
    """True if an error is larger than would be allowed without quantization."""
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
