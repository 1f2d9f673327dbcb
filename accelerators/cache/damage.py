"""The error for an entry on disk that is damaged."""

from __future__ import annotations


class Damaged(Exception):
    """The content differs from what was written."""
