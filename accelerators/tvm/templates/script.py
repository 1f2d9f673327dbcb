"""Kernels written as TVM's own script text: what a small generator says more plainly than a schedule."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from accelerators.tvm.templates.reading import read_function

Lines = list[str]


def kernel(
    params: Sequence[tuple[str, tuple[int, ...], str]], body: Lines, functions: Mapping[str, Any] | None = None
) -> Any:
    """A TensorIR function of these buffers (name, shape, element type); the body may call these functions on expressions.

    The root block declares nothing: Relax asks for one, and no schedule will look into it. Local buffers stay on the stack
    instead of TVM's workspace, which LLVM could not keep in registers."""
    return read_function(params, "\n".join(body), functions or {})


def indent(lines: Lines, by: int = 4) -> Lines:
    """The lines further in."""
    return textwrap.indent("\n".join(lines), " " * by).split("\n")


def local(name: str, size: int, dtype: str = "float32") -> str:
    """A buffer on the stack."""
    return f'{name} = T.alloc_buffer(({size},), "{dtype}", scope="local", annotations={{"disable_lower_builtin": True}})'


def loop(variable: str, count: int | str, body: Lines, kind: str = "serial") -> Lines:
    """A loop around the lines."""
    return [f"for {variable} in T.{kind}({count}):", *indent(body)]


class Vectors:
    """Text of vector expressions for a machine of so many lanes."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def at(self, buffer: str, start: str | int) -> str:
        """A vector of a flat buffer."""
        return f"{buffer}[T.ramp({start}, 1, {self.lanes})]"

    def const(self, value: float) -> str:
        """The number in every lane."""
        return self.every(f"T.float32({number(value)})")

    def every(self, scalar: str) -> str:
        """The scalar in every lane."""
        return f"T.Broadcast({scalar}, {self.lanes})"

    def total(self, vector: str) -> str:
        """The sum of the lanes."""
        return f'T.call_llvm_pure_intrin("float32", "llvm.vector.reduce.fadd", T.float32(0.0), {vector})'

    def largest(self, vector: str) -> str:
        """The largest lane."""
        return f'T.call_llvm_pure_intrin("float32", "llvm.vector.reduce.fmax", {vector})'

    def smallest(self, vector: str) -> str:
        """The smallest lane."""
        return f'T.call_llvm_pure_intrin("float32", "llvm.vector.reduce.fmin", {vector})'

    def exp(self, x: str, out: str, scratch: tuple[str, str] = ("t0", "t1")) -> Lines:
        """out = exp(x) for x <= 0: 2^n times a polynomial on the rest, n rounded by adding 1.5·2^23."""
        t0, t1 = (self.at(name, 0) for name in scratch)
        n = f"({t1} - {self.const(_ROUNDER)})"
        poly = self.const(_EXP[0])
        for coefficient in _EXP[1:]:
            poly = f"({poly} * {t0} + {self.const(coefficient)})"
        integers = f'"int32x{self.lanes}"'
        power = f"(T.reinterpret({integers}, {t1}) << T.Broadcast(23, {self.lanes}))"
        bits = f"T.reinterpret({integers}, {poly}) + {power}"
        low = self.const(-87.0)
        return [
            f"{t0} = T.Select({x} < {low}, {low}, {x})",
            f"{t1} = {t0} * {self.const(1.44269504)} + {self.const(_ROUNDER)}",
            f"{t0} = {t0} - {n} * {self.const(0.693145751953125)} - {n} * {self.const(1.42860677e-6)}",
            f"{t1} = T.reinterpret(\"float32x{self.lanes}\", {bits})",
            f"{out} = T.Select({x} >= {low}, {t1}, T.Select({x} < {low}, {self.const(0.0)}, {x}))",
        ]


def number(value: float) -> str:
    """A float as script text."""
    text = repr(float(value))
    return f'"{text}"' if text in ("inf", "-inf", "nan") else text


_ROUNDER = 12582912.0
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1.0, 1.0)
