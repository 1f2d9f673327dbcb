"""Shapes that an op implies for its inputs, from its parameters and its other inputs.

They allow networks with enough such ops, as convolutions, to be loaded without given shapes and without weights."""

from __future__ import annotations

import math
from collections.abc import Callable

from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.types import Dim

__all__ = ["hints"]

Shape = tuple[Dim, ...]
Known = Callable[[int], Shape | None]
"""Returns the known shape of input number i."""
Rule = Callable[[Attributes, Known], list[Shape | None]]


def hints(op: str, params: Attributes, known: Known) -> list[Shape | None]:
    """A shape per leading input; None if the op implies nothing."""
    rule = _RULES.get(op)
    return rule(params, known) if rule is not None else []


def _at(shape: Shape | None, axis: int) -> Dim:
    """The size along an axis, or None."""
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _convolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    rank = len(kernel) + 2
    if params.string("layout", "NC").endswith("C") and "layout" in params:
        return [(None,) * rank, (None,) * rank, (filters,)]
    depth, channels = _at(known(1), 1), _at(known(0), 1)
    depth = channels // groups if isinstance(channels, int) and depth is None else depth
    channels = depth * groups if isinstance(depth, int) else None
    return [(None, channels, *(None for _ in kernel)), (filters, depth, *map(_positive, kernel)), (filters,)]


def _deconvolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    channels = _at(known(1), 0) or _at(known(0), 1)
    space = tuple(map(_positive, kernel))
    return [(None, channels, *(None for _ in kernel)), (channels, filters // groups, *space), (filters,)]


def _pooling(params: Attributes, known: Known) -> list[Shape | None]:
    kernel = params.integers("kernel")
    return [(None,) * (len(kernel) + 2)] if kernel else []


def _fully_connected(params: Attributes, known: Known) -> list[Shape | None]:
    hidden, data = params.integer("num_hidden", least=1), known(0)
    columns: Dim = None
    if data:
        sizes = data[1:] if params.boolean("flatten", True) else data[-1:]
        known_sizes = [size for size in sizes if isinstance(size, int)]
        columns = math.prod(known_sizes) if len(known_sizes) == len(sizes) else None
    return [None, (hidden, columns), (hidden,)]


def _along(axis: int) -> Rule:
    """Vectors of the length of the data's axis, which may be a parameter of the op."""

    def rule(params: Attributes, known: Known) -> list[Shape | None]:
        vector = (_at(known(0), params.integer("axis", axis)),)
        return [None, vector, vector, vector, vector]

    return rule


def _leaky_relu(params: Attributes, known: Known) -> list[Shape | None]:
    if known(1) is not None:  # one slope for all channels is allowed too
        return []
    return [None, (_at(known(0), 1),)]


def _embedding(params: Attributes, known: Known) -> list[Shape | None]:
    return [None, (params.integer("input_dim", least=1), params.integer("output_dim", least=1))]


def _positive(value: int) -> Dim:
    return value if value > 0 else None


_RULES: dict[str, Rule] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Pooling": _pooling,
    "FullyConnected": _fully_connected,
    "BatchNorm": _along(1),
    "_contrib_SyncBatchNorm": _along(1),
    "InstanceNorm": _along(1),
    "LayerNorm": _along(-1),
    "LeakyReLU": _leaky_relu,
    "Embedding": _embedding,
}
