"""The folder that this process works in, from which relative paths lead."""

from __future__ import annotations

import os


def working_folder() -> str:
    """The folder; empty if somebody has removed it, so that relative paths stay what they are."""
    try:
        return os.getcwd()
    except OSError:
        return ""
