"""ONNX's backend interface, so that ONNX's own test runner, and other code written against it, runs on any device.

    import partita.accelerators.onnx_backend as backend
    backend.run_model(model, inputs, device="HETERO:onnxruntime,reference")

`backend_for(device)` returns a class that runs every test on one device, whatever name ONNX's runner uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from partita.accelerators import AcceleratorError, CompiledModel
from partita.accelerators import compile as compile_graph
from partita.accelerators.interface.device_list import parse_devices
from partita.graph.readers import load

ONNX_NAMES = {"CPU": "HETERO:onnxruntime,reference"}
"""ONNX's device names and the devices that serve them; other names are Partita's own."""


class PreparedModel(BackendRep):
    """A compiled model behind ONNX's interface."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model
        """The compiled model."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by position and by name. A single array may be given without a list."""
        if isinstance(inputs, dict):
            results = self.model(inputs)
        else:
            results = self.model(*(inputs if isinstance(inputs, (list, tuple)) else [inputs]))
        return namedtupledict("Outputs", list(self.model.graph.output_names))(*results)


class PartitaBackend(Backend):
    """ONNX's interface: `prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True if each op of the model runs on some device of the list."""
        try:
            compile_graph(load(model), _device(device))
        except AcceleratorError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """The model, compiled; keyword arguments go to `compile`."""
        return PreparedModel(compile_graph(load(model), _device(device), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile the model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile and run a model of this one node, whose opset is `opset_version` (by default the newest)."""
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = _model_of(node, inputs, version)
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True if all devices of the list can be used here."""
        try:
            parse_devices(_device(device))
        except AcceleratorError:
            return False
        return True


def backend_for(device: str) -> type[PartitaBackend]:
    """The backend that runs on one device whatever name it is given, except CUDA. ONNX's runner knows only CPU and CUDA."""

    class OneDevice(PartitaBackend):
        wanted = device

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU" and super().supports_device(cls.wanted)

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
            return super().prepare(model, cls.wanted)

        @classmethod
        def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
            return super().is_compatible(model, cls.wanted)

    return OneDevice


def _device(name: str) -> str:
    return ONNX_NAMES.get(name, name)


def _model_of(node: onnx.NodeProto, inputs: Any, version: int) -> onnx.ModelProto:
    import numpy as np
    from onnx import helper

    given = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
    names = [name for name in dict.fromkeys(node.input) if name]
    values = []
    for name, array in zip(names, given, strict=True):
        array = np.asarray(array)
        values.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])


is_compatible = PartitaBackend.is_compatible
prepare = PartitaBackend.prepare
run_model = PartitaBackend.run_model
run_node = PartitaBackend.run_node
supports_device = PartitaBackend.supports_device
