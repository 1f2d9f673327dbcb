"""Memory layout of the values of a captured graph: shared storages, and the order of dimensions by stride.

torch runs a graph once with fake tensors, which have sizes, strides and storages but no data, and stores these on its nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def base_of(node: torch.fx.Node, bases: Collection[torch.fx.Node]) -> torch.fx.Node | None:
    """The one of these nodes of which the node is a view; None if there is none."""
    memory, base = memory_of(node), node
    while memory is not None:
        earlier = next((given for given in base.all_input_nodes if memory in _memories(given)), None)
        if earlier is None or earlier in bases:
            return earlier
        base = earlier
    return None


def is_number(node: torch.fx.Node) -> bool:
    """True if the node's value is a size or another number."""
    import torch

    return isinstance(_value(node), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def order_of(node: torch.fx.Node) -> tuple[int, ...] | None:
    """Dimensions of the node's value from the widest stride to the narrowest; None if that is their own order, or if the value
    does not fill its memory."""
    import torch

    value = _value(node)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    sizes, strides = _numbers(value.shape), _numbers(value.stride())
    if sizes is None or strides is None:
        return None
    sizes = [1 if d in repeated_of(node) else size for d, size in enumerate(sizes)]
    order = sorted((d for d, size in enumerate(sizes) if size != 1), key=lambda d: -strides[d])
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    if order == sorted(order):
        return None
    return (*(d for d, size in enumerate(sizes) if size == 1), *order)


def repeated_of(node: torch.fx.Node) -> tuple[int, ...]:
    """Dimensions with stride 0, such as expanded ones."""
    import torch

    value = _value(node)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return ()
    pairs = zip(value.shape, value.stride(), strict=True)
    return tuple(d for d, (size, stride) in enumerate(pairs) if isinstance(stride, int) and stride == 0 and size != 1)


def _value(node: torch.fx.Node) -> Any:
    """The fake value; None if torch stored none."""
    return node.meta.get("example_value", node.meta.get("val"))


def memory_of(node: torch.fx.Node) -> int | None:
    """Identity of the storage of the node's value; None for a value without a single storage."""
    return _memory_of(_value(node))


def _memories(node: torch.fx.Node) -> set[int | None]:
    """Storage of the node's value, or of each tensor of a tuple, such as that of `split`."""
    value = _value(node)
    return set(map(_memory_of, value if isinstance(value, (tuple, list)) else [value])) - {None}


def _memory_of(value: Any) -> int | None:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        return int(value.untyped_storage()._cdata)
    except NotImplementedError:  # a tensor that wraps another one inside vmap or grad
        return None


def _numbers(sizes: Sequence[int | torch.SymInt]) -> list[int] | None:
    """The sizes in the first call; None if torch does not know one."""
    import torch

    numbers = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
    return None if None in numbers else numbers
