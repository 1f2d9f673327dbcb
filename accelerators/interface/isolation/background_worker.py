"""A device whose queries and compilations run in a child process, and its subgraphs here.

This is for background work, which must not slow down the calls that this process answers meanwhile."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from partita.accelerators.errors import AcceleratorError, CompileError, NotSupported
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.isolation.isolated_device import Isolated, IsolatedSubgraph, Order
from partita.accelerators.interface.isolation.process import ClassOrigin, DeviceChild, DeviceProcess, Limit, origin_of
from partita.accelerators.process.background import behind, lowered
from partita.accelerators.process.compile_slots import GivenUp, SlotSeeker, places
from partita.accelerators.process.cores import all_but_one_core, default_threads
from partita.accelerators.process.messages import config_told
from partita.graph.graph import Graph
from partita.graph.text.digests import arrays_in

MEMORY = 300 << 20
"""Base memory of a process in bytes."""

COPIES = 4
"""Maximum number of copies of the weights in memory: as sent, packed, as returned, and as kept."""


class Workshop(DeviceProcess):
    """The background compile process of one model. It prints nothing and has low priority."""

    def __init__(self, origin: ClassOrigin, limit: Limit) -> None:
        """`limit` is the time limit of each task: one that hangs would keep its compile slot from all who wait."""
        super().__init__(origin)
        self.limit = limit
        self.is_over = False
        """True once it has done its work. From then on the device compiles in this process."""
        self.has_place = False
        """True if its owner has already reserved a compile slot for it."""
        self._workers = set[SlotSeeker]()
        """Its tasks that may be waiting for a compile slot."""
        self._is_given_up = False

    @contextmanager
    def place(self, graph: Graph) -> Iterator[None]:
        """Reserves a compile slot for the graph: there is one for each model, since all at once would fill the memory."""
        if self.has_place:
            yield
            return
        worker = SlotSeeker()
        self._workers.add(worker)
        try:
            if self._is_given_up:
                worker.give_up()
            with places.place(worker, MEMORY + COPIES * sum(array.nbytes for array in arrays_in(graph))):
                yield
        except GivenUp:
            raise self._unwanted() from None
        finally:
            self._workers.discard(worker)
        self.rest()

    def rest(self) -> None:
        """Ends the idle process if others wait for its slot; the next request starts it again."""
        if places.is_wanted and not self.has_place and self._guard.lock.acquire(blocking=False):
            self.end()
            self._guard.lock.release()

    def begin(self) -> None:
        """Starts the process before it is needed, unless other models compile: it would wait for its slot, and take memory."""
        if places.are_free:
            super().begin()

    @contextmanager
    def child(self) -> Iterator[DeviceChild]:
        """The running process; CompileError once it has been given up, also while it was being started or waited for."""
        with super().child() as child:
            if self._is_given_up:
                self.end()
            self._check_wanted()
            yield child

    def _check_wanted(self) -> None:
        if self._is_given_up:
            raise self._unwanted()

    def _unwanted(self) -> CompileError:
        return CompileError("nobody waits for it any more", where=f"device {self.origin.device!r}")

    @property
    def time_to_start(self) -> Limit:
        return self.limit

    def new_child(self) -> DeviceChild:
        self._check_wanted()
        child = DeviceChild(self.origin, quiet=True, variables={"TVM_NUM_THREADS": str(default_threads())})
        with contextlib.suppress(OSError):  # if priorities cannot be set, it runs like any other process
            os.setpriority(os.PRIO_PGRP, child.number, lowered())
            _keep_off_one_core(child.number)
        return child

    def close(self) -> None:
        """Ends the process; the device compiles in this process from now on."""
        self.is_over = True
        self.end()

    def give_up(self) -> None:
        """Kills the process during its work, which is not needed any more."""
        self._is_given_up = True
        for worker in list(self._workers):
            worker.give_up()
        child = self.current
        if child is not None:
            child.kill()
        if self._guard.lock.acquire(blocking=False):  # else it is in use: the thread that talks to it closes its descriptors
            self.end()
            self._guard.lock.release()

    def renew(self) -> None:
        """Resets the state in a forked process, where no task runs or waits."""
        super().renew()
        self.has_place, self._workers = False, set()


def _keep_off_one_core(process: int) -> None:
    """Leaves one core to the calls. The scheduler counts a core with a low-priority process as busy: with one on each core it
    sometimes put two threads of a call on the same core."""
    others = all_but_one_core() if hasattr(os, "sched_setaffinity") else ()
    if others:
        os.sched_setaffinity(process, others)


def afar(accelerator: Accelerator, config: Mapping[str, Any], limit: Limit) -> tuple[Accelerator, Workshop] | None:
    """The accelerator with its work done in a workshop, until that is over, each task within the limit. None if no other process
    can do it, since its class or its configuration exists only in this one."""
    kind: Any = type(accelerator)
    try:
        workshop = Workshop(origin_of(accelerator.name, kind), limit)
        config_told(config, f"config of device {accelerator.name!r}")
    except AcceleratorError:
        return None
    copied = copy.copy(accelerator)
    copied.__class__ = _class(kind)
    assert isinstance(copied, _Afar)
    copied.process = copied.workshop = workshop
    return copied, workshop


def is_afar(accelerator: Accelerator) -> bool:
    """True if the accelerator works in a workshop."""
    return isinstance(accelerator, _Afar)


@cache
def _class(kind: Any) -> type[Accelerator]:
    return type(f"Afar{kind.__name__}", (_Afar, kind), {"device_class": kind})


class _Afar(Isolated):
    """A device whose queries and compilations run in its workshop."""

    workshop: Workshop

    def transform(self, graph: Graph) -> Graph:
        return self.device_class.transform(self, graph) if self.workshop.is_over else graph

    def stages(self, graph: Graph) -> Iterable[Graph]:
        return self.device_class.stages(self, graph) if self.workshop.is_over else (graph,)

    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        return self.device_class.query(self, graph) if self.workshop.is_over else super().query(graph)

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """None while the workshop answers: it would not hear of them, and what finds them takes long to load."""
        return self.device_class.findings(self) if self.workshop.is_over else None

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Compiles and exports in the workshop, and imports the result. Compiles here if there is no room for the transfer, as on
        a full disk."""
        if self.workshop.is_over:
            return self.device_class.compile(self, graph, config)
        order = Order(graph, config, self._where)
        with self.workshop.place(graph):
            compiled = behind(lambda: IsolatedSubgraph(self.workshop, order, self.workshop.limit))
            try:
                data, weights = behind(compiled.exported)
                return self.import_(data, graph, config, *((weights,) if weights else ()))
            except (NotSupported, OSError):
                return self.device_class.compile(self, graph, config)

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], *weights: Sequence[Any]) -> CompiledSubgraph:
        return self.device_class.import_(self, data, graph, config, *weights)

    def _limit(self, config: Mapping[str, Any]) -> Limit:
        return self.workshop.limit
