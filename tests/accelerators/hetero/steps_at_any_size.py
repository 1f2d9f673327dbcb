"""Drawn runs of models whose sizes are known at the call."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from partita.accelerators.arrays.on_device import ON_DEVICE
from partita.accelerators.building import specialized
from partita.accelerators.errors import CompileError
from partita.accelerators.interface.accelerator import AnySize, CompiledSubgraph
from partita.graph.interpret import interpret


class Timed(CompiledSubgraph):
    """Interprets its body, and says so; a clock goes on meanwhile."""

    concurrent = True

    def __init__(self, graph: pt.Graph, name: str, said: list[str], wait: Callable[[], None], memory: str = "host") -> None:
        self.graph, self.name, self.said, self.wait, self.memory = graph, name, said, wait, memory

    def run(self, inputs: Any, out: Any = None) -> Any:
        self.said.append(f"{self.name} {None if out is None else ['device' if one is not None else None for one in out]}")
        self.wait()
        return interpret(self.graph, inputs)

    def upload(self, array: Any) -> Any:
        self.said.append("up")
        return array

    def download(self, value: Any) -> Any:
        self.said.append("down")
        return value

    def let_go(self) -> None:
        self.said.append(f"{self.name} let go")

    def profile_rows(self) -> Any:
        return (pt.ProfileRow(self.name, "", "EXECUTED", 1.0, 1.0, ""),)

    def kernels(self) -> Any:
        return (self.name,)

    def native(self, inputs: Any) -> Any:
        return self, inputs


class Any_(AnySize):
    """Takes the sizes that divide by a number."""

    def __init__(self, compiled: CompiledSubgraph, divisor: int) -> None:
        self.compiled, self.divisor, self.notes = compiled, divisor, (f"multiples of {divisor}",)

    def given(self, shapes: Any, inputs: Any) -> Any:
        return inputs if shapes[0][0] and shapes[0][0] % self.divisor == 0 else None

    def is_empty(self, shapes: Any) -> bool:
        return 0 in shapes[0]


class Begun:
    """A thread whose work is done later."""

    waiting: list[Callable[[], None]] = []

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.target = target

    def start(self) -> None:
        self.waiting.append(self.target)


def sizes(rng: random.Random) -> Iterator[str]:
    """The way that each of drawn sizes runs, by a clock that goes as drawn."""
    x = pt.variable("x", "float32", ("n", 3))
    y = pt.op("Gather", pt.op("Add", x, x, name="sum"), pt.constant(np.array([0])), axis=rng.choice((0, 1, 1)), name="taken")
    graph = pt.apply_pass(pt.Graph([y], name="body"), "InferShape")
    now, said = [0.0], list[str]()
    compiling, standing = rng.choice((0.05, 0.0999, 0.1, 0.3)), rng.choice((0.04, 0.1, 0.2))
    broken = rng.choice(((), (), (2,), (2, 4), (1, 2, 3, 4, 5, 6)))
    memory = rng.choice(("host", "host", "toy"))

    def wait(seconds: float) -> Callable[[], None]:
        def later() -> None:
            now[0] += seconds
        return later

    def compile_static(static: pt.Graph) -> CompiledSubgraph:
        now[0] += compiling
        size = static.inputs[0][0].type.shape[0]  # type: ignore[union-attr, index]
        said.append(f"compiles {size}")
        if size in broken:
            raise CompileError(f"not {size}")
        return Timed(static, f"for {size}", said, wait(0.0), memory)

    def stand_in(whole: pt.Graph) -> CompiledSubgraph | None:
        said.append("stand-in")
        return Timed(whole, "instead", said, wait(standing)) if there else None

    there, behind = rng.random() < 0.8, rng.random() < 0.3
    any_size = rng.choice((None, None, "no kernels", Any_(Timed(graph, "any", said, wait(0.0)), rng.choice((2, 3)))))
    Begun.waiting = []
    with (
        mock.patch.object(specialized, "time", SimpleNamespace(perf_counter=lambda: now[0])),
        mock.patch.object(specialized, "threading", SimpleNamespace(local=threading.local, Thread=Begun)),
        mock.patch.object(specialized, "KEPT", 2), mock.patch.object(specialized, "COUNTED", rng.choice((1, 2, 9))),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        one = specialized.SpecializedSubgraph(graph, compile_static, stand_in, behind, any_size)
        yield f"{compiling} {standing} {broken} {memory} {there} {behind} {one.notes}"
        for _ in range(rng.randint(6, 14)):
            size = rng.choice((0, 1, 2, 2, 3, 4, 4, 5, 6))
            array = np.ones((size, rng.choice((3,) * 9 + (4,))), np.float32)
            out: Any = rng.choice((None, None, [None], [ON_DEVICE], [np.ones((size, 1), np.float32)]))
            said.clear()
            del warned[:]
            try:
                result = str(one.run([array], out)[0].shape)
            except pt.PartitaError as error:
                result = f"{type(error).__name__}: {error}"
            rows = [row.node for row in one.profile_rows()]
            native = one.native([array])
            yield f"{size}: {said} {result} {rows} {native and native[0].kernels()} {[str(each.message) for each in warned]}"
            yield f"{one.sizes} {one.kernels()} {one.stood_in} {len(one._stand_in._spent)} {len(one._stand_in._only)}"
            if Begun.waiting and rng.random() < 0.6:
                Begun.waiting.pop(0)()
                yield f"{said[-3:]} {one._at_work}"
        said.clear()
        one.let_go()
        yield str(said)
