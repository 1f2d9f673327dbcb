"""The working directory, which relative paths start from."""

from __future__ import annotations

import os


def working_folder() -> str:
    """The working directory; empty if it was removed, so that relative paths are unchanged."""
    try:
        return os.getcwd()
    except OSError:
        return ""
