"""Products on a GPU that are rounded before an addition. Compilers would contract both into one fused multiply-add, which rounds
once and changes ties."""

from __future__ import annotations

import importlib
from typing import Any

from partita.accelerators.tvm.machine.library import function, part

_NAME = "partita_exact_product"

_GUARD = _NAME.upper()
"""Macro that guards the helper function."""

_HELPERS = {
    "cuda": f"static __device__ __forceinline__ float {_NAME}(float a, float b) {{ return __fmul_rn(a, b); }}\n",
    "opencl": f"float {_NAME}(float a, float b) {{\n#pragma OPENCL FP_CONTRACT OFF\n  return a * b;\n}}\n",
}
"""Helper function that computes such a product, by kind of device."""


def with_exact_products(kernel: Any) -> Any:
    """The function with a call of the helper for each product that has to keep its own rounding. Linear."""
    tirx = part("tirx")
    fence = function("target.llvm_lookup_intrinsic_id")("llvm.arithmetic.fence")

    def exact(call: Any) -> Any:
        if getattr(call.op, "name", "") != "tirx.call_llvm_pure_intrin" or int(call.args[0]) != fence:
            return call
        number = call.args[1]
        return tirx.call_pure_extern("float32", _NAME, number.a, number.b) if isinstance(number, tirx.Mul) else number

    return importlib.import_module("tvm_ffi").structural_map(kernel, [(part("ir").Call, exact)])


def with_helper(source: str, kind: str) -> str:
    """The source, preceded by the helper function if it is called. Sources of several kernels may be concatenated; the first
    definition then serves all."""
    if f"{_NAME}(" not in source:
        return source
    return f"#ifndef {_GUARD}\n#define {_GUARD}\n{_HELPERS[kind]}#endif\n{source}"
