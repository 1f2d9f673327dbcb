"""Tracebacks keep frames, and all of their local variables, alive."""

from __future__ import annotations


def forget_frames(error: BaseException) -> None:
    """Clears the tracebacks of an unneeded error and its causes; else the frames live until the next garbage collection."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
