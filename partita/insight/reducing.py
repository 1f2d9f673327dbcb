"""`reduce`: the smallest part of a model that still fails, by delta debugging over convex cuts."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators import AcceleratorError
from partita.accelerators.errors import BadConfig
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.store.capsules.capsule import write_arrays
from partita.graph.errors import PartitaError, check_count
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.rewrite import with_sizes_of
from partita.graph.writers import save
from partita.insight.cutting import Cutter
from partita.insight.trusted import Trusted, call_arrays
from partita.passes import apply_pass
from partita.passes.infer import infer

Fails = Callable[[Graph, Mapping[str, Any]], bool]
"""Predicate of a graph, and of arrays by the names of its inputs: True if it still fails."""

MOST = 400
"""Default maximum number of candidates."""


@attrs.frozen(slots=True, eq=False, repr=False)
class Reduction:
    """Result of `reduce`."""

    graph: Graph
    """The smallest part that fails."""
    inputs: Mapping[str, Any]
    """Values of its inputs, from a run of the whole model."""
    ops: int
    """Number of ops of the whole model."""
    tries: int
    """Number of candidates tried."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the remaining ops."""
        return tuple(node.name for node in self.graph.nodes if node.is_op)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the part as `model.onnx` and its inputs as `inputs.npz`; the folder is created if missing."""
        write_candidate(self.graph, self.inputs, Path(folder))

    def __str__(self) -> str:
        head = f"{self.graph.name}: {counted(len(self.nodes), 'op')} of {self.ops} left, {counted(self.tries, 'candidate')} tried"
        lines = [f"  {node.name} ({node.op})" for node in self.graph.nodes if node.is_op]
        return "\n".join([head, *lines, *(f"  reads {name}: {_type_of(array)}" for name, array in self.inputs.items())])

    def __repr__(self) -> str:
        return f"<Reduction of {self.graph.name!r} to {', '.join(self.nodes[:8])}>"


@at_a_device()
def reduce(
    graph: Graph,
    inputs: Any,
    fails: Fails,
    *,
    against: str | Sequence[str] = "reference",
    shapes: bool = True,
    most: int = MOST,
    repeats: int = 1,
    seconds: float | None = None,
    seed: int = 0,
) -> Reduction:
    """Remove from the graph what is not needed for it to fail, according to `fails(graph, inputs)`.

    Candidates are convex groups of ops, with inputs from a run of the whole model on the devices `against`. Then sizes are
    reduced, to one or to half, where the graph allows it (`shapes`). The failure may be anything that the function can detect. It
    is called for at most `most` candidates, `repeats` times each: one failure suffices. With `seconds` each candidate is tested
    in a forked process, which is killed with all its children when it takes longer; this hang is the failure if the whole model
    hangs. `inputs` that are None are random, with this `seed`."""
    for name, number in (("most", most), ("repeats", repeats)):
        check_count(f"reduce, option {name}", number, BadConfig)
        if not number:
            raise BadConfig(f"{name} is {number}", where="reduce", remedy="Give 1 or more")
    if not callable(fails):
        raise BadConfig(f"{fails!r:.80} is not a function", where="reduce", remedy="Write fails(graph, inputs) -> bool")
    if seconds is not None:
        fails = Timed(fails, seconds)
    typed = apply_pass(graph, "InferShape", strict=False)
    search = _Reducing(typed, call_arrays(typed, inputs, seed), fails, Trusted(against), most, repeats)
    members = search.smallest()
    reduced, given = search.candidate(members)
    if shapes:
        return Reduction(*search.with_small_sizes(reduced, given), len(search.cutter.ops), search.tries)
    return Reduction(reduced, given, len(search.cutter.ops), search.tries)


class Timed:
    """Calls a function in a forked process, which is killed with all its children when it takes too long."""

    def __init__(self, fails: Fails, seconds: float) -> None:
        self.fails, self.seconds = fails, seconds
        self.hangs: bool | None = None
        """True if the whole model hangs; set by the first call."""

    def __call__(self, graph: Graph, inputs: Mapping[str, Any]) -> bool:
        """True if it fails: by a hang if the whole model hangs, else by the function's answer or the death of the process."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            answer = b"?"
            try:
                answer = b"1" if self.fails(graph, inputs) else b"0"
            finally:
                os.write(writing, answer)
                os._exit(0)
        os.close(writing)
        try:
            is_ready = bool(select.select([reading], [], [], self.seconds)[0])
            answer = os.read(reading, 1) if is_ready else b"-"
        finally:
            os.close(reading)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if self.hangs is None:
            self.hangs = answer == b"-"
        return self.hangs if answer == b"-" else not self.hangs and answer in (b"1", b"")


