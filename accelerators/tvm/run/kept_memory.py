"""The memory that TVM's virtual machines keep for further calls.

What lies between two kernels goes back to a pool, which lends it to nobody but a call of the very same size: where each call has
another size the pool grows with each. Therefore all of it is freed once calls of many sizes have left more there than two of the
largest need. What is in use is no part of the pool."""

from __future__ import annotations

from collections.abc import Hashable

from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.run.runtime import runtime

LEAST = 32 << 20
"""So many bytes are kept whatever the sizes are,"""

CALLS = 2
"""and as many as this number of calls of the largest size needs."""


class KeptMemory:
    """What calls of different sizes have left in the pool."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._sizes = set[Hashable]()
        self._bytes = self._largest = 0

    def note(self, size: Hashable, needed: int) -> None:
        """A call of this size begins, whose values need about so many bytes."""
        if size in self._sizes:
            return
        with self._guard.lock:
            if self._bytes + needed > max(LEAST, CALLS * max(needed, self._largest)):
                self._free()
            self._sizes.add(size)
            self._largest = max(needed, self._largest)
            self._bytes += needed

    def free(self) -> None:
        """Free all that is not in use."""
        with self._guard.lock:
            self._free()

    def _free(self) -> None:
        self._sizes.clear()
        self._bytes = self._largest = 0
        clear = runtime().get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)
        if clear is not None:
            clear()


kept_memory = KeptMemory()
"""The pool is one for all models of the process."""
