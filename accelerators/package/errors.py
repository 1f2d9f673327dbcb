"""The error for a package that cannot be used."""

from __future__ import annotations

from partita.accelerators.errors import AcceleratorError


class PackageError(AcceleratorError):
    """An exported model cannot be written, is damaged, or does not fit this machine."""
