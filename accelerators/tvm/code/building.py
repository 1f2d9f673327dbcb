"""From scheduled kernels to machine code, each structure once in a process, several at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from accelerators.process.forking import Guard
from accelerators.tvm.bodies.body import Body
from accelerators.tvm.code.codegen import generate, object_code
from accelerators.tvm.code.linking import can_link
from accelerators.tvm.lower.lowering import Lowered, lower, nameless
from accelerators.tvm.machine.library import compiling
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.messages import quiet
from accelerators.tvm.run.cores import usable_cores


class Built:
    """A body's kernels as machine code: an object file if there is a linker for it, else a module of TVM's."""

    def __init__(self, lowered: Lowered, machine: Machine) -> None:
        self.lowered = lowered
        """The lowered body that the kernels were generated from."""
        self.machine = machine
        """The machine that the kernels were generated for."""
        self._guard = Guard()
        self._library: Any = None
        self.code = b""
        """The object file; empty where there is none."""
        library = _generated(lowered.kernels(), machine.target)
        if machine.kind == "cpu" and can_link():
            self.code = object_code(library)
        else:
            self._library = library
            if machine.kind == "cpu":
                for symbol in lowered.symbols.values():
                    library[symbol]  # Now LLVM makes its machine code, while other threads work.

    @property
    def library(self) -> Any:
        """The runtime module that holds them.

        If the kernels are an object file, the module is made now, because it takes far more memory.
        """
        with self._guard.lock:
            if self._library is None:
                self._library = _generated(self.lowered.kernels(), self.machine.target)
            return self._library


class Workers:
    """Threads that make machine code while the kernels of the next body are drafted."""

    def __init__(self, machine: Machine, choices_of: Callable[[Body], Mapping[str, str]]) -> None:
        self.machine = machine
        self.choices_of = choices_of
        """The candidates that tuning chose for a body, by the names of the choices."""
        self._pool = ThreadPoolExecutor(max(1, usable_cores()), "partita-codegen")
        self._running: dict[str, Future[Built]] = {}

    def build(self, body: Body) -> Future[Built]:
        """The body's machine code, when it is there; bodies of equal structure share it, and the last CACHED stay known."""
        building = self._running.get(body.key)
        if building is None:
            building = self._running[body.key] = self._started(body)
        return building

    def _started(self, body: Body) -> Future[Built]:
        choices = tuple(sorted(self.choices_of(body).items()))
        known = _known((body.key, self.machine, choices))
        if known is not None:
            ready: Future[Built] = Future()
            ready.set_result(known)
            return ready
        lowered = lower(body, self.machine, dict(choices))
        return self._pool.submit(_finished, (body.key, self.machine, choices), lowered)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=error is not None)


_Key = tuple[str, Machine, tuple[tuple[str, str], ...]]
"""A body's key, the machine, and what was chosen by tuning."""


def _finished(key: _Key, lowered: Lowered) -> Built:
    built = Built(lowered, key[1])
    with _guard.lock:
        _built[key] = built
        while len(_built) > CACHED:
            _built.popitem(last=False)
    return built


def build(body: Body, machine: Machine) -> Built:
    """Build the machine code of one body in this thread."""
    key = (body.key, machine, ())
    return _known(key) or _finished(key, lower(body, machine))


def _known(key: _Key) -> Built | None:
    with _guard.lock:
        known = _built.get(key)
        if known is not None:
            _built.move_to_end(key)
    return known


def is_built(body: Body, machine: Machine) -> bool:
    """Is the machine code of this structure there already?"""
    with _guard.lock:
        return (body.key, machine, ()) in _built


def compile_kernels(kernels: Mapping[str, Any], target: Any) -> Any:
    """A runtime module of these kernels under their names."""
    with compiling.lock, quiet():
        return _generated(kernels, target)


def _generated(kernels: Mapping[str, Any], target: Any) -> Any:
    return generate({name: nameless(kernel) for name, kernel in kernels.items()}, target)


CACHED = 2048
"""The number of bodies whose machine code stays in memory."""

_guard = Guard()
_built: OrderedDict[_Key, Built] = OrderedDict()


def forget() -> None:
    """Empty the cache."""
    with _guard.lock:
        _built.clear()
