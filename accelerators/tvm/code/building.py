"""Scheduled kernels compiled to machine code, each structure once per process; threads generate the code of several bodies at a
time, while the kernels of the next ones are lowered."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.codegen import check_declared, expressions_if_large, generate, is_written, object_code
from partita.accelerators.tvm.code.linking import can_link
from partita.accelerators.tvm.lower.lowering import Lowered, lower, nameless
from partita.accelerators.tvm.machine.library import compiling
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import quiet


class Built:
    """Machine code of a body's kernels: an object file if there is a linker for it, else a module of TVM's."""

    def __init__(
        self, lowered: Lowered, machine: Machine, code: bytes = b"", names: frozenset[str] = frozenset(), library: Any = None
    ) -> None:
        self.lowered = lowered
        """The lowered body from which the kernels were generated."""
        self.machine = machine
        """The machine for which the kernels were generated."""
        self.code = code
        """The object file, which may hold kernels of other bodies too; empty if there is none."""
        self.names = names
        """Names of all kernels in the object file."""
        self.seconds = 0.0
        """Seconds that one thread spent on it."""
        self._guard = Guard()
        self._library = library

    @property
    def library(self) -> Any:
        """Runtime module with the kernels.

        If the kernels are an object file, the module is made only now, because it takes far more memory."""
        with self._guard.lock:
            if self._library is None:
                self._library = _in_memory(self.lowered.kernels(), self.machine.target)
            return self._library


def makes_objects(machine: Machine) -> bool:
    """True if the machine's kernels become object files, which a linker combines."""
    return not machine.is_gpu and can_link(machine.triple)


def generated(batch: Sequence[Lowered], machine: Machine) -> list[Built]:
    """The machine code of these bodies. Object files are one for all bodies, which saves most of LLVM's start-up."""
    kernels = {name: kernel for lowered in batch for name, kernel in lowered.kernels().items()}
    if makes_objects(machine):
        code, names = object_code(_generated(kernels, machine.target)), frozenset(kernels)
        return [Built(lowered, machine, code, names) for lowered in batch]
    library = _in_memory(kernels, machine.target)
    if not machine.is_gpu:
        for symbol in kernels:
            library[symbol]  # LLVM compiles it now, while other threads work.
    return [Built(lowered, machine, library=library) for lowered in batch]


def object_files(bodies: Collection[Built]) -> list[bytes]:
    """Object files that hold the kernels of the bodies, each kernel once.

    A file may hold a kernel that is also in another file (two compilations ran at once) or that was tuned since. The bodies
    needed from such a file are generated again, each alone."""
    wanted = {symbol: built for built in bodies for symbol in built.lowered.symbols.values()}
    files, names = list[bytes](), set[str]()
    for built in {id(built.code): built for built in bodies if built.code}.values():
        if names.isdisjoint(built.names) and all(wanted.get(name, built).code is built.code for name in built.names):
            files.append(built.code)
            names |= built.names
        else:
            alone = [other.lowered for other in bodies if other.code is built.code]
            files += [again.code for lowered in alone for again in generated([lowered], built.machine)]
            names |= {symbol for lowered in alone for symbol in lowered.symbols.values()}
    return files


Key = tuple[str, Machine, tuple[tuple[str, str], ...]]
"""Key of a body, the machine, and the choices made by tuning."""


def known(key: Key) -> Built | None:
    """Cached machine code of such a body, or None."""
    with _guard.lock:
        built = _built.get(key)
        if built is not None:
            _built.move_to_end(key)
    return built


def keep(key: Key, built: Built) -> None:
    """Put the machine code into the cache, which keeps the last CACHED bodies."""
    with _guard.lock:
        _built[key] = built
        while len(_built) > CACHED:
            _built.popitem(last=False)


def build(body: Body, machine: Machine) -> Built:
    """Build the machine code of one body in this thread."""
    key = (body.key, machine, ())
    built = known(key)
    if built is None:
        (built,) = generated([lower(body, machine)], machine)
        keep(key, built)
    return built


def is_built(body: Body, machine: Machine) -> bool:
    """True if the machine code of this structure is in the cache."""
    with _guard.lock:
        return (body.key, machine, ()) in _built


def compile_kernels(kernels: Mapping[str, Any], target: Any) -> Any:
    """Runtime module of these kernels under their names."""
    with compiling.lock, quiet():
        return _in_memory(kernels, target)


