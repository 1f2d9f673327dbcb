"""Every kernel of a compiled model is run once more with each of its arrays between guard pages: inputs, weights and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, as_array, as_tensor
from partita.graph.graph import Graph
from partita.graph.types import Array
from tests.fuzz.guard.pages import FILL, guarded_copy

SKIP = 1
"""What an instrument returns so that TVM does not run the function itself."""


class GuardedRun:
    """Stands between TVM's virtual machine and the kernels."""

    def __init__(self, compiled: CompiledTvm, tell: Callable[[str], None]) -> None:
        self._kernels = {launch.runs for launch in compiled.launches}
        self._tell = tell
        self.at_end = True
        """Do the arrays end where a page ends? Else they begin where one begins."""
        self.ran: list[str] = []
        """The kernels that were run."""
        self.copied = 0
        """How many arrays TVM could not take where they lay: none."""

    def __call__(self, function: Any, symbol: str, before: bool, returned: Any, *arguments: Any) -> int:
        """TVM calls it before and after each call."""
        if not before or symbol not in self._kernels:
            return 0
        self._tell(symbol)
        places = [
            i
            for i, argument in enumerate(arguments)
            if hasattr(argument, "shape") and hasattr(argument, "dtype")
        ]
        arrays = {i: as_array(arguments[i]) for i in places}
        guarded = {i: guarded_copy(array, self.at_end) for i, array in arrays.items()}
        given = [
            self._tensor(guarded[i]) if i in guarded else argument for i, argument in enumerate(arguments)
        ]
        self._fill(guarded, arrays)
        function(*given)
        for i, array in arrays.items():
            array[...] = guarded[i]
        self.ran.append(symbol)
        return SKIP

    def _tensor(self, array: Array) -> Any:
        result = as_tensor(array)
        self.copied += as_array(result).ctypes.data != array.ctypes.data
        return result

    @staticmethod
    def _fill(guarded: dict[int, Array], arrays: dict[int, Array]) -> None:
        """The last argument is an output: it holds nothing yet."""
        last = max(guarded, default=None)
        if last is not None and guarded[last].nbytes:
            guarded[last].reshape(-1).view(np.uint8)[:] = FILL


def run_guarded(
    graph: Graph, feeds: Sequence[Array], tell: Callable[[str], None] = lambda symbol: None
) -> dict[str, Any]:
    """The graph on `cpu` as it is, and with its arrays at either end of their pages: how many kernels ran, and whether the
    numbers are the same each time."""
    device = accelerator("cpu")
    compiled = device.compile(graph, device.full_config({}))
    if not isinstance(compiled, CompiledTvm):
        return {"kernels": 0, "same": True, "copied": 0}
    plain = [np.array(value) for value in compiled.run(feeds)]
    watcher = GuardedRun(compiled, tell)
    compiled._machine.watch(watcher)
    same = True
    for at_end in (True, False):
        watcher.at_end = at_end
        again = compiled.run([guarded_copy(np.asarray(value), at_end) for value in feeds])
        same &= all(a.tobytes() == b.tobytes() for a, b in zip(plain, again, strict=True))
    return {"kernels": len(watcher.ran) // 2, "same": same, "copied": watcher.copied}


@attrs.define
class Guards:
    """Stands between TVM's virtual machines and the kernels of all models that a process runs."""

    at_end: bool = True
    """Do arrays end where a page ends?"""
    ran: int = 0
    """The number of kernels that were run."""


def guard_all(tell: Callable[[str], None]) -> Guards:
    """Have every kernel that this process runs from now on read and write between guard pages; `tell` is called before each."""
    guards, start = Guards(), CompiledTvm._start

    def guarded(compiled: CompiledTvm) -> None:
        start(compiled)

        def count(symbol: str) -> None:
            watcher.at_end = guards.at_end
            guards.ran += 1
            tell(symbol)

        watcher = GuardedRun(compiled, count)
        compiled._machine.watch(watcher)

    CompiledTvm._start = guarded  # type: ignore[method-assign]
    return guards
