"""What the ops that read a variable tell about its shape, where neither the caller nor the file does.

A network loads without given shapes if its ops say enough, as convolutions do, and without parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graph.readers.mxnet.attributes import Attributes
from graph.readers.mxnet.symbol import Symbol
from graph.types import Dim

__all__ = ["hinted_shapes"]

Shape = tuple[Dim, ...]
Known = Callable[[int], Shape | None]
"""The shape known of input number i."""


def hinted_shapes(symbol: Symbol, known: Mapping[int, Shape]) -> dict[int, Shape]:
    """Shapes, by node number, of variables that are not among the known ones."""
    found: dict[int, Shape] = {}
    for node in symbol.nodes:
        rule = _RULES.get(node.op)
        if rule is None:
            continue
        sources = [source for source, _ in node.inputs]
        hints = rule(node.params, lambda i, s=sources: known.get(s[i]) if i < len(s) else None)  # type: ignore[misc]
        for source, shape in zip(sources, hints, strict=False):
            if shape is not None and symbol.nodes[source].is_variable and source not in known:
                found.setdefault(source, shape)
    return found


def _size(value: Dim, factor: int = 1) -> Dim:
    return value * factor if isinstance(value, int) else None


def _convolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    rank = len(kernel) + 2
    if not params.string("layout", "NC").startswith("NC"):
        return [(None,) * rank, (None,) * rank, (filters,)]
    data, weight = known(0), known(1)
    channels = _size(weight[1], groups) if weight is not None and len(weight) == rank else None
    depth = data[1] if data is not None and len(data) == rank else None
    depth = depth // groups if isinstance(depth, int) else None
    return [(None, channels, *(None for _ in kernel)), (filters, depth, *map(_positive, kernel)), (filters,)]


def _deconvolution(params: Attributes, known: Known) -> list[Shape | None]:
    kernel, filters = params.integers("kernel"), params.integer("num_filter", least=1)
    groups = params.integer("num_group", 1, least=1)
    weight = known(1)
    channels = weight[0] if weight is not None and len(weight) == len(kernel) + 2 else None
    space = tuple(map(_positive, kernel))
    return [(None, channels, *(None for _ in kernel)), (None, filters // groups, *space), (filters,)]


def _pooling(params: Attributes, known: Known) -> list[Shape | None]:
    kernel = params.integers("kernel")
    return [(None,) * (len(kernel) + 2)] if kernel else []


def _fully_connected(params: Attributes, known: Known) -> list[Shape | None]:
    hidden = params.integer("num_hidden", least=1)
    data = known(0)
    return [None, (hidden, data[1] if data is not None and len(data) == 2 else None), (hidden,)]


def _per_channel(params: Attributes, known: Known) -> list[Shape | None]:
    return [None, (None,), (None,), (None,), (None,)]


def _positive(value: int) -> Dim:
    return value if value > 0 else None


_RULES: dict[str, Callable[[Attributes, Known], list[Shape | None]]] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Pooling": _pooling,
    "FullyConnected": _fully_connected,
    **dict.fromkeys(["BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm", "_contrib_SyncBatchNorm"], _per_channel),
}
