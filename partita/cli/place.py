"""Find the cheapest placement of a model on several devices, within limits on memory, and how far it may be from the best.

Without --costs the times are estimates that assume each device to be slower than the one before it."""

from __future__ import annotations

import argparse

import partita as pt
from partita.accelerators.placement.by_cost import CostedPlacement
from partita.cli import exits
from partita.cli.arguments import Usage, add_count, add_devices, add_model, add_repeated, config_of, limit, placing_of
from partita.cli.models import load_graph, writable
from partita.cli.screen import Screen

EXAMPLE = """\
  partita place zoo:squeezenet --devices HETERO:cpu,reference --limit cpu=8MiB
  partita place model.onnx --devices HETERO:cuda,cpu --limit cuda=22GiB --lock plan.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser)
    add_devices(parser)
    group = parser.add_argument_group("placing")
    add_repeated(group, "--limit", limit, "D=SIZE", "the memory limit of a device, like cuda=22GiB; again for each device")
    group.add_argument("--limit-free", action="store_true", help="limit each device to nine tenths of its free memory")
    group.add_argument("--even", action="store_true", help="spread the bytes as evenly as possible")
    add_count(group, "--max-nodes", 1, "the most ops of a compiled subgraph")
    add_count(group, "--longest", 1, "the tokens for which a decoder's caches have room")
    text = "also measure the bytes of each device, in a separate process, and keep them within the limits"
    group.add_argument("--measure-bytes", action="store_true", help=text)
    text = "latency: the least total time; throughput: the least load of the busiest device (default: %(default)s)"
    group.add_argument("--objective", choices=("latency", "throughput"), default="latency", help=text)
    group.add_argument("--costs", metavar="COSTS.json", help="costs that costs.save wrote (default: estimates)")
    group.add_argument("--wishes", action="store_true", help="list the unsupported ops whose support would save most")
    text = "write a locked plan, for `partita plan --check` and pt.compile(plan=...)"
    group.add_argument("--report", metavar="PAGE.html", help="write a page for the browser, with the certificate")
    group.add_argument("--lock", metavar="PLAN.json", help=text)


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Place the model, show the placement, and write it if requested."""
    if arguments.limit and arguments.limit_free:
        raise Usage("--limit and --limit-free exclude each other")
    for path in (arguments.lock, arguments.report):
        writable(path, arguments.model)
    costs = None if arguments.costs is None else pt.Costs.load(arguments.costs)
    graph, config = load_graph(arguments, screen), config_of(arguments.config, arguments.devices)
    limits = "free" if arguments.limit_free else dict(arguments.limit)
    placement = pt.place(
        graph, arguments.devices, costs=costs, limit=limits, even=arguments.even, config=config, max_nodes=arguments.max_nodes,
        longest=arguments.longest, objective=arguments.objective, measure_bytes=arguments.measure_bytes, **placing_of(arguments),
    )
    if arguments.lock:
        placement.lock(arguments.lock)
        screen.say(f"wrote {arguments.lock}")
    if arguments.report:
        pt.report_page(placement, arguments.report)
        screen.say(f"wrote {arguments.report}")
    wishes = placement.wishes() if arguments.wishes else []
    screen.write_json({**placement.to_dict(), "wishes": [str(wish) for wish in wishes]})
    screen.show(*_lines(placement), *map(str, wishes))
    return exits.OK


def _lines(placement: CostedPlacement) -> list[str]:
    return str(placement).split("\n")
