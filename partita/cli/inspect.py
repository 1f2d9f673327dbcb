"""Show statistics of a model: ops, types, parameters, FLOPs, memory, dynamic sizes.

A multiply-add is one MAC and two FLOPs. "Activations" is the memory that all intermediate values take under a good plan; --memory
lists the nodes that need most of it. For a compiled model: its devices, inputs, outputs and subgraphs. Nothing is run."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

import partita as pt
from partita.cli import exits
from partita.cli.arguments import add_count, add_model
from partita.cli.inputs import shape_options
from partita.cli.models import load_graph, reading_package, takes_package
from partita.cli.screen import Screen, table
from partita.graph.flops import Flops, count_flops, count_text
from partita.graph.formatting import counted
from partita.graph.gc_pause import collector_paused
from partita.graph.summary import Summary, size_text, summarize, summary_table
from partita.passes.plan_memory import MemoryPlan

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLE = """\
  partita inspect zoo:resnet50
  partita inspect zoo:squeezenet --memory 5
  partita inspect bert.onnx --shape input_ids=1,128 --shape attention_mask=1,128 --nodes
"""


MEASURES = ("InferShape", "PlanMemory")
"""Passes that run before the tables are made.

Neither changes what the graph computes, so no verification is needed."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_model(parser, package=True)
    parser.add_argument("--nodes", action="store_true", help="list each node too")
    add_count(parser.add_argument_group("memory"), "--memory", 1, "list the N nodes during which activations take most bytes")


