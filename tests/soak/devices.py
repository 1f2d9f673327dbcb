"""A device that misbehaves at random, in a model of several devices: each call is a right answer or one error that names it."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.runtime.starting.work import Starting
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device
from tests.soak.figures import Figures, rounds_for

LIMIT = 0.2
"""Seconds that a request has."""

WAYS = ("right", "raises", "third", "hangs", "shape", "dtype", "count", "none", "foreign", "nan", "compile", "slow")

SETTINGS: tuple[dict[str, Any] | None, ...] = (
    {}, {"PIPELINE": True}, {"PIPELINE": "AUTO"}, {"START": "now", "START_WITH": "reference"}, None,
)
"""How a model of that device and another answers; None: each device has all of the model, and a request runs on one of them.
Their number has no divisor in common with that of WAYS, so that each way meets each setting."""


def attack(seconds: float, seed: int) -> Figures:
    """One misbehaviour after the other, asked by several threads."""
    figures, chance = Figures(), random.Random(seed)
    for number in rounds_for(seconds, at_least=len(WAYS)):
        _one(figures, WAYS[number % len(WAYS)], SETTINGS[number % len(SETTINGS)], chance)
    return figures


def _net() -> pt.Graph:
    x = pt.variable("x", "float32", (4,))
    return pt.Graph([pt.op("Neg", pt.op("Relu", pt.op("Abs", x, name="a"), name="b"), name="c")], name="net")


def _one(figures: Figures, way: str, setting: dict[str, Any] | None, chance: random.Random) -> None:
    """One model and nine requests."""
    calls, released = [0], threading.Event()

    def run(self: Any, inputs: Any, out: Any = None) -> Any:
        calls[0] += 1
        outputs = interpret(self.graph, inputs)
        if way == "raises" or (way == "third" and calls[0] % 3 == 0):
            raise ValueError("boo")
        if way == "hangs":
            released.wait(30)
        return _changed(way, outputs)

    members: dict[str, Any] = {"run": run, "concurrent": chance.random() < 0.5}
    breaks = "Relu" if way == "compile" else ""
    x = np.float32([1, -2, 3, -4])
    with device("odd", None if setting is None else "Relu", breaks=breaks, subgraph_type=type("Odd", (Ran,), members)):
        limits = {"NUM_REQUESTS": 4, "REQUEST_SECONDS": LIMIT if way == "hangs" else 60}
        try:
            model = pt.compile(_net(), "MULTI:odd,reference" if setting is None else "HETERO:odd,reference",
                               {"HETERO": {**limits, **(setting or {})}})
        except pt.PartitaError as error:
            if way != "compile" or setting is not None or "'odd'" not in str(error):
                figures.failed("differences", f"a device that {way} cannot be compiled for with {setting}: {error}")
            figures.tried += 1
            return
        if isinstance(model, Starting):
            model.wait()
        futures = [model.start(x) for _ in range(9)]
        for future in futures:
            figures.calls += 1
            try:
                answer = future.result(60)[0]
            except pt.PartitaError as error:
                _check_error(figures, way, error)
            except TimeoutError:
                figures.failed("hangs", f"a device that {way}")
            else:
                _check_answer(figures, way, answer, x, setting is None)
        released.set()
        model.close()
    figures.tried += 1


def _changed(way: str, outputs: list[Any]) -> Any:
    changes: dict[str, Any] = {
        "shape": [outputs[0][:2]], "dtype": [outputs[0].astype("f8")], "count": outputs * 2, "none": None,
        "foreign": [outputs[0].astype(">f4")], "nan": [outputs[0] * np.float32(np.nan)],
    }
    return changes.get(way, outputs)


def _check_error(figures: Figures, way: str, error: pt.PartitaError) -> None:
    if way in ("right", "nan", "compile", "slow"):
        figures.failed("differences", f"a device that {way} is an error: {error}")
    elif way == "hangs":
        if not isinstance(error, pt.RequestTimeout):
            figures.failed("differences", f"a hang is told as {error}")
    elif "'odd'" not in str(error):
        figures.failed("differences", f"the error does not name the device: {error}")


def _check_answer(figures: Figures, way: str, answer: Any, x: Any, is_other_possible: bool) -> None:
    """`is_other_possible`: the request may have run on the other device alone, which is right."""
    if is_other_possible and np.array_equal(answer, -np.abs(x)):
        return
    wanted = -np.abs(x) * np.float32(np.nan if way == "nan" else 1)
    never = way in ("raises", "hangs", "shape", "dtype", "count", "none", "foreign")
    if never or not np.array_equal(answer, wanted, equal_nan=True):
        figures.failed("differences", f"a device that {way} gives {answer}")
