"""ONNX's backend interface: its own runner on a device of ours, and the calls one by one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.accelerators.devices.node_tests import case_names, exceptions, run_cases

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

DEVICE = "HETERO:onnxruntime,reference"


def check(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run_cases(DEVICE, names)
    known = exceptions("exceptions.txt")
    with capsys.disabled():
        print(f"\n{DEVICE}: {len(outcome.passed)} of {len(names)} of ONNX's node tests pass")
    new = {name: why for name, why in outcome.failed.items() if name not in known}
    assert not new, f"these fail and are not in tests/data/onnx_backend/exceptions.txt: {new}"
    assert len(outcome.passed) >= 0.97 * len(names)


def test_a_sample_of_onnx_node_tests(capsys: pytest.CaptureFixture[str]) -> None:
    check(case_names(DEVICE)[::24], capsys)


@pytest.mark.slow
def test_all_onnx_node_tests(capsys: pytest.CaptureFixture[str]) -> None:
    check(case_names(DEVICE), capsys)


def test_each_exception_is_a_case() -> None:
    assert exceptions("exceptions.txt").keys() <= set(case_names(DEVICE))


def test_run_model_by_position_and_by_name() -> None:
    from partita.accelerators import onnx_backend as backend

    node = helper.make_node("Add", ["a", "b"], ["c"])
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "ab"]
    out = helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [2])
    model = helper.make_model(helper.make_graph([node], "g", values, [out]), opset_imports=[helper.make_opsetid("", 21)])
    a, b = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    assert backend.run_model(model, [a, b], device=DEVICE)[0].tolist() == [11, 22]
    assert backend.prepare(model, "reference").run({"a": a, "b": b}).c.tolist() == [11, 22]
    assert backend.is_compatible(model, "onnxruntime")


def test_run_node() -> None:
    from partita.accelerators import onnx_backend as backend

    result = backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [np.array([-1, 2], np.float32)], device="reference")
    assert result.y.tolist() == [0, 2]


def test_supports_device() -> None:
    from partita.accelerators import onnx_backend as backend

    assert backend.supports_device("CPU")
    assert backend.supports_device("reference")
    assert not backend.supports_device("TPU")
    assert not backend.supports_device("HETERO:reference,tpu")
