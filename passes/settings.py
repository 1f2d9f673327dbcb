"""Default settings of passes."""

from __future__ import annotations

import attrs


@attrs.define(slots=True)
class Settings:
    """The settings; those of `settings` may be changed at any time."""

    verify: bool = True
    """True if the graph is verified after each pass. False saves the time."""
    isolate_inference: bool = False
    """True if ONNX's version converter runs in a child process, whose crash is survived. For untrusted models."""


settings = Settings()
"""The settings in effect."""
