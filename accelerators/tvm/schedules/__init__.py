"""Generic schedules: for every kernel that is not of our own making. No kernel runs as TVM's default pipeline leaves it."""

from __future__ import annotations

from accelerators.tvm.machine.machine import Machine

PARALLEL = 65_536
"""Fewer cheap steps than this are one thread's work: to start the others takes as long."""


def for_threads(machine: Machine, steps: int) -> bool:
    """Is it work for several threads?"""
    return machine.threads > 1 and steps >= PARALLEL


def bytes_of(dtype: str) -> int:
    """How many bytes a number of this type takes."""
    return int("".join(filter(str.isdigit, dtype)) or 8) // 8
