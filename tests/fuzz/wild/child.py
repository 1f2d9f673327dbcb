"""The process that files are tried in: python -m tests.fuzz.wild.child

Reads the paths of models and devices as lines of JSON, and answers each with what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import partita as pt
from partita.graph.errors import PartitaError
from tests.fuzz.children import Tell, serve
from tests.fuzz.wild.feeds import Feeds, drawn, kept_beside

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-4, "float64": 1e-5}
"""How far a number may be off, as a share of the largest."""


def main() -> None:
    """Serve until the input ends."""
    serve(lambda request, tell: {"results": tried(request["path"], request["devices"], tell)})


def tried(path: str, devices: Sequence[str], tell: Tell) -> dict[str, str]:
    """What onnxruntime makes of the model, and how each device compares with it."""
    tell({"step": "onnxruntime"})
    result = trusted(path)
    if isinstance(result, str):
        return {"onnxruntime": result}
    way, feeds, wanted, unsure = result
    tolerance = max(TOLERANCE["float16"], TOLERANCE["bfloat16"] / 4) if _has_halves(path) else None
    findings = {"onnxruntime": f"ran ({way})" + (f", unsure: {unsure}" if unsure else "")}
    for device in devices:
        tell({"step": device})
        try:
            graph = pt.load(path)
            with pt.compile(graph, device) as model:
                values = list(model(**feeds))
        except PartitaError as error:
            findings[device] = f"refused: {type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what is looked for)
            findings[device] = f"raised: {type(error).__name__}: {error}"
        else:
            findings[device] = compared(values, wanted, tolerance) or "agrees"
    return findings


def _has_halves(path: str) -> bool:
    """True for a model with numbers of two bytes: engines round them at different places."""
    text = str(onnx.load(path, load_external_data=False))
    return any(f"elem_type: {kind}\n" in text or f"data_type: {kind}\n" in text or f"  i: {kind}\n" in text for kind in (10, 16))


def trusted(path: str) -> str | tuple[str, Feeds, list[Any], str]:
    """Inputs with which onnxruntime runs, what it returns, and whether it returns that each time; or why it does not run."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    try:
        sessions = [_session(ort, path, level) for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")]
    except Exception as error:  # noqa: BLE001
        return f"refused: {error}"
    reason = "it has inputs that are not drawn"
    for ways in (kept_beside(path), drawn(sessions[0])):
        for way, feeds in ways:
            try:
                first, again, plain = (session.run(None, feeds) for session in (sessions[0], *sessions))
            except Exception as error:  # noqa: BLE001
                reason = f"fails: {error}"
                continue
            unsure = compared(again, first, 1e-6) or compared(plain, first)
            return way, feeds, first, unsure
    return reason


def _session(ort: Any, path: str, level: str) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compared(values: Sequence[Any], wanted: Sequence[Any], tolerance: float | None = None) -> str:
    """The first difference in words."""
    if len(values) != len(wanted):
        return f"differs: {len(values)} values, not {len(wanted)}"
    for i, (value, right) in enumerate(zip(values, wanted, strict=True)):
        text = _compared(value, right, tolerance)
        if text:
            return f"differs: {i}: {text}"
    return ""


def _compared(value: Any, right: Any, tolerance: float | None) -> str:
    if isinstance(right, float) and not isinstance(value, float):  # A number of a dictionary.
        value = float(value)
    if right is None or value is None:
        return "" if right is value else f"{str(value)[:60]}, not {str(right)[:60]}"
    if isinstance(right, Mapping):
        if not isinstance(value, Mapping) or set(value) != set(right):
            return f"{str(value)[:60]}, not {str(right)[:60]}"
        return compared([value[key] for key in right], list(right.values()), tolerance)
    if isinstance(right, list) and not isinstance(value, np.ndarray):
        return compared(list(value), right, tolerance)
    value, right = np.asarray(value), np.asarray(right)
    if value.shape != right.shape or (value.dtype != right.dtype and right.dtype.kind not in "OUV" and value.dtype.kind != "V"):
        return f"{value.dtype}{list(value.shape)}, not {right.dtype}{list(right.shape)}"
    if right.dtype.kind not in "fiub":
        return "" if (value == right).all() else f"{str(value)[:60]}, not {str(right)[:60]}"
    return _distance(value.astype(float), right.astype(float), tolerance or TOLERANCE.get(str(right.dtype), 0.0))


def _distance(value: np.ndarray[Any, Any], right: np.ndarray[Any, Any], tolerance: float) -> str:
    odd = ~(np.isfinite(value) & np.isfinite(right))
    if not np.array_equal(value[odd], right[odd], equal_nan=True):
        return f"{value[odd][:4]}, not {right[odd][:4]}"
    largest = np.abs(right[~odd]).max(initial=0.0)
    off = np.abs(value[~odd] - right[~odd])
    worst = off.max(initial=0.0)
    if worst <= tolerance * max(largest, 1e-3):
        return ""
    at = int(off.argmax())
    count = int((off > tolerance * largest).sum())
    return f"{value[~odd].flat[at]}, not {right[~odd].flat[at]}; {count} of {off.size}, largest {largest}"


if __name__ == "__main__":
    main()
