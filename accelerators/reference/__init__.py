"""The device `reference`: every op in numpy."""

from partita.accelerators.reference.device import ReferenceAccelerator

__all__ = ["ReferenceAccelerator"]
