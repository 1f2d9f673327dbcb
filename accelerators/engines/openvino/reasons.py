"""Shortens openvino's errors to one line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The engine's message without its source locations."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NOISE)]
    return " ".join(telling) or " ".join(lines)


_NOISE = ("Exception from", "Check '", "FrontEnd API failed", "Model wasn't fully converted", "Summary", "To facilitate")
