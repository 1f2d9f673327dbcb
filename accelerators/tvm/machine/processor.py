"""Processors that kernels are compiled for: rows of a table, and the host with its extensions, by LLVM's names.

The host's extensions come from the operating system if possible, else from LLVM. Linux grants a process the use of the
processor's tiles (AMX) on request. The permission holds for all threads, also running ones, and after a fork. Without it the
first instruction on tiles ends the process."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

import attrs

from partita.accelerators.interface.keys import BadValue
from partita.accelerators.tvm.machine.library import function, tvm

_LINUX = Path("/proc/cpuinfo")

LLVM_NAMES = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt", "pclmulqdq": "pclmul",
    "sha_ni": "sha", "avx_vnni": "avxvnni", "avx_ifma": "avxifma", "amx_tile": "amx-tile", "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16", "avx512_bf16": "avx512bf16", "avx512_bitalg": "avx512bitalg", "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni", "avx512_vpopcntdq": "avx512vpopcntdq",
    "asimd": "neon", "asimddp": "dotprod", "asimdfhm": "fp16fml", "asimdhp": "fullfp16", "asimdrdm": "rdm", "atomics": "lse",
}
"""LLVM's names of extensions that have another name in Linux."""

_SAME = frozenset(
    "sse sse2 ssse3 sse4a avx avx2 fma fma4 xop f16c bmi2 popcnt movbe adx aes vaes vpclmulqdq gfni avx512f avx512bw avx512cd "
    "avx512dq avx512vl avx512vbmi avx512ifma avx512er avx512pf tbm i8mm bf16 fp16".split()
)
"""Extensions with the same name in LLVM and Linux. Kernels use no extension outside of these two tables."""

UNUSED = frozenset("sve sve2".split())
"""Extensions with vectors of unknown length. Kernels do not use them, since their vectors have fixed lengths."""

UNSTATED = frozenset(
    "avx10.1 avx10.2 avxneconvert avxvnniint8 avxvnniint16 cmpccxadd egpr ndd nf ccmp ppx push2pop2 zu".split()
)
"""Extensions that Linux does not report. If LLVM does not either, kernels do without them."""

_RISCV = frozenset("m a f d c zba zbb zbs zfhmin v zvfh zvl128b zvl256b".split())

KNOWN_FEATURES = _SAME.union(LLVM_NAMES.values(), UNSTATED, UNUSED, _RISCV)
"""All extensions that are considered, by LLVM's names."""


@attrs.frozen(slots=True)
class Processor:
    """A processor that code is compiled for, here or elsewhere."""

    name: str
    """LLVM's name, or an architecture with extensions, as "aarch64+i8mm"."""
    triple: str
    """LLVM's name of the architecture and the operating system."""
    features: frozenset[str]
    """Its extensions that kernels may use, by LLVM's names."""
    cores: int = 4
    """Number of cores that a model is planned for."""
    near: int = 32 << 10
    """Bytes of the nearest data cache that tiles are planned for."""

    @property
    def lanes(self) -> int:
        """Number of 32-bit elements of a vector register."""
        return 16 if "avx512f" in self.features else 4 if self.features.isdisjoint(("avx2", "zvl256b")) else 8

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 16 if self.features.isdisjoint(("avx512f", "neon", "v")) else 32

    @property
    def fuses(self) -> bool:
        """True if it multiplies and adds vectors of any length in one instruction."""
        return not self.features.isdisjoint(("neon", "v"))


def _rows(triple: str, *rows: tuple[str, str, int, int]) -> dict[str, Processor]:
    return {name: Processor(name, triple, frozenset(words.split()), cores, near << 10) for name, words, cores, near in rows}


_SSE = "sse sse2"
_SSE42 = f"{_SSE} sse3 ssse3 sse4.1 sse4.2 popcnt"
_AVX2 = f"{_SSE42} avx avx2 fma f16c bmi bmi2 lzcnt movbe"
_AVX512 = f"{_AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
_SKYLAKE = f"{_AVX512} adx aes pclmul"
_ICELAKE = f"{_SKYLAKE} avx512vnni avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vpopcntdq gfni sha vaes vpclmulqdq"
_ZEN3 = f"{_AVX2} adx aes pclmul sha sse4a vaes vpclmulqdq"
_ARM_V8 = "neon aes"
_ARM_V82 = f"{_ARM_V8} lse rdm dotprod fullfp16"
_ARM_V84 = f"{_ARM_V82} fp16fml"
_ARM_V86 = f"{_ARM_V84} i8mm bf16"
_ARM_V9 = "neon lse rdm dotprod fullfp16 fp16fml i8mm bf16"
_RVA22V = "m a f d c zba zbb zbs zfhmin v zvl128b"

