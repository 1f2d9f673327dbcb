"""ONNX's node tests, run by ONNX's own runner on TVM with the reference behind it."""

from __future__ import annotations

import pytest

from tests.accelerators.devices.node_tests import case_names, exceptions, run_cases

pytest.importorskip("tvm")

DEVICE = "HETERO:cpu,reference"
FILE = "exceptions_cpu.txt"


def check(names: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    """The part of them that pass; one that fails and is not an exception is an error."""
    outcome, known = run_cases(DEVICE, names), exceptions(FILE)
    with capsys.disabled():
        print(f"\n{DEVICE}: {len(outcome.passed)} of {len(names)} of ONNX's node tests pass")
    new = {name: why for name, why in outcome.failed.items() if name not in known}
    assert not new, f"these fail and are not in tests/data/onnx_backend/{FILE}: {new}"
    return len(outcome.passed) / len(names)


@pytest.mark.slow  # ONNX takes half a minute to make its cases
def test_a_sample_of_onnx_node_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(case_names(DEVICE)[::120], capsys) > 0.8


@pytest.mark.slow
def test_all_onnx_node_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(case_names(DEVICE), capsys) >= 0.97


@pytest.mark.slow
def test_each_exception_is_a_case() -> None:
    assert exceptions(FILE).keys() <= set(case_names(DEVICE))
