"""Two models on the same inputs, layer by layer: how far each value is from the one of the same name in the other model.

A is compared with B: a quantized or otherwise changed model with the one that it was made from. Values match by their names; the
outputs come last, and decide the exit status."""

from __future__ import annotations

import argparse

import attrs

import partita as pt
from graph.words import counted
from partita.by_layer import Layer, compare_layers
from partita.cli import exits
from partita.cli.arguments import add_devices, add_inputs, add_model, config_of, positive
from partita.cli.models import compiled, load_graph, model_inputs, read_graph
from partita.cli.screen import Screen, table

EXAMPLE = """\
  partita compare lowered.onnx model.onnx --tolerance 0.02
  partita compare lowered.onnx zoo:squeezenet --input image.npy --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    parser.add_argument("other", metavar="B", help="the model to compare it with")
    add_devices(parser)
    add_inputs(parser.add_argument_group("inputs"))
    group = parser.add_argument_group("comparing")
    group.add_argument(
        "--tolerance",
        type=positive,
        default=1e-2,
        metavar="E",
        help="the largest relative error of an output (default: %(default)s)",
    )
    group.add_argument("--outputs-only", action="store_true", help="leave out what is not an output")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run both, and show how far their values are apart."""
    first = load_graph(arguments, screen)
    second = read_graph(arguments.other, screen, dict(arguments.shape))
    _require_same_inputs(first, second, arguments)
    config = config_of(arguments.config, arguments.devices)
    inputs = model_inputs(compiled(first, arguments, screen, config), arguments, screen)
    screen.say("running both models")
    layers = compare_layers(first, second, inputs, arguments.devices, config)
    shown = [layer for layer in layers if layer.is_output or not arguments.outputs_only]
    good = all(layer.relative <= arguments.tolerance for layer in layers if layer.is_output)
    good &= any(layer.is_output for layer in layers)
    data = {"ok": good, "tolerance": arguments.tolerance, "layers": [attrs.asdict(layer) for layer in shown]}
    screen.write_json(data)
    columns = ("value", "op", "largest error", "relative", "cosine", "")
    rows = [_row(layer, arguments.tolerance) for layer in shown]
    title = f"{first.name} against {second.name}: {counted(len(layers), 'value')} of the same name"
    screen.show(table(title, columns, rows, right=columns[2:5]))
    if not any(layer.is_output for layer in layers):
        screen.warn("the models have no output of the same name")
    return exits.OK if good else exits.NO


def _row(layer: Layer, tolerance: float) -> tuple[str, ...]:
    verdict = "" if not layer.is_output else "ok" if layer.relative <= tolerance else f"output, more than {tolerance:g}"
    numbers = f"{layer.absolute:.3g}", f"{layer.relative:.2g}", f"{layer.cosine:.6f}"
    return layer.name, layer.op, *numbers, verdict


def _require_same_inputs(first: pt.Graph, second: pt.Graph, arguments: argparse.Namespace) -> None:
    """Complain unless both models are asked the same."""
    missing = [node.name for node in second.inputs if node.name not in {own.name for own in first.inputs}]
    if missing:
        raise pt.InputError(
            f"it reads {missing[0]!r}, which {arguments.model} has not",
            where=arguments.other,
            remedy="Compare models whose inputs have the same names",
        )
