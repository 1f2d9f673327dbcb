"""Makes one line of the error that onnxruntime raises."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The engine's message, without its numbers and line breaks."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text