class _Reducing:
    def __init__(
        self, graph: Graph, arrays: Sequence[Any], fails: Fails, trusted: Trusted, most: int, repeats: int
    ) -> None:
        self.cutter, self.trusted, self.ask, self.most, self.repeats = Cutter(graph), trusted, fails, most, repeats
        self.known: dict[NodeEntry, Any] = {node[0]: array for node, array in zip(graph.inputs, arrays, strict=True)}
        self.known |= trusted.values(graph, arrays)
        self.tries = 0
        self.answers: dict[tuple[int, ...], bool] = {}

    def candidate(self, members: Iterable[int]) -> tuple[Graph, dict[str, Any]]:
        """These ops as a graph, and the values that they read."""
        cut = self.cutter.cut(members)
        given = [self.known[entry] for entry in cut.reads]
        return cut.graph, dict(zip((node.name for node in cut.graph.inputs), given, strict=True))

    def fails(self, members: Sequence[int]) -> bool:
        """True if this group fails. Each group is tested once."""
        key = tuple(members)
        if key not in self.answers:
            if self.tries >= self.most:
                return False
            self.answers[key] = self.asked(*self.candidate(key))
        return self.answers[key]

    def asked(self, graph: Graph, arrays: Mapping[str, Any]) -> bool:
        """True if the graph fails. An error raised by `fails` is passed on for the whole model; a part counts as right."""
        self.tries += 1
        try:
            return any(self.ask(graph, arrays) for _ in range(self.repeats))
        except PartitaError as error:
            if self.tries > 1:
                return False
            remedy = "Catch it, and return True if it is the failure to look for"
            cause = f"on the whole model it raises {error.cause}"
            raise AcceleratorError(cause, where="reduce, option fails", remedy=remedy) from error

    def smallest(self) -> list[int]:
        """The smallest group: the shortest failing prefix, its shortest failing suffix, and that without unneeded ops."""
        members = list(range(len(self.cutter.ops)))
        if not self.fails(members):
            raise AcceleratorError(
                "the whole model does not fail",
                where="reduce, option fails",
                remedy="Give a function or a command that fails on this model",
            )
        members = self._shortest(members, lambda size: members[:size])
        prefix = members
        members = self._shortest(members, lambda size: prefix[len(prefix) - size :])
        return self._without_parts(members)

    def _shortest(self, members: list[int], part: Callable[[int], list[int]]) -> list[int]:
        """The shortest part that fails, by bisection, which assumes monotonicity; the next step handles the rest."""
        right, wrong = 0, len(members)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self.fails(part(middle)):
                wrong = middle
            else:
                right = middle
        return part(wrong)

    def _without_parts(self, members: list[int]) -> list[int]:
        """The group without the parts that are not needed to fail: halves first, single ops last."""
        size = max(1, len(members) // 2)
        while True:
            smaller = next((rest for rest in self._rests(members, size) if self.fails(rest)), None)
            if smaller is not None:
                members, size = smaller, max(1, min(size, len(smaller) // 2))
            elif size == 1:
                return members
            else:
                size //= 2

    def _rests(self, members: list[int], size: int) -> Iterator[list[int]]:
        """The convex groups that remain when `size` neighbours are removed."""
        for start in range(0, len(members), size):
            rest = members[:start] + members[start + size :]
            if rest and self.cutter.closed(rest) == set(rest):
                yield rest

    def with_small_sizes(self, graph: Graph, given: Mapping[str, Any]) -> tuple[Graph, Mapping[str, Any]]:
        """The graph with reduced input sizes, as long as it fails and the trusted run computes it."""
        settled = False
        while not settled:
            settled = True
            for arrays in _smaller_arrays(graph, given):
                resized = _with_sizes(graph, arrays)
                if resized is None or self.tries >= self.most or not self._runs(resized, arrays):
                    continue
                if self.asked(resized, arrays):
                    graph, given, settled = resized, arrays, False
                    break
        return graph, given

    def _runs(self, graph: Graph, arrays: Mapping[str, Any]) -> bool:
        """True if the trusted device computes it. Incompatible sizes are not a failure."""
        try:
            self.trusted.outputs(graph, [arrays[node.name] for node in graph.inputs])
        except AcceleratorError:
            return False
        return True


def write_candidate(graph: Graph, inputs: Mapping[str, Any], folder: Path) -> None:
    """Writes the graph and its inputs as two files."""
    folder.mkdir(parents=True, exist_ok=True)
    save(graph, str(folder / "model.onnx"))
    write_arrays(folder / "inputs.npz", inputs)


def _type_of(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__


def _smaller_arrays(graph: Graph, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs with one size reduced to one, or to half, in all inputs that have this size at this axis."""
    sizes = {
        (axis, size)
        for node in graph.inputs if isinstance(given[node.name], np.ndarray)
        for axis, size in enumerate(given[node.name].shape) if size > 1
    }
    for axis, size in sorted(sizes, key=lambda one: (-one[1], one[0])):
        for smaller in dict.fromkeys((1, size // 2)):
            yield {name: _cut(array, axis, size, smaller) for name, array in given.items()}


def _cut(array: Any, axis: int, size: int, smaller: int) -> Any:
    fits = isinstance(array, np.ndarray) and array.ndim > axis and array.shape[axis] == size
    return np.ascontiguousarray(np.take(array, range(smaller), axis)) if fits else array


def _with_sizes(graph: Graph, arrays: Mapping[str, Any]) -> Graph | None:
    """The graph with the arrays' sizes as input sizes; None if its ops do not accept them."""
    try:
        return infer(with_sizes_of(graph, [arrays[node.name] for node in graph.inputs]), strict=True)
    except PartitaError:
        return None
