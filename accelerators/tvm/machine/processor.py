"""The host's instruction set extensions, by LLVM's names: from the operating system if possible, else from LLVM.

Linux grants a process the use of the processor's tiles (AMX) on request. The permission holds for all threads, also running ones,
and after a fork. Without it the first instruction on tiles ends the process."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

from partita.accelerators.tvm.machine.library import function, tvm

_LINUX = Path("/proc/cpuinfo")

_NAMES = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt", "pclmulqdq": "pclmul",
    "sha_ni": "sha", "avx_vnni": "avxvnni", "avx_ifma": "avxifma", "amx_tile": "amx-tile", "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16", "avx512_bf16": "avx512bf16", "avx512_bitalg": "avx512bitalg", "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni", "avx512_vpopcntdq": "avx512vpopcntdq",
    "asimd": "neon", "asimddp": "dotprod", "asimdhp": "fullfp16", "asimdrdm": "rdm", "atomics": "lse",
}
"""LLVM's names of extensions that have another name in Linux."""

_SAME = frozenset(
    "sse sse2 ssse3 sse4a avx avx2 fma fma4 xop f16c bmi2 popcnt movbe adx aes vaes vpclmulqdq gfni avx512f avx512bw avx512cd "
    "avx512dq avx512vl avx512vbmi avx512ifma avx512er avx512pf tbm sve sve2 i8mm bf16 fp16".split()
)
"""Extensions with the same name in both. Kernels use no instructions that are in none of these lists."""

UNSTATED = frozenset(
    "avx10.1 avx10.2 avxneconvert avxvnniint8 avxvnniint16 cmpccxadd egpr ndd nf ccmp ppx push2pop2 zu".split()
)
"""Extensions that Linux does not report. If LLVM does not either, kernels do without them."""

KNOWN_FEATURES = _SAME.union(_NAMES.values(), UNSTATED)
"""All extensions that are considered, by LLVM's names."""


@cache
def host_features() -> frozenset[str]:
    """Extensions of the host."""
    try:
        lines = _LINUX.read_text().splitlines()
    except OSError:
        return _from_llvm()
    words = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return frozenset(_NAMES.get(word, word) for word in words if word in _NAMES or word in _SAME)


def _from_llvm() -> frozenset[str]:
    """The extensions according to LLVM; the values are TVM's own numbers, which only the package can read."""
    tvm()
    asked = function("tvm.codegen.llvm.GetHostCPUFeatures")
    return frozenset() if asked is None else frozenset(str(name) for name, there in asked().items() if there)


ARCH_PRCTL = 158
"""Number of the system call on x86-64."""

ASK = 0x1023
"""ARCH_REQ_XCOMP_PERM: request a component of the processor's state."""

TILES = 18
"""Number of the tile-data component."""


@cache
def usable_features() -> frozenset[str]:
    """The host's extensions, without tiles if the system refuses them. The request is made once per process."""
    features = host_features()
    if "amx-tile" not in features or _is_permitted():
        return features
    return frozenset(name for name in features if not name.startswith("amx-"))


def _is_permitted() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ASK, TILES) == 0)
