"""Configuration keys: a default, a check of values, and whether a file may set them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any

import attrs

from partita.accelerators.errors import BadConfig
from partita.graph.errors import PartitaError, did_you_mean

Check = Callable[[Any], Any]
"""Returns the value as the device reads it; raises BadValue, or any ValueError or TypeError, if it is invalid."""

_YES, _NO = ("YES", "TRUE", "1"), ("NO", "FALSE", "0", "NONE")


class BadValue(ValueError):
    """A value that is invalid for a key. Its text is the remedy."""


@attrs.frozen(slots=True)
class Key:
    """A configuration key of a device."""

    default: Any
    """The default value."""
    check: Check | None = None
    """Parses a value or raises; None: any value is valid."""
    names_files: bool = False
    """True if the value may name a file, a folder, a library, a plugin or a command, or start a process.

    Then only the caller may set it, never a file."""

    def read(self, name: str, value: Any, where: str) -> Any:
        """The value as the device reads it; raises BadConfig if it is invalid."""
        if self.check is None:
            return value
        try:
            return self.check(value)
        except BadValue as error:
            raise BadConfig(f"{name} cannot be {value!r:.80}", where=where, remedy=str(error)) from None
        except PartitaError:
            raise
        except (ValueError, TypeError) as error:
            raise BadConfig(f"{name} cannot be {value!r:.80}: {error}", where=where) from error


def declared(given: Mapping[str, Any], known: Mapping[str, Key]) -> dict[str, Key]:
    """The keys of a dictionary whose values are keys or plain defaults. A plain default of a common key changes only its default;
    any other key with a plain default permits any value, which may name a file."""
    unknown = Key(None, names_files=True)
    return {
        name: key if isinstance(key, Key) else attrs.evolve(known.get(name, unknown), default=key) for name, key in given.items()
    }


# -- checks of values ------------------------------------------------------------------------------------


def flag(value: Any) -> bool:
    """Read yes or no."""
    text = str(value).upper()
    if text in _YES or text in _NO:
        return text in _YES
    raise BadValue("Give True or False (or YES or NO)")


MOST = 1024
"""The largest number of threads: packages can set it too, and starting tens of thousands takes minutes, or fails."""


def count(value: Any) -> int:
    """A number of threads; 0 leaves the choice to the device."""
    number = _whole(value)
    if number is None or number > MOST:
        raise BadValue(f"Give a number up to {MOST}; 0 means: as the engine likes")
    return number


def positive(value: Any) -> int:
    """A positive integer."""
    number = _whole(value)
    if not number:
        raise BadValue("Give a whole number from 1 on")
    return number


def natural(value: Any) -> int:
    """A non-negative integer."""
    number = _whole(value)
    if number is None:
        raise BadValue("Give a whole number from 0 on")
    return number


def seconds(value: Any) -> float:
    """A positive time that locks and sockets accept as a timeout."""
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(value, bool) and 0 < float(value) <= TIMEOUT_MAX:
            return float(value)
    raise BadValue(f"Give a number of seconds, at most {TIMEOUT_MAX:g}")


def callback(value: Any) -> Callable[..., Any] | None:
    """Read a function, or None."""
    if value is not None and not callable(value):
        raise BadValue("Give a function, or None")
    return value  # type: ignore[no-any-return]


def mapping(value: Any) -> dict[str, Any]:
    """Read a dictionary whose keys are names."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise BadValue("Give a dictionary")
    return dict(value)


def texts(value: Any) -> tuple[str, ...]:
    """Read a list of strings; a string itself is not accepted."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        listed = tuple(value)
        if all(isinstance(item, str) for item in listed):
            return listed
    raise BadValue("Give a list of strings")


def text(value: Any) -> str:
    """A string; an integer is converted to its digits."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadValue("Give a string")
    return str(value)


def optional(check: Check) -> Check:
    """Read None, or what the other check accepts."""
    return lambda value: None if value is None else check(value)


def cache_folder(value: Any) -> Any:
    """A folder; or None, True or "on" for the default one, and False or "off" for none."""
    if value is None or isinstance(value, (str, os.PathLike, bool)) or value == 0:
        return value
    raise BadConfig(f'it is a folder, or "off", not {value!r:.80}', where="CACHE_DIR")


def folder_or_flag(value: Any) -> Path | None:
    """Read a folder, or a flag: yes means the current folder, no means None."""
    if isinstance(value, (str, os.PathLike)) and str(value).upper() not in (*_YES, *_NO):
        return Path(value)
    with contextlib.suppress(BadValue):
        return Path() if flag(value) else None
    raise BadValue("Give a folder, True or False")


def record(value: Any) -> str:
    """Read the mode of a recorder."""
    text = str(value).lower()
    head, colon, count = text.partition(":")
    if text in ("checksums", "nan") or (head == "sample" and colon and count.isdecimal() and int(count)):
        return text
    raise BadValue('Give "checksums", "nan", or "sample:100" for every hundredth call')


def flag_or_auto(value: Any) -> bool | None:
    """Read yes or no; None for "AUTO"."""
    if value is None or str(value).upper() == "AUTO":
        return None
    with contextlib.suppress(BadValue):
        return flag(value)
    raise BadValue('Give True, False or "AUTO"')


def one_of(*names: str) -> Check:
    """Read one of these words."""
    return lambda value: chosen(value, names)


def chosen(value: Any, names: Iterable[str]) -> str:
    """The value, which has to be one of these words; BadValue lists them."""
    known = list(names)
    if value in known and isinstance(value, str):
        return value
    near = did_you_mean(value, known) if isinstance(value, str) else None
    raise BadValue(f"{near or ''} It can be {', '.join(known)}".strip() if known else "There is none here")


def _whole(value: Any) -> int | None:
    """The value as a non-negative integer; None if it is none."""
    said = isinstance(value, str) and value.isascii() and value.isdigit()
    if said or (isinstance(value, Integral) and not isinstance(value, bool)):
        return int(value) if int(value) >= 0 else None
    return None
