"""Custom ops of the user, defined by TVM's tensor expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.graph.node import Node


@attrs.frozen(slots=True)
class TvmExtension:
    """A custom op for the devices `cpu` and `cuda`.

    >>> TvmExtension("Swish", "my", lambda x, beta=1.0: te.compute(x.shape, lambda *i: ...))   # doctest: +SKIP
    """

    op: str
    """Name of the op."""
    domain: str
    """Domain of the op; not ONNX's own."""
    compute: Callable[..., Any]
    """Function (*input tensors, **attributes) -> output tensor or sequence of tensors, from `tvm.te` placeholders to computes."""


_extensions: dict[tuple[str, str], TvmExtension] = {}
_editions = Counter[tuple[str, str]]()


def add(extension: Any) -> None:
    """Register a custom op for the TVM devices."""
    if not isinstance(extension, TvmExtension):
        raise AcceleratorError(
            f"an extension is a TvmExtension, not {type(extension).__name__}",
            remedy="from partita.accelerators.tvm.extensions import TvmExtension; TvmExtension(op, domain, compute)",
        )
    if not callable(extension.compute):
        cause = f"what {extension.domain}.{extension.op} computes is a function, not {extension.compute!r}"
        raise AcceleratorError(cause, remedy="Give one from tvm.te placeholders to tvm.te.compute(...)")
    if extension.domain in ("", "ai.onnx"):
        raise AcceleratorError(
            f"{extension.op!r} cannot be defined in ONNX's own domain", remedy='Choose a domain of your own: domain="my"'
        )
    _extensions[extension.domain, extension.op] = extension
    _editions[extension.domain, extension.op] += 1


def remove(op: str, domain: str) -> None:
    """Remove a custom op."""
    if _extensions.pop((domain, op), None) is None:
        raise AcceleratorError(f"no extension {domain}.{op} was added")


def find(node: Node) -> TvmExtension | None:
    """The extension that defines the node's op."""
    return _extensions.get((node.domain, str(node.op))) if node.domain else None


def edition(node: Node) -> int:
    """Number of functions that a custom op has had, so that kernels of an earlier function are not used for a later one."""
    return _editions[node.domain, str(node.op)] if node.domain else 0
