"""Sizes as expressions of TVM's Relax: integers, and polynomials of a graph's symbols."""

from __future__ import annotations

from functools import cache, reduce
from operator import add, mul
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.sizes.extent import Extent, Size


def tensor_type(shape: Any, dtype: str) -> Any:
    """TVM's type of a tensor."""
    if not all(isinstance(dim, (int, Extent)) for dim in shape):
        raise CompileError(f"a kernel needs sizes, and {dtype}{list(shape)} has others")
    return part("relax").TensorType([size_expression(dim) for dim in shape], dtype)


@cache
def size_variable(name: str) -> Any:
    """TVM's variable for a symbol in Relax functions: one object for each name."""
    return part("tirx").Var(name, "int64")


def size_expression(size: Size) -> Any:
    """A size as a Relax expression."""
    if isinstance(size, int):
        return size
    number = part("tirx").const
    terms = [reduce(mul, map(size_variable, names), number(count, "int64")) for names, count in size.terms.items()]
    return reduce(add, terms)
