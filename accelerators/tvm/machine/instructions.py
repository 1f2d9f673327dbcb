"""Special instructions that kernels name explicitly, and which of them a processor has. LLVM selects all others.

Each has a portable form with bit-identical results, so that its users can be compiled, run and checked on every processor."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from partita.accelerators.interface.keys import BadValue


@attrs.frozen(slots=True)
class Special:
    """An instruction for narrow element types."""

    name: str
    """Its name in configurations and choices."""
    multiplies: str
    """Element type of its products: "int8" means unsigned by signed bytes, with exact sums; "int4" means half bytes, which are
    looked up in a table and multiplied as float32."""
    needs: tuple[frozenset[str], ...]
    """Sets of extensions, by LLVM's names; a processor needs all of at least one set."""
    lanes: int
    """Number of sums or elements in a vector; 0: as many as in the machine's vectors."""
    flushes: bool = False
    """True if its processors round float32 to bfloat16 by an instruction that flushes subnormals to zero."""

    def is_here(self, features: Collection[str]) -> bool:
        """True if a processor with these extensions has the instruction."""
        return any(every <= set(features) for every in self.needs)


@attrs.frozen(slots=True)
class Used:
    """A special instruction that a machine's kernels use."""

    name: str
    """Name of the instruction in the table."""
    is_emulated: bool = False
    """True if it is emulated by portable code with bit-identical results."""
    is_asked: bool = False
    """True if the configuration requests it, even where others would be faster."""

    def __str__(self) -> str:
        return f"{self.name}:emulated" if self.is_emulated else self.name


def _needs(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in alternatives)


INSTRUCTIONS = (
    Special("amx-int8", "int8", _needs("amx-tile amx-int8 avx512f avx512bw avx512vnni"), 16),
    Special("avx512-vnni", "int8", _needs("avx512f avx512bw avx512vnni"), 16),
    Special("avx-vnni", "int8", _needs("avxvnni", "avx512vnni avx512vl"), 8),
    Special("avx2", "int8", _needs("avx2"), 8),
    Special("usmmla", "int8", _needs("neon i8mm"), 4),
    Special("usdot", "int8", _needs("neon i8mm"), 4),
    Special("sdot", "int8", _needs("neon dotprod"), 4),
    Special("plain", "int8", _needs(""), 0),
    Special("amx-bf16", "bfloat16", _needs("amx-tile amx-bf16 avx512f avx512bf16"), 16, flushes=True),
    Special("vdpbf16ps", "bfloat16", _needs("avx512bf16"), 16, flushes=True),
    Special("bfmmla", "bfloat16", _needs("neon bf16"), 4),
    Special("bfdot", "bfloat16", _needs("neon bf16"), 4),
    Special("fma", "bfloat16", _needs(""), 0),
    Special("fmlal", "float16", _needs("neon fp16fml"), 4),
    Special("vpermps", "int4", _needs("avx512f"), 16),
)
"""The special instructions; for each element type the fastest comes first."""

BY_NAME = {instruction.name: instruction for instruction in INSTRUCTIONS}


def best_instructions(features: Collection[str]) -> tuple[Used, ...]:
    """The fastest instruction for each element type that a processor with these extensions has."""
    best: dict[str, Used] = {}
    for instruction in INSTRUCTIONS:
        if instruction.is_here(features):
            best.setdefault(instruction.multiplies, Used(instruction.name))
    return tuple(best.values())


def integer_instruction(value: object) -> str:
    """Validates a configuration value: the name of an instruction for bytes, or "", which lets the device choose."""
    return _instruction("int8", value)


def bfloat_instruction(value: object) -> str:
    """The same for an instruction for bfloat16."""
    return _instruction("bfloat16", value)


def _instruction(dtype: str, value: object) -> str:
    text, names = str(value), [row.name for row in INSTRUCTIONS if row.multiplies == dtype]
    if text and text not in names:
        raise BadValue(f"Give one of {', '.join(names)}, or nothing: the fastest that the processor has")
    return text
