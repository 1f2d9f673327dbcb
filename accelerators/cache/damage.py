"""What can be wrong with what is on disk."""

from __future__ import annotations


class Damaged(Exception):
    """It is not what was written."""
