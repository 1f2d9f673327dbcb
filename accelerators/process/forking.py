"""Lets a forked process make anew the locks that threads of its parent held, and the threads themselves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object that holds locks or threads."""

    def renew(self) -> None:
        """Make them anew: no other thread is there yet."""


_holders: WeakSet[Renewable] = WeakSet()


def renewed_in_children(holder: Renewable) -> None:
    """Have it renewed in each process that is forked from this one."""
    _holders.add(holder)


class Guard:
    """A lock for `with guard.lock:`, which a forked process finds free, whoever held it in its parent.

    Whoever forks while holding it releases the lock that it took: the `with` remembers that one."""

    def __init__(self, kind: Callable[[], Any] = threading.Lock) -> None:
        self._kind = kind
        self.lock = kind()
        """The lock of this process."""
        renewed_in_children(self)

    def renew(self) -> None:
        """No thread that held it is in this process."""
        self.lock = self._kind()


def _forked() -> None:
    for holder in list(_holders):
        holder.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
