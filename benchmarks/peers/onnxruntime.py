"""onnxruntime with its own defaults: all optimizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnxruntime


def load(path: str, model: tuple[str, int], threads: int) -> Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]:
    """Load the model into a session."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    provider = "CPUExecutionProvider" if threads else "CUDAExecutionProvider"
    session = onnxruntime.InferenceSession(path, options, providers=[provider])
    if provider not in session.get_providers():
        raise RuntimeError(f"this onnxruntime has no {provider}")
    return lambda inputs: session.run(None, dict(inputs))
