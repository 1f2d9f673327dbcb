"""How a session of onnxruntime is opened."""

from __future__ import annotations

from typing import Any

WRONG = ("DoubleQDQPairsRemover", "GatherToSliceFusion")
"""The optimizers that are off in every session: one makes one quantization of two in a row that have other scales, and one makes
a Slice of a Gather at a Range, which counts a first position below 0 otherwise and cuts off what lies outside."""

LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
"""onnxruntime's names for the values of GRAPH_OPTIMIZATION."""

CPU = "CPUExecutionProvider"
"""onnxruntime's name for the processor."""


def quiet_options(engine: Any, *, shares_threads: bool) -> Any:
    """Options of a session that says nothing itself: its errors are exceptions."""
    options = engine.SessionOptions()
    options.log_severity_level = 4
    options.use_per_session_threads = not shares_threads
    return options


def set_running(options: Any, engine: Any, *, level: str, threads: int | None, between: int, spinning: bool) -> None:
    """How the session runs; `threads` is None where the process has one pool for all sessions."""
    options.graph_optimization_level = getattr(engine.GraphOptimizationLevel, LEVELS[level])
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = between
    if between != 1:
        options.execution_mode = engine.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    # Threads that spin after a run take the processor from the next subgraph's: up to twenty times slower.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Where weights alone are quantized, activations stay numbers: by default they are rounded to bytes.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
