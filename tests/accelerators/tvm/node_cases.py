"""ONNX's own node tests on the device `cpu`, or `opencl`, each by itself:

    python -m tests.accelerators.tvm.node_cases [part of a name] [device]

prints what became of them: right with at least one kernel, right because all of it folded away, refused by `query` (with the
commonest reasons), wrong, or failing after it was accepted. What is wrong belongs into
`accelerators/tvm/query/known_wrong.py`."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.graph.errors import PartitaError
from tests.numerics.driver import from_proto


def cases() -> list[Any]:
    """ONNX's node tests (their making is loud with numpy's warnings)."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind="node"))


def outcome(case: Any, name: str = "cpu") -> tuple[str, str]:
    """"kernels", "folded", "refused", "wrong", "failed" or "no tensors", and the reason."""
    sets = [([from_proto(x) for x in given], [from_proto(y) for y in wanted]) for given, wanted in case.data_sets]
    if not all(isinstance(value, np.ndarray) for given, wanted in sets for value in (*given, *wanted)):
        return "no tensors", ""
    device = accelerator(name)
    try:
        given = zip(case.model.graph.input, sets[0][0], strict=False)
        shapes = {value.name: array.shape for value, array in given if value.type.HasField("tensor_type")}
        graph = pt.load(case.model, shapes=shapes)
        reasons = [answer for answer in device.query(graph).values() if answer is not True]
        if reasons:
            return "refused", str(reasons[0])
        model = device.compile(graph, device.full_config({}))
        problem = next(filter(None, (difference(model.run(given), wanted, case) for given, wanted in sets)), None)
    except PartitaError as error:
        return "failed", error.cause
    if problem is not None:
        return "wrong", problem
    return ("kernels" if model.kernels() else "folded"), ""  # type: ignore[attr-defined]


def difference(outputs: Any, wanted: list[Any], case: Any) -> str | None:
    """How the outputs differ from what is expected; half precision may be off by two steps."""
    for a, b in zip(outputs, wanted, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        if a.dtype.kind in "fcV":
            slack = 2e-2 if a.dtype.itemsize == 2 else 0.0
            rtol, atol = max(case.rtol, slack), max(case.atol, slack)
            if not np.allclose(a.astype("d"), b.astype("d"), rtol=rtol, atol=atol, equal_nan=True):
                return "other values"
        elif not np.array_equal(a, b):
            return "other values"
    return None


def main() -> None:
    """Count the outcomes."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    listed = {case.name: outcome(case, device) for case in cases() if pattern in case.name}
    count = Counter(kind for kind, _ in listed.values())
    print(f"{len(listed)} cases: " + ", ".join(f"{kind} {n} ({n / len(listed):.1%})" for kind, n in count.most_common()))
    for reason, n in Counter(reason for kind, reason in listed.values() if kind == "refused").most_common(25):
        print(f"  refused {n}: {reason[:110]}")
    for name, (kind, reason) in listed.items():
        if kind in ("wrong", "failed"):
            print(f"  {kind} {name}: {reason[:140]}")


if __name__ == "__main__":
    main()
