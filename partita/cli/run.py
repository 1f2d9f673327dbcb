"""Compile a model, run it once, check it if asked, and profile it.

Without --input the inputs are generated: random numbers from --seed, and ones for integers. An image is scaled to the input's
size as a whole and normalized: --normalize imagenet is (v/255 - mean) / deviation by channel, unit is v/255, none is v.
--check compares each output with the reference device's: error = max|a - b| / max|b|. Outputs of a softmax are compared as
logarithms; quantized outputs may differ by one step, and other integers must be equal. The largest error allowed follows from
the element types in which an output is computed, unless --tolerance sets it.
If MODEL is a file that `partita compile` wrote, its machine code is run and checked against the graph in the file; --against
names the model that it was compiled from."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.interface.device_list import asked_devices
from partita.accelerators.interface.inlining import unplaced
from partita.accelerators.process.atomic import replacing
from partita.accelerators.runtime.real_runs import Timeline
from partita.cli import exits
from partita.cli.arguments import add_count, add_devices, add_fail_on, add_inputs, add_model, config_of, positive, precise
from partita.cli.models import load_model, model_inputs, read_graph, writable
from partita.cli.screen import Screen, table
from partita.compare import Difference, compare
from partita.graph.errors import WriteError

CONDITIONS = {
    "difference": "an output fails --check",
    "moved": "a device could not compile what it took",
    "fallback": "an op is not on the first device",
}
"""Conditions of --fail-on."""

EXAMPLE = """\
  partita run zoo:squeezenet --devices HETERO:cpu,reference --check
  partita run zoo:resnet50 --input cat.jpg --profile 5
  partita run bert.onnx --input inputs.npz --output answers.npz
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    add_devices(parser, precision=True)
    inputs = parser.add_argument_group("inputs and outputs")
    add_inputs(inputs)
    inputs.add_argument("-o", "--output", metavar="OUT.npz", help="write the outputs by name")
    group = parser.add_argument_group("checking and measuring")
    group.add_argument("--check", action="store_true", help="compare the outputs with the reference device's")
    group.add_argument("--against", metavar="MODEL", help="check against this model instead of MODEL itself")
    group.add_argument(
        "--tolerance",
        type=positive,
        metavar="E",
        help="the largest error allowed (default: by element type, 0.001 for float32)",
    )
    add_fail_on(group, CONDITIONS, "difference")
    add_count(group, "--profile", 0, "show the N slowest rows of the profile", 10)
    add_count(group, "--roofline", 1, "show what limits the N slowest kernels, bytes or operations, and by how much")
    add_count(group, "--calls", 0, "start N more calls at once, and show when each device ran which; --report draws them", 0)
    group.add_argument("--trace", metavar="FILE", help="write the profile for chrome://tracing or Perfetto")
    group.add_argument("--report", metavar="PAGE.html", help="write a page for the browser")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compile the model, run it, and check and measure it as asked."""
    for path in (arguments.output, arguments.trace, arguments.report):
        writable(path, arguments.model)
    config = precise(config_of(arguments.config, arguments.devices), arguments.devices, arguments.precision)
    graph, model = load_model(arguments, screen, config)
    original = _original(graph or model.graph, arguments, screen)
    inputs = model_inputs(model, arguments, screen)
    screen.say("running")
    outputs = model(inputs)
    checked = [] if original is None else _check(model, original, inputs, outputs, arguments, screen)
    profile = _profile(model, inputs, arguments, screen)
    limits = _limits(model, profile, inputs, arguments, screen)
    timeline = _timeline(model, inputs, arguments.calls, screen)
    _write(model, outputs, profile, timeline, arguments, screen)
    data: dict[str, Any] = {"report": model.report.to_dict(), "outputs": _described(model, outputs)}
    first = model.properties.devices[0] if graph is None else asked_devices(arguments.devices)[0].label
    failed = _failed(model, checked, arguments.fail_on, first)
    if original is not None:
        data["check"] = {
            "ok": all(difference.ok for difference in checked),
            "tolerance": arguments.tolerance,
            "outputs": [difference.as_data() for difference in checked],
        }
    data["failed"] = failed
    if profile is not None:
        data["profile"] = profile.to_dict()
    if limits is not None:
        data["roofline"] = limits.to_dict()
    if timeline is not None:
        data["timeline"] = timeline.to_dict()
    screen.write_json(data)
    if not screen.as_json:
        _show(model, data, checked, profile, arguments.profile, screen)
        screen.show(*([] if limits is None else [limits.to_table(arguments.roofline)]))
        screen.show(*([] if timeline is None else [str(timeline)]))
    for name in failed:
        screen.warn(f"failed on {name}: {CONDITIONS[name]}")
    return exits.NO if failed else exits.OK


def _limits(
    model: pt.CompiledModel, profile: pt.Profile | None, inputs: dict[str, Any], arguments: argparse.Namespace, screen: Screen
) -> pt.Roofline | None:
    """The roofline, if requested."""
    if arguments.roofline is None:
        return None
    screen.say("measuring the devices' peaks")
    return pt.roofline(model, profile or model.profile(inputs))


def _failed(
    model: pt.CompiledModel, checked: Sequence[Difference], conditions: Sequence[tuple[str, float]], first: str
) -> list[str]:
    """The conditions of --fail-on that hold; `first` is the device that should run everything."""
    holds = {
        "difference": not all(difference.ok for difference in checked),
        "moved": bool(getattr(model.report, "moves", ())),
        "fallback": model.properties.devices != (first,),
    }
    return [name for name, _ in conditions if holds[name]]


def _original(graph: pt.Graph, arguments: argparse.Namespace, screen: Screen) -> pt.Graph | None:
    """The graph to check against; None if no check was requested."""
    if arguments.against:
        return unplaced(read_graph(arguments.against, screen, dict(arguments.shape), arguments.params))
    return unplaced(graph, "Name the model that it was made from: --against MODEL") if arguments.check else None


def _check(
    model: pt.CompiledModel, original: pt.Graph, inputs: dict[str, Any], outputs: Any, arguments: argparse.Namespace,
    screen: Screen,
) -> list[Difference]:
    """Compare with the reference, and warn if the outputs do not depend on the inputs."""
    screen.say("running the reference")
    expected = pt.compile(original, "reference")(inputs)
    others = {name: -value if _is_float(value) else value for name, value in inputs.items()}
    if any(_is_float(value) for value in inputs.values()):
        changed = any(d.worst > 0 for d in compare(original, model(others), outputs))
        if not changed:
            screen.warn("other inputs give the same outputs: the check shows little")
    return compare(original, outputs, expected, arguments.tolerance, arguments.precision or "f32")


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _profile(
    model: pt.CompiledModel, inputs: dict[str, Any], arguments: argparse.Namespace, screen: Screen
) -> pt.Profile | None:
    if not arguments.profile and not arguments.trace and not arguments.report:
        return None
    screen.say("measuring")
    return model.profile(inputs)


def _timeline(model: pt.CompiledModel, inputs: dict[str, Any], calls: int, screen: Screen) -> Timeline | None:
    """Timeline of this many calls, which run concurrently as far as the model allows; None for no calls."""
    if not calls:
        return None
    screen.say("calling")
    with model.timeline() as timeline:
        for future in [model.start(inputs) for _ in range(calls)]:
            future.result()
    return timeline


def _write(
    model: pt.CompiledModel, outputs: Any, profile: pt.Profile | None, timeline: Timeline | None,
    arguments: argparse.Namespace, screen: Screen,
) -> None:
    if arguments.output:
        _write_arrays(arguments.output, [name for name, _ in model.properties.outputs], outputs)
    if arguments.trace and profile is not None:
        profile.to_chrome_trace(arguments.trace)
    if arguments.report:
        from partita.page import report_page  # start-up

        report_page(model, arguments.report, profile=profile, timeline=timeline)
    for path in filter(None, (arguments.output, arguments.trace, arguments.report)):
        screen.say(f"wrote {path}")


def _write_arrays(path: str, names: Sequence[str], outputs: Sequence[Any]) -> None:
    """Write arrays by name for `np.load`. Nothing is pickled."""
    for name, value in zip(names, outputs):
        if not isinstance(value, np.ndarray):
            raise WriteError(f"output {name!r} is not a tensor", where=path, remedy="A .npz file holds tensors only")
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, value in zip(names, outputs):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                array = value.astype(str) if value.dtype == object else value
                np.lib.format.write_array(member, array, allow_pickle=False)


def _described(model: pt.CompiledModel, outputs: Any) -> list[dict[str, Any]]:
    """Summary statistics of each output."""
    rows = []
    for (name, kind), value in zip(model.properties.outputs, outputs):
        row: dict[str, Any] = {"name": name, "type": str(kind)}
        if isinstance(value, np.ndarray):
            row |= {"dtype": value.dtype.name, "shape": list(value.shape)}
            if value.size and value.dtype.kind in "fiub":
                wide = value.astype(np.float64)
                row |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
                row["not_finite"] = int(wide.size - np.isfinite(wide).sum())
        rows.append(row)
    return rows


def _show(
    model: pt.CompiledModel, data: dict[str, Any], checked: Sequence[Difference], profile: pt.Profile | None, slowest: int,
    screen: Screen,
) -> None:
    columns = ("output", "type", "min", "mean", "max")
    rows = []
    for row in data["outputs"]:
        numbers = [f"{row[key]:.6g}" if key in row else "" for key in columns[2:]]
        sizes = f"{row['dtype']}{row['shape']}" if "shape" in row else row["type"]
        rows.append((row["name"], sizes, *numbers))
    screen.show(*model.report.summary(), table("outputs", columns, rows, right=columns[2:]))
    if profile is not None and slowest:
        screen.show(profile.to_table(slowest))
    for difference in checked:
        screen.show(f"check {difference}")
