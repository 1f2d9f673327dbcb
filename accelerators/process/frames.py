"""Errors hold the functions that they came through, and all that these had in hand."""

from __future__ import annotations


def forget_frames(error: BaseException) -> None:
    """Drop that of an error that nobody will see, and of those that led to it: else it stays until Python looks for cycles."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
