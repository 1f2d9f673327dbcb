"""The table of the instructions that add up products: operand layout, cost, and the processors that have each.

A row is data. Its meaning is in `kernels/contraction/instruction_meanings.py`: the instruction itself, and portable code
that computes the same bits, so that its users can be compiled, run and checked on every processor. Kernels take an instruction by
element type, never by name. LLVM selects all instructions that are not in this table."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from partita.accelerators.interface.keys import BadValue


@attrs.frozen(slots=True)
class Special:
    """An instruction that adds products to a vector, or to a tile, of sums."""

    name: str
    """Its name in configurations and choices."""
    multiplies: str
    """Element type of its products: "int8" means unsigned by signed bytes, with exact sums; "int4" means half bytes, which are
    looked up in a table and multiplied as float32."""
    needs: tuple[frozenset[str], ...]
    """Sets of extensions, by LLVM's names; a processor needs all of at least one set."""
    lanes: int
    """Number of sums or elements in a vector; 0: as many as in the machine's vectors."""
    left: str = ""
    """Element type in which it takes the left operand; elements of another type are converted before."""
    right: str = ""
    """Element type in which it takes the right operand."""
    group: int = 1
    """Number of neighbours along the depth that are multiplied at once: one word of the left operand, and adjacent in the packed
    right one."""
    rows: int = 1
    """Number of rows that are multiplied at once, by as many columns: sums of two rows are then held by two columns."""
    beside: tuple[int, int] = (1, 2)
    """Registers of a tile besides its sums: for each vector of columns, and always."""
    single: str = ""
    """The instruction of the same processors for single rows, or for few of them."""
    has_tiles: bool = False
    """True if sums are kept in tile registers, whole matrices at a time."""
    flushes: bool = False
    """True if its processors round float32 to bfloat16 by an instruction that flushes subnormals to zero."""
    slow: frozenset[str] = frozenset()
    """Processors, by LLVM's names, on which float32 is faster."""

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

    @property
    def row(self) -> Special:
        """Its row of the table."""
        return BY_NAME[self.name]

    def __str__(self) -> str:
        return f"{self.name}:emulated" if self.is_emulated else self.name


def _needs(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in alternatives)


_BYTES, _WORDS, _PAIRS = ("uint8", "int8", 4), ("int16", "int16", 2), ("bfloat16", "bfloat16", 2)
"""Left and right element type, and neighbours that are multiplied at once."""

_SLOW = frozenset(("cooperlake", "sapphirerapids", "emeraldrapids"))

INSTRUCTIONS = (
    Special(
        "amx-int8", "int8", _needs("amx-tile amx-int8 avx512f avx512bw avx512vnni"), 16, *_BYTES, single="avx512-vnni",
        has_tiles=True,
    ),
    Special("avx512-vnni", "int8", _needs("avx512f avx512bw avx512vnni"), 16, *_BYTES),
    Special("avx-vnni", "int8", _needs("avxvnni", "avx512vnni avx512vl"), 8, *_BYTES),
    Special("avx2", "int8", _needs("avx2"), 8, *_WORDS),
    Special("usmmla", "int8", _needs("neon i8mm"), 4, "uint8", "int8", 8, rows=2, beside=(2, 2), single="usdot"),
    Special("usdot", "int8", _needs("neon i8mm"), 4, *_BYTES),
    Special("sdot", "int8", _needs("neon dotprod"), 4, *_BYTES, beside=(2, 3)),
    Special("plain", "int8", _needs(""), 0, *_BYTES, beside=(1, 4)),
    Special("amx-bf16", "bfloat16", _needs("amx-tile amx-bf16 avx512f avx512bf16"), 16, *_PAIRS, has_tiles=True, flushes=True),
    Special("vdpbf16ps", "bfloat16", _needs("avx512bf16"), 16, *_PAIRS, flushes=True, slow=_SLOW),
    Special("bfmmla", "bfloat16", _needs("neon bf16"), 4, "bfloat16", "bfloat16", 4, rows=2, single="bfdot"),
    Special("bfdot", "bfloat16", _needs("neon bf16"), 4, *_PAIRS),
    Special("fma", "bfloat16", _needs(""), 0, "float32", "float32"),
    Special("fmlal", "float16", _needs("neon fp16fml"), 4, "float16", "float16"),
    Special("vpermps", "int4", _needs("avx512f"), 16),
)
"""The special instructions; for each element type the fastest comes first."""

BY_NAME = {instruction.name: instruction for instruction in INSTRUCTIONS}


@attrs.frozen(slots=True)
class WarpProduct:
    """An instruction by which a GPU's warp multiplies 16 rows by 8 columns on tensor cores: mma.sync of PTX."""

    left: str
    """Element type of the left matrix."""
    right: str
    """Element type of the right matrix."""
    types: tuple[str, str]
    """The names of both types in PTX."""
    deep: int
    """Depth of one instruction."""
    sums: str = "float32"
    """Element type of the sums."""


WARP_PRODUCTS = (
    WarpProduct("float16", "float16", ("f16", "f16"), 16),
    WarpProduct("bfloat16", "bfloat16", ("bf16", "bf16"), 16),
    WarpProduct("float32", "float32", ("tf32", "tf32"), 8),
    WarpProduct("uint8", "uint8", ("u8", "u8"), 32, "int32"),
    WarpProduct("uint8", "int8", ("u8", "s8"), 32, "int32"),
    WarpProduct("int8", "uint8", ("s8", "u8"), 32, "int32"),
    WarpProduct("int8", "int8", ("s8", "s8"), 32, "int32"),
)
"""The instructions of tensor cores. They round float32 to TF32."""

FIRST_TENSOR_CORES = 80
"""The first NVIDIA architecture with them."""


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
