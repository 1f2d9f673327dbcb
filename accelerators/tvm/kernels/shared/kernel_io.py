"""A body as the author of a kernel sees it: its inputs and outputs, and the draft of the kernel that computes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, element_named, emit, symbols_of
from partita.accelerators.tvm.kernels.shared.element_access import Shape
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import NodeEntry
from partita.graph.types import Array


@attrs.frozen(slots=True)
class GradualPack:
    """A layout for arrays of any element type, converted piece by piece: no converted copy of the full array is made."""

    pack: Callable[[Array], Array]

    def __call__(self, array: Array) -> Array:
        """The array laid out."""
        return self.pack(array)


@attrs.frozen(slots=True, eq=False)
class Draft:
    """A drafted kernel."""

    function: Any
    """The scheduled TensorIR function: the body's inputs, then its outputs, under their own shapes."""
    schedule: str
    """The schedule's name."""
    packs: Mapping[int, Callable[[Array], Array]] = attrs.field(factory=dict)
    """Functions that lay out weights as the kernel reads them, by input number."""
    weights: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """Shapes of weights that the kernel reads under another shape than the body's, by input number."""
    symbols: tuple[str | Extent, ...] = ()
    """The sizes passed to the function between its inputs and its outputs, in order: names of symbols, and extents."""
    kernel: Kernel | None = None
    """The kernel in the kernel language; None for one made by a schedule."""


Pack = Callable[[Array], Array]


@attrs.frozen(slots=True, eq=False)
class Problem:
    """The inputs of a kernel, and the outputs that it computes."""

    body: Body
    """The ops."""
    inputs: tuple[NodeEntry, ...]
    """The values, then the weights, in the order of the kernel's arguments."""
    outputs: tuple[NodeEntry, ...]
    """The results, in the order of the arguments after the inputs."""
    positions: Mapping[NodeEntry, int]
    """The index of each input."""

    @classmethod
    def of(cls, body: Body) -> Problem:
        """The problem of a body."""
        inputs = tuple([node[0] for node in body.graph.inputs])
        return cls(body, inputs, tuple(body.graph.outputs), {entry: i for i, entry in enumerate(inputs)})

    def position(self, entry: NodeEntry | None) -> int | None:
        """The index of the input that a value is; None if it is not an input."""
        return None if entry is None else self.positions.get(entry)

    def value_at(self, entry: NodeEntry | None) -> int | None:
        """The index of the input that a value is; None if it is not an input, or a constant of the model."""
        position = self.position(entry)
        return position if position is not None and position < self.body.values else None

    def weight_at(self, entry: NodeEntry | None) -> int | None:
        """The index of the input that a constant of the model is; None if it is not such an input."""
        position = self.position(entry)
        return position if position is not None and position >= self.body.values else None

    def kernel(
        self, name: str, shapes: Mapping[int, Shape] | None = None, results: Sequence[Shape] | None = None
    ) -> tuple[Kernel, list[Buffer], list[Buffer]]:
        """A kernel with the arguments x0, x1, … for the inputs and y0, y1, … for the outputs.

        `shapes` of inputs and `results` of outputs replace the body's own."""
        kernel = Kernel(name)
        given = [
            kernel.input(f"x{i}", element_named(element_of(entry)), (shapes or {}).get(i, shape_of(entry)))
            for i, entry in enumerate(self.inputs)
        ]
        wanted = list(map(shape_of, self.outputs)) if results is None else results
        outputs = [
            kernel.output(f"y{i}", element_named(element_of(entry)), shape)
            for i, (entry, shape) in enumerate(zip(self.outputs, wanted, strict=True))
        ]
        return kernel, given, outputs

    def draft(self, kernel: Kernel, schedule: str, packs: Mapping[int, Pack] | None = None) -> Draft:
        """The draft of the kernel; `packs` lays out its weights.

        Values have the body's shapes, whatever shapes the kernel was written for; weights have the kernel's."""
        written = [argument.sizes for argument in kernel.arguments]
        weights = {i: written[i] for i in range(self.body.values, len(self.inputs))}
        shapes = [weights.get(i, shape_of(entry)) for i, entry in enumerate((*self.inputs, *self.outputs))]
        if list(map(math.prod, written)) != list(map(math.prod, shapes)):
            raise CompileError(f"kernel {kernel.name} is written for {written}, and its values are {shapes}")
        symbols = symbols_of(kernel, shapes)
        return Draft(emit(kernel, shapes), schedule, packs or {}, weights, symbols, kernel)
