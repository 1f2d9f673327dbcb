"""The errors that can happen between a graph and a device."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words, in_code


class AcceleratorError(PartitaError):
    """Base of the errors of this folder."""


class AcceleratorUnavailable(AcceleratorError):
    """The device cannot be used here: no driver, no package, no hardware. Raised by an accelerator's constructor."""


class BrokenPackage(AcceleratorUnavailable):
    """The device's own code cannot be used: it cannot be imported, or its constructor raised something else."""


class UnknownDevice(AcceleratorError):
    """No accelerator is registered under that name."""


class UnknownKey(AcceleratorError):
    """A configuration key or metric that the device does not have."""


class BadConfig(AcceleratorError):
    """A configuration value that a device, or HETERO, cannot use: the caller's mistake, so that no other device takes over."""


class NotSupported(AcceleratorError):
    """No requested device can run some op, or a device lacks a requested feature."""


class CompileError(AcceleratorError):
    """A device accepted a subgraph and then could not compile or load it."""


class DeviceMistake(CompileError):
    """A device's own code is wrong. No other device takes its ops instead, which would hide that."""


class QueueFull(AcceleratorError):
    """The queue of requests is full, and the caller asked for an error rather than to wait for room."""


class RequestTimeout(AcceleratorError):
    """A request did not finish within its time limit."""


class InputError(AcceleratorError):
    """The arrays given to a model do not fit its inputs."""


class RunError(AcceleratorError):
    """A device failed while it ran a subgraph."""


class ClaimError(RunError):
    """A value's sizes differ from those that its file declares, which was found only at run time."""


@contextmanager
def asking(where: str) -> Iterator[None]:
    """A context that adds `where` to errors of a device; an exception of another kind becomes an AcceleratorError."""
    try:
        yield
    except PartitaError as error:
        error.within(where)
        raise
    except Exception as error:
        raise raised(error, where) from error


def raised(error: BaseException, where: str) -> AcceleratorError:
    """Converts a device's exception of another kind to an AcceleratorError."""
    return AcceleratorError(f"it raised {error_in_words(error)}", where=where)


MEND = "Fix the device's own code"
"""The remedy of a DeviceMistake."""

_MISTAKES = (AttributeError, KeyError, NameError, TypeError)
"""The exceptions that indicate a bug in the code that raises them, whatever its arguments."""


def is_own_mistake(error: BaseException, cls: type) -> bool:
    """True if one of `_MISTAKES` is raised in the package of a plugin's class. A library that it calls may use them to report
    what it cannot do."""
    if not isinstance(error, _MISTAKES) or is_ours(cls) or error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == cls.__module__.partition(".")[0]


def is_ours(cls: type) -> bool:
    """True for a class of Partita's own, False for a plugin's."""
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


class Returns(NamedTuple):
    """The types that a hook may return."""

    kinds: tuple[type, ...] = ()
    """Its own types; empty if any will do."""
    items: type = object
    """Type of the items of a list, or of the keys of a mapping."""
    values: tuple[type, ...] = ()
    """Types of the values of a mapping, which is written to files; empty if any will do."""


def names_hooks(cls: type, hooks: Mapping[str, Returns], owner: Callable[[Any], str]) -> None:
    """Wraps those of these methods that the class defines, so that errors name the method and its owner, such as "device 'cpu'";
    a result of another type is an error too."""
    for hook, returns in hooks.items():
        if hook in cls.__dict__:
            setattr(cls, hook, named(cls.__dict__[hook], hook, returns, owner))


def named(method: Callable[..., Any], hook: str, returns: Returns, owner: Callable[[Any], str]) -> Callable[..., Any]:
    """The method, wrapped so that errors name the hook and its owner."""
    kinds, items, values = returns.kinds, returns.items, returns.values

    @functools.wraps(method)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        try:
            result = method(self, *args, **options)
        except PartitaError as error:
            whose = owner(self)
            if isinstance(error.where, str) and f"{hook} of {whose}" not in error.where:
                rest = error.where.removeprefix(whose)
                error.where = f"{hook} of {error.where}" if rest.startswith(" in ") else rest.removeprefix(", ") or None
            error.within(f"{hook} of {whose}")
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and is_ours(type(self)):
                raise  # from outside, such as a signal handler
            mine = raised(error, f"{hook} of {owner(self)}")
            if is_own_mistake(error, type(self)):
                mine = DeviceMistake(mine.cause, where=mine.where, remedy=MEND)
            raise mine from error
        if kinds and not isinstance(result, kinds):
            cause = f"it returned {type(result).__name__}, not {_listed(kinds)}"
            raise DeviceMistake(cause, where=f"{hook} of {owner(self)}", remedy=MEND)
        odd = [item for item in result if not isinstance(item, items)] if items is not object else []
        if odd:
            cause = f"it returned {in_code(odd[0])} in a {type(result).__name__} of {items.__name__}"
            raise DeviceMistake(cause, where=f"{hook} of {owner(self)}", remedy=MEND)
        for key, value in result.items() if values else ():
            if not isinstance(value, values):
                cause = f"it returned {in_code(value)} for {key!r}, not {_listed(values)}"
                raise DeviceMistake(cause, where=f"{hook} of {owner(self)}", remedy=MEND)
        return result

    return called


def _listed(kinds: tuple[type, ...]) -> str:
    return " or ".join(dict.fromkeys("None" if kind is type(None) else kind.__name__ for kind in kinds))


def forget_frames(error: BaseException) -> None:
    """Clears the tracebacks of an unneeded error and its causes; else the frames live until the next garbage collection."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]
