"""Words for people."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """`1 op`, `2 ops`; 1,000 and more with commas."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