def _in_memory(kernels: Mapping[str, Any], target: Any) -> Any:
    """Module in memory, checked for undefined symbols because no linker checks it."""
    library = _generated(kernels, target)
    if str(target.kind.name) == "llvm":
        check_declared(library)
    return library


def _generated(kernels: Mapping[str, Any], target: Any) -> Any:
    return generate({name: nameless(kernel) for name, kernel in kernels.items()}, target)


CACHED = 256
"""Number of bodies whose machine code stays in memory, about 20 KiB each: more than most models have, and an acceptable growth
for a process that compiles many."""

_guard = Guard()
_built: OrderedDict[Key, Built] = OrderedDict()


def forget() -> None:
    """Empty the cache."""
    with _guard.lock:
        _built.clear()


TOGETHER = 8
"""Maximum number of bodies whose kernels are generated together."""

_Job = tuple[Key, Lowered, float, "Future[Built]"]
"""A body's key, its kernels, the seconds spent on lowering, and the future of the machine code."""


class Workers:
    """Takes bodies one by one and returns futures of their machine code."""

    def __init__(
        self, machine: Machine, choices_of: Callable[[Body], Mapping[str, str]], check: Callable[[Body], None]
    ) -> None:
        self.machine = machine
        self.choices_of = choices_of
        """Candidates that tuning chose for a body, by the names of the choices."""
        self.check = check
        """Called with each body before TVM itself schedules its kernels; an error that it raises is the body's."""
        self._shares = makes_objects(machine) or machine.is_gpu
        self._threads = max(1, usable_cores())
        self._pool = Pool(self._threads, "partita-codegen")
        self._running: dict[str, Future[Built]] = {}
        self.fresh: set[str] = set()
        """Keys of the bodies whose machine code was not in the cache."""
        self._waiting: deque[_Job] = deque()
        self._lock = Lock()

    def build(self, body: Body) -> Future[Built]:
        """Future of the body's machine code; bodies of equal structure share it."""
        building = self._running.get(body.key)
        if building is None:
            building = self._running[body.key] = self._started(body)
        return building

    def _started(self, body: Body) -> Future[Built]:
        choices = tuple(sorted(self.choices_of(body).items()))
        key, future = (body.key, self.machine, choices), Future[Built]()
        built = known(key)
        if built is not None:
            future.set_result(built)
            return future
        start = perf_counter()
        lowered = lower(body, self.machine, dict(choices), check=self.check)
        self.fresh.add(body.key)
        with self._lock:
            self._waiting.append((key, lowered, perf_counter() - start, future))
        self._pool.submit(self._work)
        return future

    def _work(self) -> None:
        """Generate some of the waiting bodies. Another thread may have taken all of them."""
        batch = self._taken()
        if batch:
            self._finish(batch)

    def _finish(self, batch: list[_Job]) -> None:
        """Generate them together; if that fails, each alone, so that the error belongs to one body."""
        start = perf_counter()
        try:
            finished = generated([lowered for _, lowered, _, _ in batch], self.machine)
        except BaseException as error:  # noqa: BLE001  raised to those that wait for the body
            if len(batch) == 1:
                batch[0][3].set_exception(error)
            else:
                for job in batch:
                    self._finish([job])
            return
        share = (perf_counter() - start) / len(batch)
        for (key, _, lowering, future), built in zip(batch, finished, strict=True):
            built.seconds = lowering + share
            keep(key, built)
            future.set_result(built)

    def _taken(self) -> list[_Job]:
        """A share of the waiting bodies, smaller towards the end so that all threads finish together. Kernels that TVM scheduled
        need other passes than ours and are taken alone; so are large ones, for which LLVM uses another level."""
        with self._lock:
            most = min(TOGETHER, -(-len(self._waiting) // (2 * self._threads))) if self._shares else 1
            batch: list[_Job] = []
            while self._waiting and len(batch) < max(1, most):
                if batch and not (_goes_with_others(batch[0]) and _goes_with_others(self._waiting[0])):
                    break
                batch.append(self._waiting.popleft())
            return batch

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            with self._lock:
                self._waiting.clear()
        self._pool.shutdown(cancel_futures=error is not None)


def _goes_with_others(job: _Job) -> bool:
    kernels = job[1].kernels()
    return is_written(kernels) and not expressions_if_large(kernels)
