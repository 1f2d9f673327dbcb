"""Shortens onnxruntime's errors to one line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The engine's message without its error codes and line breaks."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text
