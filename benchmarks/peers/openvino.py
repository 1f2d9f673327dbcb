"""OpenVINO for latency, in 32-bit floats as everybody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import openvino


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """A compiled model and one request; inputs are not copied, outputs are the caller's."""
    properties = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    request = openvino.Core().compile_model(path, "CPU", properties).create_infer_request()
    return lambda inputs: list(request.infer(dict(inputs), share_inputs=True).values())
