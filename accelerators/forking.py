"""What a forked process makes anew: locks that threads of its parent held, and the threads themselves."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Holds locks or threads."""

    def renew(self) -> None:
        """Make them anew: no other thread is there yet."""


_holders: WeakSet[Renewable] = WeakSet()


def renewed_in_children(holder: Renewable) -> None:
    """Have it renewed in each process that is forked from this one."""
    _holders.add(holder)


def _forked() -> None:
    for holder in list(_holders):
        holder.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
