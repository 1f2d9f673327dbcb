"""Memory that TVM's virtual machines keep for further calls.

Intermediate values go back to a pool, which reuses memory only for calls of exactly the same size, so that each new size makes
the pool grow. Therefore the pool is emptied once calls of many sizes have left more in it than two calls of the largest size
need. Memory in use is not part of the pool."""

from __future__ import annotations

from collections.abc import Hashable

from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.run.runtime import runtime

LEAST = 32 << 20
"""Bytes that are kept in any case,"""

CALLS = 2
"""and as many as this number of calls of the largest size needs."""


class KeptMemory:
    """Estimate of what calls of different sizes have left in the pool."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._sizes = set[Hashable]()
        self._bytes = self._largest = 0

    def note(self, size: Hashable, needed: int) -> None:
        """Note the start of a call of this size, whose values need about this many bytes."""
        if size in self._sizes:
            return
        with self._guard.lock:
            if self._bytes + needed > max(LEAST, CALLS * max(needed, self._largest)):
                self._free()
            self._sizes.add(size)
            self._largest = max(needed, self._largest)
            self._bytes += needed

    def free(self) -> None:
        """Free all memory that is not in use."""
        with self._guard.lock:
            self._free()

    def _free(self) -> None:
        self._sizes.clear()
        self._bytes = self._largest = 0
        clear = runtime().get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)
        if clear is not None:
            clear()


kept_memory = KeptMemory()
"""The pool is shared by all models of the process."""
