"""Options of onnxruntime sessions, and their errors in one line."""

from __future__ import annotations

from typing import Any

WRONG = ("DoubleQDQPairsRemover", "GatherToSliceFusion")
"""The optimizers that are disabled in every session: one merges two consecutive quantizations with different scales, and one
replaces a Gather at a Range by a Slice, which treats a negative start differently and clips out-of-range indices."""

LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
"""onnxruntime's names for the values of GRAPH_OPTIMIZATION."""

CPU = "CPUExecutionProvider"
"""onnxruntime's name of the processor."""


def quiet_options(engine: Any, *, shares_threads: bool) -> Any:
    """Options of a session without log output: its errors are exceptions."""
    options = engine.SessionOptions()
    options.log_severity_level = 4
    options.use_per_session_threads = not shares_threads
    return options


def set_running(options: Any, engine: Any, *, level: str, threads: int | None, between: int, spinning: bool) -> None:
    """Sets how the session runs; `threads` is None if the process has one pool for all sessions."""
    options.graph_optimization_level = getattr(engine.GraphOptimizationLevel, LEVELS[level])
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = between
    if between != 1:
        options.execution_mode = engine.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    # Threads that spin after a run take cores from the next subgraph's: up to twenty times slower.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # With weight-only quantization, activations stay in floating point: by default they are rounded to bytes.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")


def reason(error: BaseException) -> str:
    """The engine's message without its error codes and line breaks."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text
