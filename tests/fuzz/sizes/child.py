"""The process in which models of any size are called: python -m tests.fuzz.sizes.child

Answers each line of JSON (a subject, its seed, a way, a device) with a line before each step and one with the calls' outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.fuzz.children import Tell, serve
from tests.fuzz.guard.kernels import Guards, guard_all
from tests.fuzz.sizes.judge import Oracle, judged
from tests.fuzz.sizes.networks import Network
from tests.fuzz.sizes.opened import calls
from tests.fuzz.sizes.subjects import model_of


def main() -> None:
    """Serve until the input ends."""
    serve(_answer)


def _answer(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    guards = _guards(tell)
    guards.ran = 0
    tell({"stage": "draw"})
    rows = []
    for at_end in (True, False) if request["twice"] else (bool(request["seed"] % 2),):
        guards.at_end = at_end
        rows += _rows(request, at_end, lambda stage: tell({"stage": stage}))
    return {"rows": rows, "ran": guards.ran}


@cache
def _guards(tell: Tell) -> Guards:
    return guard_all(lambda symbol: tell({"kernel": symbol}))


def _rows(request: dict[str, Any], at_end: bool, tell: Callable[[str], None]) -> list[Any]:
    """The model called at its first sizes and then at others; and a second one, with the others at first."""
    name, seed, way = request["name"], request["seed"], request["way"]
    model = model_of(name, seed, way)
    if model is None:
        return []
    rng = random.Random(f"{name} {seed} {way}")
    others = model.sizes if isinstance(model, Network) else [*calls(model, rng, request["calls"])]
    skip, crashed = ({tuple(map(tuple, shapes)) for shapes in request[key]} for key in ("skip", "engine_crashed"))
    others = [shapes for shapes in others if shapes not in skip]
    sizes = others
    if not isinstance(model, Network):
        sizes = [model.base, *others, model.base] if at_end else [*reversed(others), model.base]
    order = "after a good call" if at_end else "first"
    judge = judged(model, sizes, request["where"], at_end, tell, Oracle(model, crashed))
    return [[order, row.verdict, row.shapes, row.detail] for row in judge]


if __name__ == "__main__":
    main()
