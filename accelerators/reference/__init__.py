"""The device `reference`: every op in numpy."""

from accelerators.reference.device import ReferenceAccelerator

__all__ = ["ReferenceAccelerator"]
