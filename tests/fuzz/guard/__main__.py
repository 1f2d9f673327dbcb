"""Kernels between guard pages: python -m tests.fuzz.guard --seeds 10

Each kind of kernel in odd sizes, each op of ONNX alone, and ONNX's node tests, on the device `cpu`: each kernel's inputs, weights
and outputs end where a page ends that nobody may touch, and then begin where one begins."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

import attrs

from tests.fuzz.children import Child
from tests.fuzz.guard.subjects import KINDS, node_names, subject
from tests.fuzz.models.generate import RECIPES
from tests.fuzz.models.reduce import shown

SECONDS = 120.0
"""A model that takes longer hangs."""


@attrs.define
class Tally:
    """What was tried."""

    outcomes: Counter[str] = attrs.Factory(Counter)
    """Models by what became of them: "ran", "refused" by the device, "none", "error"."""
    kernels: int = 0
    """Kernels that ran between guard pages."""
    failures: list[str] = attrs.Factory(list)
    """What went wrong."""


class Campaign:
    """Models by name and seed, in a child process."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._child = Child("tests.fuzz.guard.child", "outcome", renewed_after=300)

    def try_model(self, name: str, seed: int) -> str:
        """One model; -> what became of it."""
        answer = self._child.ask({"name": name, "seed": seed}, SECONDS)
        if answer.last is None:
            kernel = answer.notes[-1]["kernel"] if answer.notes else "compiling"
            self._fail(name, seed, f"{answer.end} in {kernel}: {answer.printed.strip()[:500]}")
            return answer.end
        last = answer.last
        outcome = str(last["outcome"])
        self.tally.outcomes[outcome] += 1
        self.tally.kernels += last.get("kernels", 0)
        if outcome == "ran" and not last["same"]:
            self._fail(name, seed, "other numbers, where its arrays lie otherwise")
        if outcome == "error":
            self._fail(name, seed, last["detail"])
        return outcome

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _fail(self, name: str, seed: int, what: str) -> None:
        self.tally.failures.append(f"{name}, seed {seed}: {what}")
        case = subject(name, seed)
        print(f"-- {name}, seed {seed}: {what}\n{shown(case) if case is not None else ''}", flush=True)


def models(seeds: int, nodes: bool) -> Iterator[tuple[str, int]]:
    """Names and seeds."""
    for seed in range(seeds):
        yield from ((name, seed) for name in (*KINDS, *sorted(set(RECIPES) - {"Call", "QDQ"})))
    if nodes:
        yield from ((name, 0) for name in node_names())


def main() -> int:
    """Try all; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guard", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many models of each kind and op")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--no-nodes", action="store_true", help="leave ONNX's node tests out")
    options = parser.parse_args()
    campaign, start = Campaign(), time.monotonic()
    for name, seed in models(options.seeds, not options.no_nodes):
        if time.monotonic() - start > options.seconds:
            break
        campaign.try_model(name, seed)
    campaign.close()
    tally = campaign.tally
    counts = ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common())
    print(
        f"{sum(tally.outcomes.values())} models ({counts}), {tally.kernels} kernels, {time.monotonic() - start:.0f} s"
    )
    print(f"  wrong: {len(tally.failures)}")
    for line in tally.failures:
        print(f"    {line[:200]}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
