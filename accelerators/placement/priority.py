"""The rule of priority: each node on the first device that runs it, unless the user's rules say otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from partita.accelerators.errors import NotSupported
from partita.accelerators.interface.device_list import Device
from partita.accelerators.placement.rules import Rules
from partita.accelerators.placement.support_table import SupportTable
from partita.graph.node import Node

SHOWN = 8
"""The number of kinds of refusal, and of nodes of each kind, that an error lists."""


def choose(name: str, devices: Sequence[Device], table: SupportTable, rules: Rules) -> str | None:
    """The first device that may run the node; None if no device may."""
    if name in rules.pinned:
        return rules.pinned[name][0]
    for device in devices:
        if rules.against(name, device.label) is None and name not in table.refusals(device.label):
            return device.label
    return None


def unsupported(nodes: Sequence[Node], devices: Sequence[Device], table: SupportTable, rules: Rules) -> NotSupported:
    """The error for ops that no device runs: grouped by op and reasons, the first few of each."""
    groups: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for node in nodes:
        reasons = [
            f"{device.label}: {rules.against(node.name, device.label) or table.refusals(device.label)[node.name]}"
            for device in devices
        ]
        groups.setdefault((node.op, tuple(reasons)), []).append(node.name)
    lines = []
    for (op, said), names in list(groups.items())[:SHOWN]:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"{op} ({', '.join(names[:SHOWN])}{more})")
        lines += [f"  {reason if len(reason) <= 300 else reason[:300] + '…'}" for reason in said]
    if len(groups) > SHOWN:
        lines.append(f"and {len(groups) - SHOWN} further kinds")
    asked = ", ".join(device.label for device in devices)
    known = {device.label for device in devices}
    return NotSupported(
        f"no device of those asked ({asked}) can run:\n    " + "\n    ".join(lines),
        where=f"graph {table.graph.name!r}",
        remedy=None if "reference" in known else 'Add a device that can: "reference" runs every op of ONNX',
    )
