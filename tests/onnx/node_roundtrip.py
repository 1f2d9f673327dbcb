"""Every model of ONNX's node tests: read, written, checked, and run before and after, bit for bit.

    python tests/onnx/node_roundtrip.py [part of a name]

prints how many there are, how many came through, and each that did not; `node_roundtrip_exceptions.txt` has the reasons."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
EXCEPTIONS = Path(__file__).with_name("node_roundtrip_exceptions.txt")


def node_cases() -> list[Any]:
    """ONNX's node tests (their making is loud with numpy's warnings)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind="node"))


def exceptions() -> dict[str, str]:
    """The reason for each test that cannot come through."""
    lines = (line.strip() for line in EXCEPTIONS.read_text("utf-8").splitlines())
    pairs = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in pairs}


def problem(case: Any) -> str | None:
    """What is wrong with the model after a round trip; None if nothing is."""
    import onnx.checker

    from partita.graph.readers import load
    from partita.graph.verify import verify
    from partita.graph.writers.onnx import to_model

    graph = load(case.model)
    verify(graph)
    written = to_model(graph)
    again = load(written)
    if str(again) != str(graph):
        return "the graph read from the written model is another"
    try:
        onnx.checker.check_model(written, full_check=True)
    except onnx.checker.ValidationError as error:
        return f"checker: {error}"
    except onnx.shape_inference.InferenceError as error:
        return f"checker: {error}"
    return next(filter(None, (_difference(case.model, written, inputs) for inputs, _ in case.data_sets)), None)


def _difference(original: Any, written: Any, inputs: list[Any]) -> str | None:
    """How the results differ, in the reference evaluator or, if that cannot run the original, in onnxruntime."""
    given = dict(zip((item.name for item in original.graph.input), map(_value, inputs), strict=False))
    for run in (_reference, _onnxruntime):
        before = run(original, given)
        if isinstance(before, list):
            after = run(written, given)
            if isinstance(after, str):
                return f"the written model does not run: {after}"
            return None if _same(before, after) else "the results differ"
        reason = before
    return f"nothing can run the original: {reason}"


def _reference(model: Any, given: dict[str, Any]) -> list[Any] | str:
    from onnx.reference import ReferenceEvaluator

    seeded = np.random.RandomState
    try:
        np.random.RandomState = lambda seed=None: seeded(0 if seed is None else seed)  # type: ignore[assignment]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(model).run(None, given))
    except Exception as error:  # noqa: BLE001 (the evaluator raises what it likes; the message is the result)
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        np.random.RandomState = seeded


def _onnxruntime(model: Any, given: dict[str, Any]) -> list[Any] | str:
    try:
        import onnxruntime
    except ImportError:
        return "onnxruntime is not installed"
    onnxruntime.set_default_logger_severity(4)
    try:
        return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, given))
    except Exception as error:  # noqa: BLE001 (so does the engine)
        return f"{type(error).__name__}: {error}"[:200]


def _value(proto: Any) -> Any:
    from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

    if isinstance(proto, TensorProto):
        return numpy_helper.to_array(proto)
    if isinstance(proto, SequenceProto):
        return numpy_helper.to_list(proto)
    return numpy_helper.to_optional(proto) if isinstance(proto, OptionalProto) else proto


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a is None or a == b or (a != a and b != b))


def failures(cases: list[Any]) -> Iterator[tuple[str, str]]:
    """The tests that do not come through, each with what is wrong."""
    for case in cases:
        result = problem(case)
        if result is not None:
            yield case.name, result


def main(part: str = "") -> int:
    """Run, print, and say whether all but the known exceptions came through."""
    known = exceptions()
    cases = [case for case in node_cases() if part in case.name]
    failed = dict(failures(cases))
    for name, result in failed.items():
        print(f"{name}: {result}\n    known: {known.get(name, 'no')}")
    print(f"{len(cases)} models, {len(cases) - len(failed)} came through, {len(failed.keys() & known.keys())} known exceptions")
    return 1 if failed.keys() - known.keys() else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(*sys.argv[1:2]))
