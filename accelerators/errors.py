"""The errors that can happen between a graph and a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graph.errors import PartitaError


class AcceleratorError(PartitaError):
    """Base of the errors of this folder."""


class AcceleratorUnavailable(AcceleratorError):
    """The device cannot be used here: no driver, no package, no hardware. Raised by an accelerator's constructor."""


class UnknownDevice(AcceleratorError):
    """No accelerator is registered under that name."""


class UnknownKey(AcceleratorError):
    """A configuration key or metric that the device does not have."""


class BadConfig(AcceleratorError):
    """A configuration value that a device, or HETERO, cannot use: the caller's mistake, so that no other device takes over."""


class NotSupported(AcceleratorError):
    """No device of those asked for can run some op, or a device was asked for something it cannot do."""


class CompileError(AcceleratorError):
    """A device took a subgraph and then could not compile or load it."""


class QueueFull(AcceleratorError):
    """The queue of requests is full, and the caller asked for an error rather than to wait for room."""


class RequestTimeout(AcceleratorError):
    """A request was not done within its time limit."""


class InputError(AcceleratorError):
    """The arrays given to a model do not fit its inputs."""


class RunError(AcceleratorError):
    """A device failed while it ran a subgraph."""


@contextmanager
def asking(where: str) -> Iterator[None]:
    """A context in which an error that a device raises becomes one of ours that says where; our own errors stay as
    they are.
    """
    try:
        yield
    except PartitaError:
        raise
    except Exception as error:
        raise AcceleratorError(f"it raised {type(error).__name__}: {error}", where=where) from error
