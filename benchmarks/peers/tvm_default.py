"""TVM as it comes: its ONNX importer and its default pipeline, which has no schedules for processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """Import, compile, and a virtual machine."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from partita.accelerators.tvm.machine.machine import host_machine

    proto = onnx.load(path)
    names = [value.name for value in proto.graph.input]
    module = from_onnx(proto, keep_params_in_input=False)
    machine = relax.VirtualMachine(tvm.compile(module, host_machine(threads).target), tvm.cpu())

    def call(inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        outputs = machine["main"](*(tvm.runtime.tensor(inputs[name]) for name in names))
        return [outputs.numpy()] if isinstance(outputs, tvm.runtime.Tensor) else [array.numpy() for array in outputs]

    return call