PROCESSORS = {
    **_rows(
        "x86_64-linux-gnu",
        ("x86-64", _SSE, 4, 32),
        ("nehalem", _SSE42, 4, 32),
        ("x86-64-v3", _AVX2, 4, 32),
        ("x86-64-v4", _AVX512, 8, 32),
        ("haswell", f"{_AVX2} pclmul", 4, 32),
        ("skylake", f"{_AVX2} adx aes pclmul", 4, 32),
        ("skylake-avx512", _SKYLAKE, 16, 32),
        ("cascadelake", f"{_SKYLAKE} avx512vnni", 16, 32),
        ("icelake-server", _ICELAKE, 32, 32),
        ("sapphirerapids", f"{_ICELAKE} avxvnni avx512bf16 avx512fp16 amx-tile amx-int8 amx-bf16", 32, 32),
        ("znver3", _ZEN3, 16, 32),
        ("znver4", f"{_ICELAKE} avx512bf16 sse4a", 16, 32),
        ("znver5", f"{_ICELAKE} avx512bf16 avxvnni sse4a", 16, 32),
    ),
    **_rows(
        "aarch64-linux-gnu",
        ("cortex-a53", _ARM_V8, 4, 32),
        ("cortex-a72", _ARM_V8, 4, 32),
        ("cortex-a76", _ARM_V82, 4, 64),
        ("cortex-x1", _ARM_V82, 4, 64),
        ("neoverse-n1", _ARM_V82, 64, 64),
        ("neoverse-v1", _ARM_V86, 64, 64),
        ("neoverse-n2", _ARM_V9, 64, 64),
        ("neoverse-v2", _ARM_V9, 64, 64),
        ("ampere1", f"{_ARM_V82} i8mm bf16", 64, 64),
    ),
    **_rows(
        "arm64-apple-macosx11.0",
        ("apple-m1", _ARM_V84, 8, 64),
        ("apple-m2", _ARM_V86, 8, 64),
        ("apple-m4", _ARM_V86, 8, 64),
    ),
    **_rows(
        "riscv64-linux-gnu",
        ("spacemit-x60", f"{_RVA22V} zvfh zvl256b", 8, 32),
    ),
}
"""The processors that can be named, by name."""

ANY = _rows("aarch64-linux-gnu", ("aarch64", "neon", 4, 32)) | _rows(
    "riscv64-linux-gnu", ("riscv64", _RVA22V, 4, 32)
)
"""Processors with nothing but their architecture, to which extensions are added."""

ADDED = {"aarch64": frozenset(_ARM_V86.split()) - {"neon"}, "riscv64": frozenset(("zvfh", "zvl256b"))}
"""Extensions that can be added to an architecture."""


def processor_named(value: object) -> str:
    """Validates a configuration value: the name of a processor; "" means the host."""
    text = str(value)
    if text and text not in PROCESSORS:
        base, *added = text.split("+")
        if base not in ANY:
            names = ", ".join([*PROCESSORS, *ANY])
            raise BadValue(f"Give one of {names} (the last ones with extensions, as aarch64+i8mm+bf16), or nothing for the host")
        unknown = sorted(set(added) - ADDED[base])
        if unknown:
            known = ", ".join(f"+{name}" for name in sorted(ADDED[base]))
            raise BadValue(f"After {base} give {known}, not {', '.join(map(repr, unknown))}")
    return text


@cache
def processor(name: str) -> Processor:
    """The processor of a valid name."""
    if name in PROCESSORS:
        return PROCESSORS[name]
    base, *added = name.split("+")
    return attrs.evolve(ANY[base], name=name, features=ANY[base].features | set(added))


def is_here(triple: str) -> bool:
    """True if the host has the architecture and the operating system of this triple; "" is the host's."""
    arches = triple.partition("-")[0], platform.machine()
    arch, own = (name.replace("arm64", "aarch64").replace("AMD64", "x86_64") for name in arches)
    return not triple or (arch == own and ("linux" if sys.platform == "linux" else "apple") in triple)


@cache
def host_features() -> frozenset[str]:
    """Extensions of the host."""
    try:
        lines = _LINUX.read_text().splitlines()
    except OSError:
        return _from_llvm()
    words = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return frozenset(LLVM_NAMES.get(word, word) for word in words if word in LLVM_NAMES or word in _SAME)


def _from_llvm() -> frozenset[str]:
    """The extensions according to LLVM, in TVM's own container, for which TVM has to be imported."""
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
    features = host_features() - UNUSED
    if "amx-tile" not in features or _is_permitted():
        return features
    return frozenset(name for name in features if not name.startswith("amx-"))


def _is_permitted() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ASK, TILES) == 0)
