"""The device `openvino`: Intel's engine, with any of its devices."""

from partita.accelerators.engines.openvino.device import OpenVinoAccelerator

__all__ = ["OpenVinoAccelerator"]
