"""The process in which kernels run between guard pages: python -m tests.fuzz.guard.child

Answers each line of JSON (a name and a seed) with a line for every kernel before it runs, and one with what came of it."""

from __future__ import annotations

from typing import Any

from partita.accelerators.interface.registry import accelerator
from partita.graph.errors import PartitaError
from partita.passes import apply_pass
from tests.fuzz.children import Tell, serve
from tests.fuzz.guard.kernels import run_guarded
from tests.fuzz.guard.subjects import subject


def main() -> None:
    """Serve until the input ends."""
    serve(lambda request, tell: _run(request["name"], request["seed"], tell))


def _run(name: str, seed: int, tell: Tell) -> dict[str, Any]:
    case = subject(name, seed)
    if case is None:
        return {"outcome": "none"}
    try:
        graph = apply_pass(case.graph, "InferShape", strict=False)
        if any(answer is not True for answer in accelerator("cpu").query(graph).values()):
            return {"outcome": "refused"}
        return {"outcome": "ran", **run_guarded(graph, case.feeds, lambda symbol: tell({"kernel": symbol}))}
    except PartitaError as error:
        return {"outcome": "error", "detail": str(error)[:300]}


if __name__ == "__main__":
    main()
