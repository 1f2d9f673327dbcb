"""The device `HETERO`: several devices by priority."""

from accelerators.hetero.device import HeteroAccelerator

__all__ = ["HeteroAccelerator"]