def run(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show the model's statistics."""
    if takes_package(arguments):
        return _package(arguments, screen)
    with collector_paused():
        graph = pt.apply_pass(load_graph(arguments, screen), MEASURES, verify=False, strict=False)
        summary, flops, memory = summarize(graph), count_flops(graph), graph.attrs["memory_plan"]
        ops = _ops(graph, summary, flops)
    nodes = _nodes(graph, flops) if arguments.nodes else None
    held = _held(graph, memory)[: arguments.memory] if arguments.memory else []
    content = _as_data(summary, flops, memory.peak, ops, nodes)
    screen.write_json({**content, "memory": held} if arguments.memory else content)
    if screen.as_json:
        return exits.OK
    screen.show(summary_table(summary), *_tables(ops, nodes, flops.flops))
    if held:
        screen.show(_memory_table(held, memory))
    least = " at least" if flops.unknown else ""
    screen.show(
        f"one run:{least} {count_text(flops.macs)}MAC, {count_text(flops.flops)}FLOP; "
        f"memory: parameters {size_text(summary.bytes)}, activations{least} {size_text(memory.peak)}"
    )
    if flops.unknown:
        screen.warn(_not_counted(flops, summary.inputs))
    return exits.OK


def _as_data(
    summary: Summary, flops: Flops, activation_bytes: int, ops: list[dict[str, Any]], nodes: list[dict[str, Any]] | None
) -> dict[str, Any]:
    return {
        "model": summary.name,
        "inputs": {name: str(kind) for name, kind in summary.inputs},
        "outputs": {name: str(kind) for name, kind in summary.outputs},
        "parameters": summary.parameters,
        "parameter_bytes": summary.bytes,
        "activation_bytes": activation_bytes,
        "macs": flops.macs,
        "flops": flops.flops,
        "not_counted": list(flops.unknown),
        "dynamic": list(summary.symbols),
        "opsets": dict(summary.opsets),
        "ops": ops,
        **({} if nodes is None else {"nodes": nodes}),
    }


def _tables(ops: list[dict[str, Any]], nodes: list[dict[str, Any]] | None, flops: int) -> list[Table]:
    """A row for each kind of op, and, if requested, for each node."""
    columns = ("op", "count", "parameters", "FLOP", "share")
    rows = [
        (row["op"], f"{row['count']:,}", f"{row['parameters']:,}", count_text(row["flops"]), f"{row['flops'] / (flops or 1):.1%}")
        for row in ops
    ]
    tables = [table("by op", columns, rows, right=columns[1:])]
    if nodes is not None:
        cells = [(row["node"], row["op"], ", ".join(row["types"]), count_text(row["flops"])) for row in nodes]
        tables.append(table("by node", ("node", "op", "types", "FLOP"), cells, right=("FLOP",)))
    return tables


def _ops(graph: pt.Graph, summary: Summary, flops: Flops) -> list[dict[str, Any]]:
    """A row for each kind of op, the most expensive first. An array that several ops read counts for the first."""
    parameters, seen = Counter[str](), set[int]()
    for node in graph.nodes:
        for entry in node.reads if node.is_op else ():
            value = entry.node.value
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                parameters[str(node.op)] += value.size
    rows = [
        {"op": op, "count": count, "parameters": parameters[op], "flops": flops.by_op.get(op, 0)}
        for op, count in summary.ops.items()
    ]
    return sorted(rows, key=lambda row: (-row["flops"], -row["count"], row["op"]))  # type: ignore[operator, no-any-return]


def _nodes(graph: pt.Graph, flops: Flops) -> list[dict[str, Any]]:
    return [
        {
            "node": node.name,
            "op": node.op,
            "types": [str(entry.type) if entry.type else "?" for entry in node.outputs if entry.name],
            "flops": flops.by_node[node.name],
        }
        for node in graph.nodes
        if node.is_op
    ]


def _held(graph: pt.Graph, memory: MemoryPlan) -> list[dict[str, Any]]:
    """A row for each node, those during which most bytes are alive first."""
    rows = []
    for number, (name, alive) in enumerate(memory.alive.items(), 1):
        node = graph[name]
        made = sum(memory.sizes.get(entry.name, 0) for entry in node.outputs)
        read = sum(memory.sizes.get(entry.name, 0) for entry in dict.fromkeys(node.reads))
        inside = memory.workspaces.get(name, (0, 0))[1]
        passing = alive - made - read - inside
        sizes = {"alive": alive, "made": made, "read": read, "inside": inside, "passing": passing}
        rows.append({"step": number, "node": name, "op": node.op, **sizes})
    return sorted(rows, key=lambda row: -row["alive"])  # type: ignore[operator]


def _memory_table(rows: list[dict[str, Any]], memory: MemoryPlan) -> Table:
    """The table of `_held`: the bytes by what the node does with them."""
    sizes = ("alive", "made", "read", "inside", "passing")
    cells = [
        (
            str(row["step"]), row["node"], row["op"], *(size_text(row[key]) for key in sizes),
            f"{row['alive'] / (memory.peak or 1):.0%}",
        )
        for row in rows
    ]
    columns = ("step", "node", "op", *sizes, "of the plan")
    return table("by memory", columns, cells, right=("step", *columns[3:]))


def _not_counted(flops: Flops, inputs: tuple[tuple[str, Any], ...]) -> str:
    some = ", ".join(map(repr, flops.unknown[:4])) + (", ..." if len(flops.unknown) > 4 else "")
    text = f"{counted(len(flops.unknown), 'op')} not counted: {some}"
    options = shape_options(inputs)[:4]
    return f"{text}\n  Sizes are not fixed: give them, like {' '.join(options)}" if options else text


def _package(arguments: argparse.Namespace, screen: Screen) -> int:
    """Devices, inputs, outputs and subgraphs of a compiled model."""
    with reading_package(arguments) as package:
        manifest = package.manifest
        units = [
            {"name": unit["name"], "device": unit["device"], "ops": len(unit["ops"])}
            for unit in manifest["units"]
        ]
        said = {key: manifest[key] for key in ("model", "devices", "inputs", "outputs")}
        identities = [dict(unit["identity"]) for unit in manifest["units"]]
        values = [("devices", ", ".join(said["devices"]))]
        values += [
            (what, "\n".join(f"{name}: {kind}" for name, kind in said[what]))
            for what in ("inputs", "outputs")
        ]
    screen.write_json({**said, "subgraphs": units, "identities": identities})
    compiled = sorted({f"{key}: {value}" for identity in identities for key, value in identity.items()})
    screen.show(
        table(str(said["model"]), ("", ""), [*values, ("compiled by and for", "\n".join(compiled))]),
        table("subgraphs", ("subgraph", "device", "ops"), [tuple(unit.values()) for unit in units], right=("ops",)),
    )
    return exits.OK
