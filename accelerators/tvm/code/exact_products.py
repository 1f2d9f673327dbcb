"""Products on a GPU that are rounded before something is added to them: compilers would make one instruction of both, which
rounds once, and moves ties."""

from __future__ import annotations

import importlib
from typing import Any

from partita.accelerators.tvm.machine.library import function, part

_NAME = "partita_exact_product"

_GUARD = _NAME.upper()
"""The macro that says that the function is there."""

_HELPERS = {
    "cuda": f"static __device__ __forceinline__ float {_NAME}(float a, float b) {{ return __fmul_rn(a, b); }}\n",
    "opencl": f"float {_NAME}(float a, float b) {{\n#pragma OPENCL FP_CONTRACT OFF\n  return a * b;\n}}\n",
}
"""The function that makes such a product, by the kind of device."""


def with_exact_products(kernel: Any) -> Any:
    """The function with a call for each product whose number is to be kept as it was rounded. Linear."""
    tirx = part("tirx")
    fence = function("target.llvm_lookup_intrinsic_id")("llvm.arithmetic.fence")

    def exact(call: Any) -> Any:
        if getattr(call.op, "name", "") != "tirx.call_llvm_pure_intrin" or int(call.args[0]) != fence:
            return call
        number = call.args[1]
        return tirx.call_pure_extern("float32", _NAME, number.a, number.b) if isinstance(number, tirx.Mul) else number

    return importlib.import_module("tvm_ffi").structural_map(kernel, [(part("ir").Call, exact)])


def with_helper(source: str, kind: str) -> str:
    """The source, with the function behind such calls where there are any. The sources of several kernels may become one text, in
    which the first of them defines it for all."""
    if f"{_NAME}(" not in source:
        return source
    return f"#ifndef {_GUARD}\n#define {_GUARD}\n{_HELPERS[kind]}#endif\n{source}"
