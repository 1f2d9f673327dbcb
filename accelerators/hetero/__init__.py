"""The device `HETERO`: several devices by priority."""

from partita.accelerators.hetero.device import HeteroAccelerator

__all__ = ["HeteroAccelerator"]
