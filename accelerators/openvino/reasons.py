"""What openvino says when it fails."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The heart of the engine's message: what follows its places in source files."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(_NOISE)]
    return " ".join(told) or " ".join(lines)


_NOISE = ("Exception from", "Check '", "FrontEnd API failed", "Model wasn't fully converted", "Summary", "To facilitate")
