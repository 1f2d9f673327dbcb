"""OpenVINO's HETERO split. The devices named do not exist: the split is finished when compiling for them fails."""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import openvino
from openvino import opset13 as ops

from benchmarks.partitioners import Color, Finding, Preds, clocked, read_by_nobody, report
from partita.graph.order import EdgeArrays
from partita.partition.checker import check_partition
from partita.partition.errors import PartitionError

SHOW = "OPENVINO_HETERO_VISUALIZE"
"""The variable that makes HETERO draw what it did into the current folder."""


def model(preds: Preds, color: Color) -> openvino.Model:
    """The shape as a model with affinities: nodes that the device does not take are on a second one."""
    x = ops.parameter([1, 4], np.float32)
    values: list[openvino.Node] = []
    for v, producers in enumerate(preds):
        read = [values[u] for u in producers] or [x]
        node = ops.add(*read) if len(read) == 2 else ops.sigmoid(read[0])
        node.set_friendly_name(f"n{v}")
        node.get_rt_info()["affinity"] = device(color[v])
        values.append(node)
    x.get_rt_info()["affinity"] = device(color[0])
    results = []
    for v in read_by_nobody(preds):
        results.append(ops.result(values[v]))
        results[-1].get_rt_info()["affinity"] = device(color[v])
    return openvino.Model(results, [x], "shape")


def device(color: int | None) -> str:
    """A name that no plugin has."""
    return "NONE0" if color is not None else "NONE1"


def split(ov_model: openvino.Model, devices: str = "NONE0,NONE1") -> None:
    """Up to the point where the first part is to be compiled."""
    try:
        openvino.Core().compile_model(ov_model, f"HETERO:{devices}")
    except RuntimeError as error:
        if "is not registered" not in str(error):
            raise


def groups_drawn(ov_model: openvino.Model) -> list[list[int]]:
    """The groups on the first device."""
    groups: dict[str, list[int]] = defaultdict(list)
    for node, number in re.findall(r'label="n(\d+)\\n[^"]*subgraph=(\d+)\\ndevice=NONE0', picture(ov_model)):
        groups[number].append(int(node))
    return list(groups.values())


def picture(ov_model: openvino.Model, devices: str = "NONE0,NONE1") -> str:
    """The DOT text in which HETERO draws the split: each node with its friendly name, its subgraph and its device."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        os.environ[SHOW] = "1"
        try:
            split(ov_model, devices)
            return next(Path(folder).glob("hetero_subgraphs*.dot")).read_text()
        finally:
            del os.environ[SHOW]
            os.chdir(before)


def measure(preds: Preds, color: Color) -> Finding:
    """One run; the groups come from a second one that draws."""
    given = model(preds, color)
    seconds, _ = clocked(lambda: split(given))
    groups = groups_drawn(model(preds, color))
    try:
        check_partition(EdgeArrays.of(preds), groups, [True] * len(preds), str)
    except PartitionError:
        return seconds, len(groups), "cyclic"
    return seconds, len(groups), ""


if __name__ == "__main__":
    report(measure)
