"""Faults planted all over the models of the benchmarks, on three devices, and how many of them `diagnose` finds.

`python -m tests.insight.sweep [--devices D,...] [--models M,...] [--count N] [-o FILE]` prints a line for each, and a table of
the sums. A fault that no output shows, since what comes after it takes it away, is drawn again, and counted as hidden. With `-o`
each result is kept at once, and a run that was stopped goes on where it ended."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

import partita as pt
from tests.insight.planting import KINDS, Plant, faulty, plant_at, sites

if TYPE_CHECKING:
    from benchmarks.models import Model

DEVICES = ("onnxruntime", "openvino", "cpu")

TOLERANCE = 1e-4
"""An error of one in a hundred in one op may be much smaller in the output; the devices' own rounding is below this."""


@attrs.frozen
class Result:
    """What became of one planted fault."""

    model: str
    device: str
    plant: Plant
    blamed: tuple[str, ...]
    among: int
    tries: int
    seconds: float
    turn: int = 0
    hidden: int = 0
    """How many faults before it no output showed."""

    @property
    def exact(self) -> bool:
        """Is it the node, or the pair, and nothing else?"""
        return set(self.blamed) == self.plant.nodes

    @property
    def within(self) -> bool:
        """Are there no more compilations than allowed?"""
        return self.tries <= math.log2(self.among) + 3

    def __str__(self) -> str:
        verdict = "exact" if self.exact else f"WRONG: {', '.join(self.blamed[:4]) or 'nothing'}"
        numbers = f"{self.tries} compilations among {self.among} ops, {self.seconds:.1f} s"
        return f"{self.model} {self.device} {self.plant.kind} {', '.join(sorted(self.plant.nodes))}: {verdict}, {numbers}"


@attrs.frozen
class Subject:
    """A model and the inputs of one call."""

    name: str
    graph: pt.Graph
    inputs: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, name: str, file: Model) -> Subject:
        """A model of the benchmarks, with inputs that are not made up."""
        inputs = file.inputs()
        shapes = {key: array.shape for key, array in inputs.items()}
        return cls(name, pt.apply_pass(pt.load(str(file.path)), "InferShape", shapes=shapes), inputs)


def planted(graph: pt.Graph, kind: str, order: random.Random) -> Iterator[Plant]:
    """Faults of a kind, at nodes in random order."""
    nodes = sites(graph)
    order.shuffle(nodes)
    for node in nodes:
        plant = plant_at(node, kind, graph)
        if plant is not None:
            yield plant


def diagnosed(subject: Subject, device: str, plant: Plant, against: str) -> Result | None:
    """What `diagnose` says of a fault; None if no output shows it. A wrong output that is laid on nothing is a miss."""
    with faulty(device, plant) as label:
        start = time.perf_counter()
        devices = f"HETERO:{label},reference"
        diagnosis = pt.diagnose(subject.graph, devices, dict(subject.inputs), against=against, tolerance=TOLERANCE)
        seconds = time.perf_counter() - start
    fault = diagnosis.fault
    if fault is None:
        return None if diagnosis.ok else Result(subject.name, device, plant, (), 1, 0, seconds)
    return Result(subject.name, device, plant, fault.nodes, fault.among, fault.tries, seconds)


def swept(
    subjects: Sequence[Subject],
    devices: Sequence[str],
    count: int,
    against: str,
    seed: int = 0,
    known: Mapping[int, Result] | None = None,
) -> Iterator[Result]:
    """So many faults, kinds, models and devices taking turns. Turns whose results are known are not run again."""
    done, turn = 0, 0
    while done < count:
        subject = subjects[turn % len(subjects)]
        lap, seat = divmod(turn, len(subjects))
        kind, device = KINDS[lap % len(KINDS)], devices[(lap + seat) % len(devices)]
        result = (known or {}).get(turn) or _first_shown(subject, device, kind, against, f"{seed} {turn}")
        if result is not None:
            done += 1
            yield attrs.evolve(result, turn=turn)
        turn += 1


def _first_shown(subject: Subject, device: str, kind: str, against: str, seed: str) -> Result | None:
    """The result of the first fault that an output shows."""
    for hidden, plant in enumerate(planted(subject.graph, kind, random.Random(seed))):
        result = diagnosed(subject, device, plant, against)
        if result is not None:
            return attrs.evolve(result, hidden=hidden)
    return None


def table(results: Sequence[Result]) -> str:
    """The sums by device and by kind, as Markdown."""
    lines = ["| device | " + " | ".join(KINDS) + " | exact | compilations, at most | seconds, median | seconds, at most |"]
    lines.append("|" + "---|" * (len(KINDS) + 5))
    for device in dict.fromkeys(one.device for one in results):
        own = [one for one in results if one.device == device]
        cells = []
        for kind in KINDS:
            those = [one for one in own if one.plant.kind == kind]
            cells.append(f"{sum(one.exact for one in those)} of {len(those)}")
        cells.append(f"{sum(one.exact for one in own)} of {len(own)}")
        seconds = sorted(one.seconds for one in own)
        cells += [str(max(one.tries for one in own)), f"{seconds[len(own) // 2]:.0f}", f"{seconds[-1]:.0f}"]
        lines.append(f"| `{device}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read_results(path: Path) -> dict[int, Result]:
    """The results of a run that was stopped, by their turns."""
    if not path.exists():
        return {}
    results = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        plant = Plant(**{**row["plant"], "shape": tuple(row["plant"]["shape"])})
        results[row["turn"]] = Result(**{**row, "blamed": tuple(row["blamed"]), "plant": plant})
    return results


def main(words: Sequence[str] | None = None) -> int:
    """Run the sweep that the command line asks for."""
    from benchmarks.models import NAMES, model

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--against", default="onnxruntime")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output")
    asked = parser.parse_args(words)
    subjects = [Subject.of(name, model(name)) for name in asked.models.split(",")]
    output = Path(asked.output or os.devnull)
    known = read_results(output) if asked.output else {}
    results = []
    with output.open("a", encoding="utf-8") as file:
        for result in swept(subjects, asked.devices.split(","), asked.count, asked.against, asked.seed, known):
            results.append(result)
            if result.turn not in known:
                print(result, flush=True)
                print(json.dumps(attrs.asdict(result)), file=file, flush=True)
    exact, within = sum(one.exact for one in results), sum(one.within for one in results)
    seconds, hidden = sum(one.seconds for one in results), sum(one.hidden for one in results)
    print(table(results))
    print(f"{exact} of {len(results)} exact, {within} within log2(n) + 3 compilations, {hidden} hidden, {seconds:.0f} s")
    return 0 if exact >= 0.99 * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
