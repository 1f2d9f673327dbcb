"""Parses onnxruntime's profile into rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.interface.accelerator import ProfileRow

_KERNEL = "_kernel_time"


def rows_of_last_run(text: str, model: EngineModel) -> Sequence[ProfileRow]:
    """A row for each kernel of the last run in this profile, then one for each node without a kernel of its name."""
    events = json.loads(text)
    runs = [event for event in events if event.get("name") == "model_run"]
    if not runs:
        return ()
    start = runs[-1]["ts"]
    end = start + runs[-1]["dur"]
    rows, seen = [], set()
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL) and start <= event["ts"] <= end:
            kernel = name.removesuffix(_KERNEL)
            node = model.node_of(kernel)
            details = event.get("args", {})
            time = float(event["dur"])
            title = kernel if node is None else node.name
            provider = details.get("provider", "onnxruntime")
            rows.append(ProfileRow(title, details.get("op_name", ""), "EXECUTED", time, time, provider))
            seen.add(node)
    gone = [node for node in model.nodes if node not in seen]
    return (*rows, *(ProfileRow(node.name, node.op or "", "OPTIMIZED_OUT", 0.0, 0.0, "") for node in gone))
