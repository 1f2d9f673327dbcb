"""Compilation of bodies: each second-level body is lowered alone, built once per structure, and assembled with others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.interface.compile_story import KernelWork
from partita.accelerators.process.descriptors import at_a_terminal, show_progress
from partita.accelerators.tvm.bodies.blocked import origins_of
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.bodies.lifting import Lifted, store_own_weights
from partita.accelerators.tvm.bodies.stored_types import element_types, why_wide
from partita.accelerators.tvm.code.building import Built, Workers
from partita.accelerators.tvm.code.codegen import expressions_if_large
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, Origin
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.query.isolated_trials import Isolation
from partita.accelerators.tvm.tune.findings import choices_in, findings
from partita.graph.errors import PartitaError
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.device import TvmAccelerator


def compile_lifted(
    device: TvmAccelerator, lifted: Lifted, checks: tuple[str, ...], config: Mapping[str, Any], machine: Machine
) -> CompiledTvm:
    """The bodies compiled and assembled for this device; `checks` are the error messages of the last outputs, which are flags."""
    store_own_weights(lifted)
    bodies = lifted.bodies
    progress = _Progress(device.name, len({body.key for body in bodies.values()}), config["PROGRESS"])
    check_all, check_scheduled = _checks(machine, config)
    tuned = findings(config, machine)
    workers = Workers(machine, lambda body: choices_in(tuned, body.key), check_scheduled)
    running: dict[Node, Future[Built]] = {}
    built: dict[Node, tuple[Body, Built]] = {}
    with progress, workers:
        for node, body in bodies.items():
            progress.step(body.key, node.name)
            with _blamed_on(node, machine):
                check_all(body)
                running[node] = workers.build(body)
        for node, body in bodies.items():
            with _blamed_on(node, machine):
                built[node] = body, running[node].result()
    assembled = attrs.evolve(device.put_together(lifted, built, machine), checks=checks)
    launches, origins = _launches(assembled, built)
    compiled = device.compiled_class()(assembled, launches, origins, device.runs_on(config), bool(config["PERF_COUNT"]))
    compiled.work = _work(built, workers.fresh)
    compiled.notes = _in_haste(built)
    compiled.check_code()
    return compiled


def _launches(assembled: Assembled, built: Mapping[Node, tuple[Body, Built]]) -> tuple[list[Launch], list[Origin]]:
    """A description of each launch, and the sources of its kernel."""
    calls = {node.name: node for node in built}
    bodies = {node.name: body for node, (body, _) in built.items()}
    launches, origins = [], []
    for step in assembled.steps:
        body, lowered = bodies[step.call], built[calls[step.call]][1].lowered
        layer = "+".join(str(node.op) for node in body.ops)
        schedule = lowered.schedules[step.symbol]
        call = calls[step.call]
        assert call.subgraph is not None
        words = element_types(body), why_wide(call.subgraph)
        launches.append(Launch(step.call, step.symbol, step.runs, schedule, _ops(call), layer, *words))
        origins.append(Origin(body, built[calls[step.call]][1], step.symbol))
    return launches, origins


def _checks(machine: Machine, config: Mapping[str, Any]) -> tuple[Callable[[Body], None], Callable[[Body], None]]:
    """Checks that are called with every body before it is compiled, and with bodies whose kernels TVM schedules."""
    check = Isolation(machine, config["ISOLATE_SECONDS"]).check
    return (check if config["ISOLATE"] else _unchecked), (check if config["ISOLATE"] is None else _unchecked)


def _unchecked(body: Body) -> None:
    """No check."""


@contextlib.contextmanager
def _blamed_on(node: Node, machine: Machine) -> Iterator[None]:
    """A context that adds the names of the nodes that cannot be compiled to an error."""
    try:
        yield
    except PartitaError as error:
        raise CompileError(
            error.cause,
            where=f"{', '.join(f'{inner.name!r} ({inner.op})' for inner in _inner(node)[:4])} on device {machine.kind!r}",
            remedy="Place these nodes on another device",
        ) from error


def _inner(node: Node) -> list[Node]:
    assert node.subgraph is not None
    return [inner for inner in node.subgraph.nodes if inner.is_op]


def _ops(node: Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for inner in _inner(node) for name in origins_of(inner)))


def _in_haste(built: Mapping[Node, tuple[Body, Built]]) -> tuple[str, ...]:
    """A note for each kernel that LLVM compiled at its lowest optimization level."""
    on_processor = {node.name: code.lowered for node, (_, code) in built.items() if not code.machine.is_gpu}
    counts = {name: expressions_if_large(lowered.kernels()) for name, lowered in on_processor.items()}
    return tuple(
        f"kernel {name!r} is compiled at LLVM's lowest level: for its {count:,} expressions the others would take long"
        for name, count in counts.items()
        if count
    )


def _work(built: Mapping[Node, tuple[Body, Built]], fresh: Collection[str]) -> tuple[KernelWork, ...]:
    """Compile time of each kernel; the first of equal structure has all of it, unless the process had its code already."""
    waiting, work = set(fresh), []
    for node, (body, code) in built.items():
        is_shared = body.key not in waiting
        waiting.discard(body.key)
        work.append(KernelWork(node.name, _ops(node), 0.0 if is_shared else code.seconds, is_shared))
    return tuple(work)


class _Progress:
    """Counts the kernels that are being compiled, and reports it to a callback or on a terminal."""

    def __init__(self, device: str, total: int, callback: Callable[[int, int, str], Any] | None) -> None:
        self.device = device
        self.total = total
        self.callback = callback
        """Called with the number of kernels done, their total number, and the name of the one that starts."""
        self._seen: set[str] = set()
        self._shown = callback is None and total > 1 and at_a_terminal()

    def step(self, key: str, name: str) -> None:
        """Report that a kernel of this structure starts; known structures take no time and are not counted."""
        if key in self._seen:
            return
        if self.callback is not None:
            self.callback(len(self._seen), self.total, name)
        self._seen.add(key)
        if self._shown:
            text = f"{self.device}: kernel {len(self._seen)} of {self.total}: {name:.40s}"
            show_progress(f"\r{text}\033[K", end="")

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._shown:
            show_progress("\r\033[K", end="")
