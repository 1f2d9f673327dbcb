"""The rule for forks: a forked process starts with free locks, without threads, and without children. Whatever holds one
registers with `renewed_in_children`, and makes it anew in `renew`; `Guard` is a lock that does so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object that holds locks or threads."""

    def renew(self) -> None:
        """Creates them again: no other thread exists yet."""


_holders: WeakSet[Renewable] = WeakSet()


def renewed_in_children(holder: Renewable) -> None:
    """Registers it for renewal in each process that is forked from this one."""
    _holders.add(holder)


class Guard:
    """A lock for `with guard.lock:`, which is free in a forked process even if it was held in the parent.

    A thread that forks while holding it releases the original lock, which its `with` statement references."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock) -> None:
        self._kind = kind
        self.lock = kind()
        """The lock of this process."""
        renewed_in_children(self)

    def renew(self) -> None:
        """Replaces the lock: no thread that held it is in this process."""
        self.lock = self._kind()


def _forked() -> None:
    for holder in list(_holders):
        holder.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
