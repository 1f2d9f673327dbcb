"""Random models on every device: python -m tests.fuzz.models --count 1000

Prints each difference that has no written reason, cut down to a few nodes, as text and as a file, and at last what was tried."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

import attrs

import partita as pt
from tests.fuzz.children import Child
from tests.fuzz.models.builder import Case
from tests.fuzz.models.check import SETTINGS, Finding
from tests.fuzz.models.generate import generate
from tests.fuzz.models.reasons import reason_of
from tests.fuzz.models.reduce import cut, flat, reduced, shown

SECONDS = 60.0
"""A model that takes longer in all its settings hangs."""


@attrs.define
class Tally:
    """What was tried."""

    models: int = 0
    runs: int = 0
    refused: Counter[str] = attrs.Factory(Counter)
    """Drawn models that were not valid and were replaced, by op."""
    known: Counter[str] = attrs.Factory(Counter)
    """Differences by their written reason."""
    unknown: list[tuple[int, Finding]] = attrs.Factory(list)
    """Differences that have no written reason, each with its seed."""


class Campaign:
    """Models by seed, in a child process."""

    def __init__(self, settings: Sequence[str], folder: Path | None = None, seconds: float = SECONDS) -> None:
        self.settings = list(settings)
        self.folder = folder
        """Where models that fail are written."""
        self.seconds = seconds
        self.tally = Tally()
        self.child = Child("tests.fuzz.models.child", "findings")

    def try_seed(self, seed: int) -> None:
        """One model in all settings."""
        self.tally.models += 1
        left = self.settings
        while left:
            findings, ran = self._ask(seed, left, None)
            self.tally.runs += ran
            for finding in findings:
                self._judge(seed, finding)
            left = left[ran:] if any(f.what in ("crashed", "hung") for f in findings) else []

    def close(self) -> None:
        """End the child."""
        self.child.close()

    def _ask(
        self, seed: int, settings: Sequence[str], keep: Set[str] | None, inlined: bool = False
    ) -> tuple[list[Finding], int]:
        """What was found, and in how many settings the model was run."""
        kept = None if keep is None else sorted(keep)
        question = {"seed": seed, "settings": list(settings), "keep": kept, "flat": inlined}
        answer = self.child.ask(question, self.seconds)
        if answer.last is not None:
            if keep is None:
                self.tally.refused.update(text.split("-")[0].split(":")[0] for text in answer.last["refused"])
            return [Finding(**finding) for finding in answer.last["findings"]], len(settings)
        setting = answer.notes[-1]["setting"] if answer.notes else "start"
        ran = list(settings).index(setting) + 1 if setting in settings else len(settings)
        return [Finding(setting, answer.end, answer.printed)], ran

    def _judge(self, seed: int, finding: Finding) -> None:
        """Cut the model down, and look for a reason."""
        whole = generate(seed)
        case, last = self._cut_down(whole, seed, finding, inlined=False)
        if any(node.is_call for node in case.graph.nodes):
            inlined, shown_by = self._cut_down(flat(whole), seed, finding, inlined=True)
            if shown_by is not finding:
                case, last = inlined, shown_by
        reason = reason_of(case, last)
        if reason is not None:
            self.tally.known[reason] += 1
            return
        self.tally.unknown.append((seed, last))
        self._print(seed, last, case)

    def _cut_down(self, whole: Case, seed: int, finding: Finding, inlined: bool) -> tuple[Case, Finding]:
        """The few ops that show the difference, and how they show it; all of them and the finding itself where they do not."""
        last = finding

        def fails(names: Set[str]) -> bool:
            nonlocal last
            result, _ = self._ask(seed, [finding.setting], names, inlined)
            same = [
                other for other in result if (other.setting, other.what) == (finding.setting, finding.what)
            ]
            last = same[0] if same else last
            return bool(same)

        if inlined and not fails({node.name for node in whole.graph.nodes if node.is_op}):
            return whole, finding
        kept = reduced(whole, fails)
        return cut(whole, kept) or whole, last

    def _print(self, seed: int, finding: Finding, case: Case) -> None:
        print(
            f"-- seed {seed} on {finding.setting}: {finding.what}: {finding.detail}\n{shown(case)}",
            flush=True,
        )
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{seed}-{finding.setting}.onnx"
            pt.save(case.graph, path)
            print(f"   written to {path}", flush=True)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    """Try so many models, or for so many seconds; 1 if anything has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.models", description=__doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seeds", type=_numbers, help="these instead, with commas between them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="some of: " + ", ".join(SETTINGS))
    parser.add_argument("--folder", type=Path, help="where models that fail are written")
    options = parser.parse_args()
    campaign = Campaign(options.settings.split(","), options.folder)
    start = time.monotonic()
    for seed in options.seeds or range(options.start, options.start + options.count):
        if time.monotonic() - start > options.seconds:
            break
        campaign.try_seed(seed)
    campaign.close()
    tally = campaign.tally
    print(
        f"{tally.models} models from seed {options.start}, {tally.runs} runs, {time.monotonic() - start:.0f} s"
    )
    print(f"  drawn again: {', '.join(f'{op} {count}' for op, count in tally.refused.most_common()) or 'none'}")
    for text, count in tally.known.most_common():
        print(f"  known, {count}: {text}")
    print(f"  without a reason: {len(tally.unknown)}")
    for seed, finding in tally.unknown:
        first = (finding.detail.splitlines() or [""])[0]
        print(f"    seed {seed} on {finding.setting}: {finding.what}: {first[:150]}")
    return 1 if tally.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
