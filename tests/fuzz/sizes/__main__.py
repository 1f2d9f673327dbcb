"""Models called at sizes that contradict them: python -m tests.fuzz.sizes --seeds 3

Each op with sizes left open, on `cpu` with the reference behind it, at sizes of which most contradict a constant or each other.
Where onnxruntime and the reference refuse a call Partita has to refuse it, and where they answer it has to answer alike. All
arrays lie between pages that nobody may touch."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import attrs

from tests.fuzz.children import Child
from tests.fuzz.guard.subjects import node_names
from tests.fuzz.sizes.judge import FAILURES
from tests.fuzz.sizes.opened import WAYS
from tests.fuzz.sizes.subjects import chain_names, microsoft_names, misfit_names, network_names, newer_names, op_names, ways_of

SECONDS = 180.0
"""A model that takes longer hangs."""

DEVICES = "HETERO:cpu,reference"

GROUPS = {
    "misfits": misfit_names, "ops": op_names, "microsoft": microsoft_names, "nodes": node_names, "networks": network_names,
    "newer": newer_names, "chains": chain_names,
}
"""Subjects by the word that stands for them."""


@attrs.define
class Tally:
    """What was tried."""

    models: int = 0
    kernels: int = 0
    """How many kernels ran between guard pages."""
    verdicts: dict[str, Counter[str]] = attrs.Factory(lambda: defaultdict(Counter))
    """Calls by verdict, for each op."""
    failures: list[str] = attrs.Factory(list)

    @property
    def total(self) -> Counter[str]:
        """Calls by verdict."""
        return sum(self.verdicts.values(), Counter())


class Campaign:
    """Models by name, seed and way, in a child process."""

    def __init__(self, where: str = DEVICES, calls: int = 8, loud: bool = False, brief: bool = False) -> None:
        self.where, self.calls, self.loud, self.brief = where, calls, loud, brief
        self.tally = Tally()
        self._child = Child("tests.fuzz.sizes.child", "rows", renewed_after=200)

    def try_model(self, name: str, seed: int, way: str) -> None:
        """One model at all its sizes."""
        skip: list[object] = []
        crashed: list[object] = []
        self.tally.models += 1
        while True:
            question = {"name": name, "seed": seed, "way": way, "where": self.where, "calls": self.calls, "skip": skip,
                        "engine_crashed": crashed, "twice": not name.startswith(("network ", "chain"))}
            answer = self._child.ask(question, SECONDS)
            if answer.last is not None:
                break
            stages = [note["stage"] for note in answer.notes if "stage" in note]
            stage, _, shapes = stages[-1].partition(" at ") if stages else ("start", "", "")
            kernel = answer.notes[-1].get("kernel", "") if answer.notes else ""
            if stage != "oracle":
                self._note(name, seed, way, answer.end, f"{stage} {shapes}", f"{kernel} {answer.printed[-300:]}")
            listed = crashed if stage == "oracle" else skip
            if not shapes or json.loads(shapes) in listed or (self.brief and stage != "oracle"):
                return
            listed.append(json.loads(shapes))
        self.tally.kernels += answer.last["ran"]
        for order, verdict, shapes, detail in answer.last["rows"]:
            self._note(name, seed, way, verdict, f"{shapes} {order}", detail)

    def close(self) -> None:
        """End the child."""
        self._child.close()

    def _note(self, name: str, seed: int, way: str, verdict: str, sizes: str, detail: str) -> None:
        self.tally.verdicts[name][verdict] += 1
        if verdict in FAILURES or verdict.startswith(("crashed", "hung")):
            line = f"{verdict}: {name}, seed {seed}, {way}: {sizes}: {' '.join(detail.split())[:300]}"
            self.tally.failures.append(line)
            if self.loud:
                print(line, flush=True)


def models(names: Sequence[str], seeds: range, ways: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Names, seeds and ways."""
    for seed in seeds:
        for name in names:
            if not seed or not name.startswith("misfit "):  # A misfit has no numbers to draw.
                yield from ((name, seed, way) for way in ways_of(name, ways))


def main() -> int:
    """Try all; 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sizes", description=__doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3, help="how many models of each op")
    parser.add_argument("--names", help=f"some ops, with commas between them; or {', '.join(GROUPS)}")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of: " + ", ".join(WAYS))
    parser.add_argument("--where", default=DEVICES, help="the devices")
    parser.add_argument("--calls", type=int, default=8, help="sizes of each model")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--brief", action="store_true", help="leave a model that crashed")
    options = parser.parse_args()
    wanted = options.names.split(",") if options.names else ["misfits", "ops", "microsoft"]
    names = [other for name in wanted for other in (GROUPS[name]() if name in GROUPS else [name])]
    campaign, start = Campaign(options.where, options.calls, loud=True, brief=options.brief), time.monotonic()
    for name, seed, way in models(names, range(options.start, options.start + options.seeds), options.ways.split(",")):
        if time.monotonic() - start > options.seconds:
            print(f"stopped before {name}, seed {seed}, {way}")
            break
        campaign.try_model(name, seed, way)
        if sys.stderr.isatty():
            print(f"\r{campaign.tally.models} models, {len(campaign.tally.failures)} failures: {name}, seed {seed}\033[K",
                  end="", file=sys.stderr, flush=True)
    campaign.close()
    tally = campaign.tally
    for name, verdicts in sorted(tally.verdicts.items()):
        print(f"  {name:32} " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in tally.total.most_common())
    print(f"{tally.models} models, {sum(tally.total.values())} calls ({counts}), {tally.kernels} kernels, "
          f"{time.monotonic() - start:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
