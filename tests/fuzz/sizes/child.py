"""The process in which models of any size are called: python -m tests.fuzz.sizes.child

Answers each line of JSON (a subject, its seed, a way, a device) with a line before each step and one with the calls' outcomes."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import warnings
from typing import Any

from tests.fuzz.guard.kernels import guard_all
from tests.fuzz.sizes.judge import Oracle, judged
from tests.fuzz.sizes.networks import Network
from tests.fuzz.sizes.opened import calls
from tests.fuzz.sizes.subjects import model_of


def main() -> None:
    """Serve until the input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    guards = guard_all(lambda symbol: print(json.dumps({"kernel": symbol}), file=answers))
    for line in sys.stdin:
        request = json.loads(line)

        def tell(stage: str) -> None:
            print(json.dumps({"stage": stage}), file=answers)

        tell("draw")
        rows = []
        for at_end in (True, False) if request["twice"] else (bool(request["seed"] % 2),):
            guards.at_end = at_end
            rows += _rows(request, at_end, tell)
        print(json.dumps({"rows": rows, "ran": guards.ran}), file=answers)
        guards.ran = 0


def _rows(request: dict[str, Any], at_end: bool, tell: Any) -> list[Any]:
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
