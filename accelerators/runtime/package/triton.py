"""A model repository for Triton: each stage of a model for the Python backend, and the whole as an ensemble."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partita.accelerators.errors import NotSupported
from partita.accelerators.process.atomic import write_text
from partita.graph.errors import WriteError
from partita.graph.types import TensorType

if TYPE_CHECKING:
    from partita.accelerators.runtime.package.stages import Border, Stages

TYPES = {
    "bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""The names of element types in the KServe V2 protocol; Triton puts TYPE_ before them."""

FILE = "stage.partita"
"""The package beside each model.py."""

GROUP = "instance_group [ { kind: KIND_CPU } ]"
"""Triton hands over tensors in the host's memory, to one instance."""

MODEL = '''\
"""A stage of a model that Partita compiled, for Triton's Python backend."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

import partita as pt


class TritonPythonModel:
    """Runs the package beside this file."""

    def initialize(self, args):
        self.model = pt.import_model(Path(__file__).with_name("stage.partita"))

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            inputs = {}
            for name, kind in self.model.properties.inputs:
                array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                inputs[name] = array.reshape(()) if kind.shape == () else array
            outputs = self.model(inputs)
            names = [name for name, _ in self.model.properties.outputs]
            tensors = [pb_utils.Tensor(name, np.atleast_1d(outputs[name])) for name in names]
        except Exception as error:
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def finalize(self):
        self.model.close()
'''
"""The model.py of every stage. Triton has no tensors of rank 0: they travel with one element."""


def write_repository(stages: Stages, folder: Path, key: bytes | None) -> list[str]:
    """Writes the repository, and returns the path of each stage's package in it."""
    if key is not None:
        remedy = "Leave the key out, and keep others from writing to the repository"
        raise NotSupported("Triton's models verify no signature", where="stages, option key", remedy=remedy)
    base = stages[0].name.rpartition("_")[0]
    tensors = _tensor_names(stages)
    configs = {base: _ensemble(stages, base, tensors)}
    for stage in stages:
        configs[stage.name] = _config(stage.name, 'backend: "python"', stage.inputs, stage.outputs, GROUP)
    for name, config in configs.items():
        try:
            (folder / name / "1").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"the folder cannot be created: {error.strerror}", where=str(folder / name)) from None
        write_text(folder / name / "config.pbtxt", config)
    files = [f"{stage.name}/1/{FILE}" for stage in stages]
    for stage, file in zip(stages, files):
        stage.model.export(folder / file)
        write_text((folder / file).with_name("model.py"), MODEL)
    return files


def _tensor_names(stages: Stages) -> dict[str, str]:
    """The ensemble's tensor for each value: an output of the model has that output's name."""
    tensors: dict[str, str] = {}
    for output in stages.outputs:
        if output.source is None or output.value in tensors:
            why = "an input of the model" if output.source is None else f"the same value as {tensors[output.value]!r}"
            cause = f"output {output.name!r} is {why}, and an ensemble of Triton has no such outputs"
            raise NotSupported(cause, where=f"model {stages.name!r}", remedy='Write form="partita"')
        tensors[output.value] = output.name
    for border in (*stages.inputs, *(border for stage in stages for border in stage.outputs)):
        tensors.setdefault(border.value, border.value)
    twice = [name for name in tensors if list(tensors.values()).count(tensors[name]) > 1]
    if twice:
        cause = f"output {tensors[twice[0]]!r} has the name of another value"
        raise NotSupported(cause, where=f"model {stages.name!r}", remedy="Rename the output")
    return tensors


def _ensemble(stages: Stages, name: str, tensors: Mapping[str, str]) -> str:
    """The configuration of the whole model: each stage reads and makes tensors of the ensemble."""

    def maps(side: str, borders: Sequence[Border]) -> list[str]:
        return [f"      {side}_map {{ key: {_quoted(one.name)} value: {_quoted(tensors[one.value])} }}" for one in borders]

    steps = []
    for stage in stages:
        lines = [f"      model_name: {_quoted(stage.name)}", "      model_version: -1"]
        steps.append("\n".join(["    {", *lines, *maps("input", stage.inputs), *maps("output", stage.outputs), "    }"]))
    scheduling = "ensemble_scheduling {\n  step [\n" + ",\n".join(steps) + "\n  ]\n}"
    return _config(name, 'platform: "ensemble"', stages.inputs, stages.outputs, scheduling)


def _config(name: str, kind: str, inputs: Sequence[Border], outputs: Sequence[Border], rest: str) -> str:
    """The configuration of one model."""
    sides = [_side("input", inputs), _side("output", outputs)]
    return "\n".join([f"name: {_quoted(name)}", kind, "max_batch_size: 0", *sides, rest, ""])


def _side(side: str, borders: Sequence[Border]) -> str:
    rows = []
    for border in borders:
        kind = border.type
        if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype not in TYPES:
            cause = f"{border.name!r} is {kind}, which Triton's Python backend does not hand over as an array"
            raise NotSupported(cause, where="stages, form triton", remedy='Write form="partita"')
        dims = ", ".join(str(size) if isinstance(size, int) else "-1" for size in kind.shape or (1,))
        rows.append(f"  {{ name: {_quoted(border.name)} data_type: TYPE_{TYPES[kind.dtype]} dims: [ {dims} ] }}")
    return f"{side} [\n" + ",\n".join(rows) + "\n]"


def _quoted(name: str) -> str:
    """The name as a string of protobuf's text format."""
    return json.dumps(name, ensure_ascii=False)
