"""Settings for every run of passes that does not say otherwise."""

from __future__ import annotations

import attrs


@attrs.define(slots=True)
class Settings:
    """The settings; those of `settings` may be changed at any time."""

    verify: bool = True
    """Is the graph verified after each pass? False saves the time."""
    isolate_inference: bool = False
    """Does ONNX's inference of types run in a child process, where a crash of it is survived? For models of strangers."""


settings = Settings()
"""The one set of settings there is."""
