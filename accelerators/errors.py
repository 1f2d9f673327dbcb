"""The errors that can happen between a graph and a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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


class DeviceMistake(CompileError):
    """A device's own code is wrong. No other device takes its ops instead, which would hide that."""


class QueueFull(AcceleratorError):
    """The queue of requests is full, and the caller asked for an error rather than to wait for room."""


class RequestTimeout(AcceleratorError):
    """A request was not done within its time limit."""


class InputError(AcceleratorError):
    """The arrays given to a model do not fit its inputs."""


class RunError(AcceleratorError):
    """A device failed while it ran a subgraph."""


class ClaimError(RunError):
    """A value has other sizes than its file declares, which only a run could tell."""


@contextmanager
def asking(where: str) -> Iterator[None]:
    """A context in which an error that a device raises says where; one that is not ours becomes an AcceleratorError."""
    try:
        yield
    except PartitaError as error:
        error.within(where)
        raise
    except Exception as error:
        raise raised(error, where) from error


def raised(error: Exception, where: str) -> AcceleratorError:
    """The error of a device that is none of ours, as one of ours."""
    return AcceleratorError(f"it raised {type(error).__name__}: {error}", where=where)


def names_hooks(cls: type, hooks: Iterable[str], owner: Callable[[Any], str]) -> None:
    """Make the errors of these methods name the method and its owner, such as "device 'cpu'", where the class defines them."""
    for hook in hooks:
        if hook in cls.__dict__:
            setattr(cls, hook, _named(cls.__dict__[hook], hook, owner))


def _named(method: Callable[..., Any], hook: str, owner: Callable[[Any], str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except PartitaError as error:
            whose = owner(self)
            if error.where is not None and f"{hook} of {whose}" not in error.where:
                error.where = error.where.removeprefix(whose).removeprefix(", ") or None
            error.within(f"{hook} of {whose}")
            raise
        except Exception as error:
            raise raised(error, f"{hook} of {owner(self)}") from error

    return called
