"""Explicit copies of arrays to a device's memory."""

from __future__ import annotations

import numpy as np

from partita.accelerators.arrays.on_device import DeviceArray
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import parse_devices
from partita.graph.types import Array, dtype_name


def to_device(array: Array, device: str) -> DeviceArray:
    """A copy of the array in the memory of one device, such as "opencl" or "opencl.1". Models on that device read it, and write
    their outputs to it if it is passed as `out`, without a copy to the host; `.numpy()` copies it back."""
    (first, *others) = parse_devices(device)
    if others:
        raise AcceleratorError(f"{device!r} is several devices", where="to_device", remedy="Name one of them")
    own = first.accelerator
    if first.device_id is not None:
        own = own.configured(own.checked_config(own.labelled(first.device_id)))
    given = np.asarray(array)
    if dtype_name(given.dtype) == "string":
        raise AcceleratorError("no device's memory holds strings", where="to_device", remedy="Give its models the array itself")
    return own.to_device(given)
