"""A stand-in of Triton: the interface that its documentation gives to models of the Python backend, and ensembles of these."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import attrs
import numpy as np


class Tensor:
    """A tensor of a request or a response; its array has a rank of at least 1."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        assert isinstance(array, np.ndarray) and array.ndim
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._array


class TritonError(Exception):
    """The error of a response."""


@attrs.frozen
class InferenceResponse:
    """What a model answers."""

    output_tensors: Sequence[Tensor]
    error: TritonError | None = None


def get_input_tensor_by_name(request: Mapping[str, Tensor], name: str) -> Tensor | None:
    return request.get(name)


UTILS = ModuleType("triton_python_backend_utils")
vars(UTILS).update({
    "Tensor": Tensor, "TritonError": TritonError, "InferenceResponse": InferenceResponse,
    "get_input_tensor_by_name": get_input_tensor_by_name,
})

SIDE = re.compile(r"^(input|output) \[\n(.*?)\n?\]$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r'\{ name: "(.*?)" data_type: TYPE_(\w+) dims: \[ (.*?) \] \}')
STEP = re.compile(r'model_name: "(.*?)"\n(.*?)\n    \}', re.DOTALL)
MAP = re.compile(r'(input|output)_map \{ key: "(.*?)" value: "(.*?)" \}')


class Repository:
    """The models of a folder, loaded as the server loads them."""

    def __init__(self, folder: Path) -> None:
        self.configs = {path.parent.name: path.read_text() for path in folder.glob("*/config.pbtxt")}
        self.models: dict[str, Any] = {}
        for name, config in self.configs.items():
            assert config.startswith(f'name: "{name}"\n') and (folder / name / "1").is_dir()
            if 'backend: "python"' in config:
                self.models[name] = _loaded(folder / name / "1" / "model.py")
                self.models[name].initialize({"model_name": name, "model_version": "1"})

    def sides(self, name: str) -> dict[str, dict[str, tuple[str, list[int]]]]:
        """The types and sizes of inputs and outputs."""
        return {
            side: {one: (kind, [int(dim) for dim in dims.split(", ")]) for one, kind, dims in ROW.findall(rows)}
            for side, rows in SIDE.findall(self.configs[name])
        }

    def infer(self, name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of a model or an ensemble."""
        if name in self.models:
            (response,) = self.models[name].execute([{key: Tensor(key, array) for key, array in arrays.items()}])
            if response.error is not None:
                raise response.error
            outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors}
            for key, (_, dims) in self.sides(name)["output"].items():
                assert all(dim in (size, -1) for dim, size in zip(dims, outputs[key].shape, strict=True))
            return outputs
        tensors = dict(arrays)
        for model, maps in STEP.findall(self.configs[name]):
            pairs = MAP.findall(maps)
            given = {key: tensors[value] for side, key, value in pairs if side == "input"}
            made = self.infer(model, given)
            tensors.update({value: made[key] for side, key, value in pairs if side == "output"})
        return {key: tensors[key] for key in self.sides(name)["output"]}

    def close(self) -> None:
        for model in self.models.values():
            model.finalize()


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {UTILS.__name__: UTILS}):
        spec.loader.exec_module(module)
    return module.TritonPythonModel()
