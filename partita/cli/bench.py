"""How fast a model runs, beside other devices.

The contenders take turns, in changing order: in each round each one runs once unmeasured and then several times under the
clock, so that whatever else the machine does falls on all alike. "times the first" is the median over the rounds of the
ratio within a round, with half the distance between its 10th and 90th percentile. Outputs are compared with the first one's.
--vs takes devices as --devices does; an engine then gets the whole model. MODEL may be a file that `partita compile` wrote: the
others then get what it says that it computes."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

import partita as pt
from accelerators.interface.device_list import DEFAULT
from accelerators.process.settling import settle
from partita.cli import exits
from partita.cli.arguments import (
    add_devices,
    add_inputs,
    add_model,
    add_repeated,
    at_least,
    config_of,
    names,
    positive,
)
from partita.cli.models import load_model, model_inputs, unplaced
from partita.cli.screen import Screen, table
from partita.compare import compare

EXAMPLE = """\
  partita bench zoo:squeezenet --devices cpu --vs onnxruntime,openvino --threads 2
"""

BLOCK_SECONDS = 0.03
"""The seconds that each contender runs in a round, or once if one run takes longer."""


@attrs.define(slots=True, eq=False)
class Contender:
    """One model on its devices."""

    devices: str
    """The devices, as the user named them."""
    model: pt.CompiledModel
    """The compiled model."""
    compile_seconds: float
    """The seconds that compiling took; few where the cache had the model."""
    difference: float = 0.0
    """From the outputs of the first contender."""
    rounds: list[list[float]] = attrs.field(factory=list)
    """The milliseconds of each run, round by round."""

    def as_data(self, first: Contender) -> dict[str, Any]:
        """The contender's row of the table, as data."""
        every = [taken for one in self.rounds for taken in one]
        ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(self.rounds, first.rounds)]
        tenths = statistics.quantiles(ratios, n=10, method="inclusive")
        return {
            "devices": self.devices,
            "subgraphs": self.model.properties.subgraphs,
            "compile_seconds": self.compile_seconds,
            "median_ms": statistics.median(every),
            "min_ms": min(every),
            "runs": len(every),
            "ratio": statistics.median(ratios),
            "ratio_spread": (tenths[-1] - tenths[0]) / 2,
            "difference": self.difference,
        }


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    add_devices(parser)
    group = parser.add_argument_group("measuring")
    add_repeated(group, "--vs", _rivals, "D,D", "other devices; again for a HETERO:a,b")
    group.add_argument(
        "--threads",
        type=at_least(1),
        metavar="N",
        help="NUM_THREADS of every device that has it: equal means for all",
    )
    group.add_argument(
        "--seconds",
        type=positive,
        default=5.0,
        metavar="S",
        help="measure about so long (default: %(default)s)",
    )
    add_inputs(parser.add_argument_group("inputs"))


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model for all contenders and measure them in turns."""
    start = time.perf_counter()
    graph, model = load_model(arguments, screen, _with_threads(arguments.devices, arguments))
    contenders = [Contender(_named(graph, model, arguments), model, time.perf_counter() - start)]
    refused: dict[str, str] = {}
    for devices in (d for listed in arguments.vs for d in listed):
        try:
            contenders.append(_rival(graph or model.graph, devices, arguments, screen))
        except pt.PartitaError as error:
            refused[devices] = str(error)
    inputs = model_inputs(model, arguments, screen)
    screen.say(f"measuring for about {arguments.seconds:g} s")
    _differences(contenders, inputs)
    measure(contenders, inputs, arguments.seconds)
    rows = [one.as_data(contenders[0]) for one in contenders]
    screen.write_json({"model": model.graph.name, "contenders": rows, "refused": refused})
    columns = (
        "devices",
        "subgraphs",
        "median",
        "fastest",
        "runs",
        "times the first",
        "difference",
        "ready in",
    )
    screen.show(table(f"{model.graph.name}: one run", columns, map(_cells, rows), right=columns[1:]))
    for devices, why in refused.items():
        screen.warn(f"{devices} does not run it: {why}")
    return exits.NO if refused else exits.OK


def measure(contenders: Sequence[Contender], inputs: Mapping[str, Any], seconds: float) -> None:
    """Fill `rounds`: at least three of them, then as many as there is time for."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(contenders[0].rounds) < 3:
        shift = len(contenders[0].rounds) % len(contenders)
        for one in [*contenders[shift:], *contenders[:shift]]:
            settle()
            one.rounds.append(_block(one.model, inputs))


def _block(model: pt.CompiledModel, inputs: Mapping[str, Any]) -> list[float]:
    """The milliseconds of some runs in a row, after one that is not measured."""
    model(inputs)
    milliseconds: list[float] = []
    last = time.perf_counter()
    stop = last + BLOCK_SECONDS
    while last < stop:
        model(inputs)
        now = time.perf_counter()
        milliseconds.append(1e3 * (now - last))
        last = now
    return milliseconds


def _rivals(text: str) -> list[str]:
    """Devices with commas between them; a HETERO list has commas of its own."""
    return [text] if text.upper().startswith("HETERO:") else names(text)


def _named(graph: pt.Graph | None, model: pt.CompiledModel, arguments: argparse.Namespace) -> str:
    """The name of the first contender: the devices that were asked for, or those that a compiled file was compiled
    for.
    """
    if graph is not None:
        return arguments.devices or DEFAULT
    devices = model.properties.devices
    return ("HETERO:" if len(devices) > 1 else "") + ",".join(devices)


def _rival(graph: pt.Graph, devices: str, arguments: argparse.Namespace, screen: Screen) -> Contender:
    screen.say(f"compiling for {devices}")
    start = time.perf_counter()
    model = pt.compile(unplaced(graph), devices, _with_threads(devices, arguments, own=False))
    return Contender(devices, model, time.perf_counter() - start)


def _with_threads(devices: str | None, arguments: argparse.Namespace, own: bool = True) -> dict[str, Any]:
    """The configuration, with the number of threads for each device that has such a key."""
    config: dict[str, Any] = config_of(arguments.config, devices) if own else {}
    if arguments.threads is None:
        return config
    from accelerators.interface.device_list import asked_devices

    for device in asked_devices(devices):
        if "NUM_THREADS" in device.accelerator.get_metric("SUPPORTED_CONFIG_KEYS"):
            config.setdefault(device.label, {}).setdefault("NUM_THREADS", arguments.threads)
    return config


def _differences(contenders: list[Contender], inputs: Mapping[str, Any]) -> None:
    expected = contenders[0].model(inputs)
    for one in contenders[1:]:
        outputs_compared = compare(one.model.graph, one.model(inputs), expected)
        one.difference = max((difference.worst for difference in outputs_compared), default=0.0)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["devices"],
        str(row["subgraphs"]),
        f"{row['median_ms']:.3f} ms",
        f"{row['min_ms']:.3f} ms",
        str(row["runs"]),
        f"{row['ratio']:.2f} ±{row['ratio_spread']:.2f}",
        f"{row['difference']:.0e}",
        f"{row['compile_seconds']:.1f} s",
    )
