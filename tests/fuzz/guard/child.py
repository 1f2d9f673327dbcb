"""The process in which kernels run between guard pages: python -m tests.fuzz.guard.child

Answers each line of JSON (a name and a seed) with a line for every kernel before it runs, and one with what came of it."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
from typing import Any

from accelerators.interface.registry import accelerator
from graph.errors import PartitaError
from passes import apply_pass
from tests.fuzz.guard.kernels import run_guarded
from tests.fuzz.guard.subjects import subject


def main() -> None:
    """Serve until the input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        result = _run(
            request["name"],
            request["seed"],
            lambda symbol: print(json.dumps({"kernel": symbol}), file=answers),
        )
        print(json.dumps(result), file=answers)


def _run(name: str, seed: int, tell: Any) -> dict[str, Any]:
    case = subject(name, seed)
    if case is None:
        return {"outcome": "none"}
    try:
        graph = apply_pass(case.graph, "InferShape", strict=False)
        if any(answer is not True for answer in accelerator("cpu").query(graph).values()):
            return {"outcome": "refused"}
        return {"outcome": "ran", **run_guarded(graph, case.feeds, tell)}
    except PartitaError as error:
        return {"outcome": "error", "detail": str(error)[:300]}


if __name__ == "__main__":
    main()
