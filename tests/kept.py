"""Kept lines, by the subjects with which they begin."""

from __future__ import annotations

import math
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import partita as pt


@cache
def kept(path: Path) -> dict[str, list[str]]:
    """The lines of a file by subject."""
    listed: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        listed.setdefault(line.partition(" | ")[0], []).append(line)
    return listed


def check_kept(module: ModuleType, kind: str) -> None:
    """Compares the lines of the subjects of this kind with those that the module wrote."""
    subjects = [subject for subject in module.SUBJECTS if subject.rpartition(" ")[0] == kind]
    assert subjects, kind
    for subject in subjects:
        meant = f"where this is meant: python -m {module.__name__}"
        lines, wanted = module.lines(subject), kept(module.KEPT).get(subject, [])
        if len(lines) != len(wanted) or not all(map(same, lines, wanted)):
            assert lines == wanted, meant


FRACTION = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")


def same(line: str, wanted: str) -> bool:
    """True for equal lines, but for the last digit of fractions, or a ten-thousandth: processors sum in different orders."""
    if line == wanted:
        return True
    numbers, others = FRACTION.findall(line), FRACTION.findall(wanted)
    return FRACTION.sub("", line) == FRACTION.sub("", wanted) and all(map(_near, numbers, others))


def _near(number: str, other: str) -> bool:
    digits = [len(text.partition("e")[0].partition(".")[2]) - int(text.partition("e")[2] or 0) for text in (number, other)]
    return math.isclose(float(number), float(other), rel_tol=1e-4, abs_tol=1.01 * 10.0 ** -min(digits))


def lines_of(kinds: Mapping[str, Callable[[random.Random], Iterator[str]]], topic: str, subject: str) -> list[str]:
    """The lines of a subject: its kind's, drawn by the topic and the subject, up to the first error."""
    said: list[str] = []
    with np.errstate(all="ignore"):
        try:
            for line in kinds[subject.rpartition(" ")[0]](random.Random(f"{topic} {subject}")):
                said.append(line)  # not extend: the lines before an error stay
        except pt.PartitaError as error:
            said.append(f"{type(error).__name__}: {error}")
    return [f"{subject} | {line!r}" for line in said]


def write_kept(path: Path, subjects: Iterable[str], lines: Callable[[str], Iterable[str]]) -> None:
    """Writes the lines of all subjects."""
    path.write_text("".join(f"{line}\n" for subject in subjects for line in lines(subject)), "utf-8")


def told(call: Callable[..., Any], *args: Any, **named: Any) -> str:
    """The result of a call, or its error."""
    try:
        return str(call(*args, **named))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, it is a line
        return f"{type(error).__name__}: {error}"


def sum_of(text: str | bytes) -> str:
    """The length and the sum of a long text."""
    return f"{len(text)} {zlib.crc32(text if isinstance(text, bytes) else text.encode()):08x}"
