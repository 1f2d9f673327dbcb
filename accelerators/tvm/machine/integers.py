"""The instructions that sum up products of 8-bit integers, and which of them a processor has."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from accelerators.interface.keys import BadValue


@attrs.frozen(slots=True)
class IntegerInstruction:
    """A way to sum up products of unsigned and signed bytes in 32 bits, exactly."""

    name: str
    """As the configuration calls it."""
    needs: tuple[frozenset[str], ...]
    """The processor has all features, by LLVM's names, of one of these."""
    lanes: int
    """How many sums a vector holds; 0: as many as the machine's vectors."""

    def is_here(self, features: Collection[str]) -> bool:
        """Does a processor of these features have it?"""
        return any(every <= set(features) for every in self.needs)


def _needs(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in alternatives)


INSTRUCTIONS = (
    IntegerInstruction("avx512-vnni", _needs("avx512f avx512bw avx512vnni"), 16),
    IntegerInstruction("avx-vnni", _needs("avxvnni", "avx512vnni avx512vl"), 8),
    IntegerInstruction("avx2", _needs("avx2"), 8),
    IntegerInstruction("plain", _needs(""), 0),
)
"""All of them, the fastest first."""

BY_NAME = {instruction.name: instruction for instruction in INSTRUCTIONS}


def best_instruction(features: Collection[str]) -> str:
    """The name of the fastest one that a processor of these features has."""
    return next(instruction.name for instruction in INSTRUCTIONS if instruction.is_here(features))


def instruction_name(value: object) -> str:
    """A configuration's value: the name of an instruction, or nothing, which leaves the choice to the device."""
    text = str(value)
    if text and text not in BY_NAME:
        raise BadValue(f"Give one of {', '.join(BY_NAME)}, or nothing: the fastest that the processor has")
    return text
