"""The time that onnxruntime spends on each node of a model, although it fuses nodes and gives new names to the result."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from partita.graph.graph import Graph

Micros = dict[str, float]
"""Microseconds by the name of a kernel or node."""


class OnnxruntimeNodes:
    """A session that profiles each run; a context, since it leaves files meanwhile."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        self._folder = tempfile.TemporaryDirectory(prefix="partita-bench-")
        self._optimized = Path(self._folder.name) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        options.optimized_model_filepath = str(self._optimized)
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Run the model once more."""
        self._session.run(None, dict(inputs))

    def by_node(self, graph: Graph) -> tuple[Micros, float]:
        """The least time over the runs for each node of the model, and the time that belongs to no node. It ends the
        profile.

        A kernel is named after a node of the model, or after the value that it makes, and what was done to it; those with
        names of their own are known by the values that they make in the optimized model."""
        makers = {name: node.name for node in graph.nodes if node.is_op for name in (*node.output_names, node.name) if name}
        values = self._values()
        micros_of: Micros = defaultdict(float)
        unknown = 0.0
        for name, micros in self._least().items():
            maker = _maker(name, makers) or next((makers[value] for value in values.get(name, ()) if value in makers), None)
            if maker is None:
                unknown += micros
            else:
                micros_of[maker] += micros
        return micros_of, unknown

    def _least(self) -> Micros:
        """The least time of each kernel."""
        least: Micros = {}
        for event in json.loads(Path(self._session.end_profiling()).read_text()):
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                name = event["name"].removesuffix("_kernel_time")
                least[name] = min(event["dur"], least.get(name, event["dur"]))
        return least

    def _values(self) -> dict[str, list[str]]:
        """The values that each kernel makes."""
        import onnx

        return {node.name: list(node.output) for node in onnx.load(self._optimized, load_external_data=False).graph.node}

    def __enter__(self) -> OnnxruntimeNodes:
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()


def _maker(name: str, makers: Mapping[str, str]) -> str | None:
    """The node that a kernel's name begins with."""
    ends = (len(name), *(i for i in range(len(name) - 1, 0, -1) if not name[i].isalnum()))
    return next((makers[name[:end]] for end in ends if name[:end] in makers), None)
