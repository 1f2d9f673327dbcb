"""DynamicQuantizeLinear: floats as bytes whose scale and zero point are computed from the floats themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Value,
    float32,
    int32,
    maximum,
    minimum,
    nearest,
    select,
)
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted
from partita.accelerators.tvm.kernels.shared.row import SUMS, Row, join_lanes
from partita.accelerators.tvm.machine.machine import Machine

LARGEST = 255
"""The largest byte."""


def dynamic_bytes(body: Body, machine: Machine) -> Draft | None:
    """The kernel for the op alone; None for any other body."""
    dynamic = Dynamic.of(body)
    if dynamic is None:
        return None
    kernel, row = dynamic.kernel, Row(dynamic.count, machine.lanes)
    low, high = (kernel.name_value(how, _extreme(kernel, dynamic.x, row, how)) for how in ("min", "max"))
    scale, point = dynamic.scaled(low, high)
    dynamic.tell(scale, point)
    if 0 in dynamic.results:

        def step(column: Value, lanes: int) -> None:
            dynamic.round(column, lanes, scale, point)

        row.each(kernel, step)  # type: ignore[arg-type]
    return dynamic.problem.draft(kernel, "dynamic bytes")


@attrs.frozen(slots=True, eq=False)
class Dynamic:
    """The parts of a kernel for the op."""

    problem: Problem
    kernel: Kernel
    count: int
    """Number of elements."""
    x: Buffer
    results: Mapping[int, Buffer]
    """The bytes, their scale and their zero point, by output number, as far as they are used."""

    @classmethod
    def of(cls, body: Body) -> Dynamic | None:
        """The kernel for a body with this op alone; None for any other body."""
        node, problem = body.ops[0], Problem.of(body)
        if len(body.ops) != 1 or node.op != "DynamicQuantizeLinear" or node.domain or len(problem.inputs) != 1:
            return None
        count = math.prod(shape_of(problem.inputs[0]))
        if not count or element_of(problem.inputs[0]) != "float32":
            return None
        sizes = [(count,) if entry.index == 0 else (1,) for entry in problem.outputs]
        kernel, (x,), outputs = problem.kernel("dynamic_bytes", {0: (count,)}, sizes)
        return cls(problem, kernel, count, x, {e.index: buffer for e, buffer in zip(problem.outputs, outputs, strict=True)})

    def scaled(self, low: Value, high: Value) -> tuple[Value, Value]:
        """The scale and the zero point, as floats, from the minimum and maximum of the elements and zero."""
        name = self.kernel.name_value
        span = name("span", high - low)
        scale = name("scale", select(span.equals(0.0), 1.0, span) / float(LARGEST))
        return scale, name("point", nearest(minimum(maximum(0.0 - low / scale, 0.0), float(LARGEST))))

    def tell(self, scale: Value, point: Value) -> None:
        """Writes the scale and the zero point."""
        for number, value in ((1, scale), (2, point.cast(int32))):
            if number in self.results:
                self.results[number][0] = value.cast(self.results[number].element)

    def round(self, first: Value, lanes: int, scale: Value, point: Value) -> None:
        """Quantizes a vector: elements over the scale, rounded to nearest, plus the zero point."""
        bounds = [(bound - point).spread(lanes) for bound in (0.0, float(LARGEST))]
        scaled = self.x.vector(lanes, first) / scale.spread(lanes)
        whole = nearest(minimum(maximum(scaled, bounds[0]), bounds[1])).cast(int32)
        self.results[0][first] = (whole + point.cast(int32).spread(lanes)).cast(self.results[0].element)


def _extreme(kernel: Kernel, x: Buffer, row: Row, how: str) -> Value:
    """The minimum or maximum of the elements and zero; NaN is ignored, as in onnxruntime."""
    join = minimum if how == "min" else maximum
    lanes, step = row.lanes, row.lanes * SUMS
    best = kernel.registers(f"{how}s", float32, (SUMS,), lanes)
    for i in range(SUMS):
        best[i] = 0.0
    count = counted(row.size)
    with kernel.loop(count // step, "v") as v:
        for i in range(SUMS):
            best[i] = join(x.vector(lanes, v * step + i * lanes), best[i])
    for i in range(1, SUMS):
        best[0] = join(best[0], best[i])
    result = kernel.stack(f"{how}_of_all", float32, (1,))
    result[0] = join_lanes(how, best.buffer, lanes)
    rest = count % step
    with kernel.loop(rest, "e") as e:
        result[0] = join(x[count - rest + e], result[0])
    return result[0]
