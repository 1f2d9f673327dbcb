"""ONNX's node tests through sessions with the provider in front, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

from tests.onnxruntime_plugin.models import ROOT

REFUSED = ("InvalidGraph", "is not a registered function/op", "string_normalizer.cc")
"""Parts of errors with which onnxruntime refuses a model before it asks a provider, or one of its own kernels fails."""

DIFFERENT = {
    "test_loop16_seq_none_cpu": "a list of arrays of different ranks, which the runner does not compare",
    "test_attention_4d_causal_fp16_expanded_cpu": "sums of float16 whose order ONNX leaves open",
}


def check(devices: str, every: int, capsys: pytest.CaptureFixture[str], *only: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.onnxruntime_plugin.node_tests", devices, str(every), *only]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    outcomes = dict(json.loads(line) for line in ran.stdout.splitlines())
    failed = {name: error for name, error in outcomes.items() if error is not None}
    mine = {
        name: error for name, error in failed.items()
        if name not in DIFFERENT and "bernoulli" not in name and not any(part in error for part in REFUSED)
    }
    with capsys.disabled():
        print(f"\n{devices} in onnxruntime: {len(outcomes) - len(failed)} of {len(outcomes)} of ONNX's node tests pass")
    assert not mine and len(failed) < max(2, 0.06 * len(outcomes))


def test_a_sample_through_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    check("reference", 67, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["reference", "HETERO:cpu,reference"])
def test_all_through_a_session(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(devices, 1, capsys)
