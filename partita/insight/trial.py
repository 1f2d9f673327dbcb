"""One cut on its device with the trusted run's values for its inputs: right, or wrong in which way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accelerators.arrays.layout import HOST
from accelerators.building.units import Unit, compile_unit
from accelerators.errors import CompileError, RunError
from accelerators.interface.device_list import Device
from graph.graph import Graph
from graph.nested import graphs_in
from graph.node import NodeEntry
from graph.ops.schemas import is_random
from partita.by_layer import Layer, is_numeric, layer_of
from partita.compare import Difference, compare
from partita.insight.cutting import Cut, Cutter
from partita.insight.trusted import is_finite

RIGHT, WRONG, NAN, INFINITE, VARIES, RAISES, UNCOMPILED = (
    "right", "wrong numbers", "NaN", "infinity", "not deterministic", "fails while it runs", "does not compile"
)
"""What may come of a trial."""

NUMBERS = (WRONG, NAN, INFINITE)
"""What concerns the numbers themselves."""


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


@attrs.frozen(slots=True)
class Measure:
    """What counts as wrong."""

    tolerance: float | None = None
    """The largest error, max|a - b| over max|b|; None: that of the element types."""
    precision: str = "f32"
    """The precision that the device was asked for, which widens the error that the element types allow."""
    runs: int = 2
    """How often each graph runs; the runs have to agree bit by bit."""


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

    def add(self, trial: Trial) -> None:
        """A group whose trial was made elsewhere."""
        self.tried[trial.members] = trial

    def __call__(self, members: Sequence[int] | set[int]) -> Trial:
        """Compile these ops alone, and run them on the values that the trusted run gives them."""
        key = tuple(sorted(members))
        if key not in self.tried:
            self.tried[key] = self._tried(self.cutter.cut(key))
        return self.tried[key]

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
    if not all(_same_bits(outputs, other) for other in again):
        return Trial(members, VARIES, np.inf, layers, "two runs on the same inputs differ")
    return Trial(members, _kind(outputs, expected, excess), excess, layers)


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
