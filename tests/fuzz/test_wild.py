"""Files of other people, of which two are made here: one on which all agree, and one that a device does not run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.fuzz.wild.__main__ import main
from tests.fuzz.wild.child import compared, tried


def save(folder: Path, name: str, text: str) -> None:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> {text}'), folder / name)


def test_a_folder_is_held_against_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    save(tmp_path, "sum.onnx", "g (float[N, 3] x, int64[N, 1] i) => (float[N, 3] y) { c = Cast <to = 1> (i) y = Add (x, c) }")
    save(tmp_path, "inverse.onnx", "g (float[2, 2] x) => (float[2, 2] y) { y = com.microsoft.Inverse (x) }")
    save(tmp_path, "wrong.onnx", "g (float[2] x) => (float[2] y) { y = Absent (x) }")
    monkeypatch.setattr(sys, "argv", ["wild", str(tmp_path), "--devices", "reference"])
    main()
    finding, *counts = capsys.readouterr().out.splitlines()
    assert finding.startswith("inverse.onnx\treference\tran (plain 2)\t\"refused: NotSupported")
    assert counts == ["2 onnxruntime: ran", "1 onnxruntime: refused", "1 reference: agrees", "1 reference: refused"]


def test_values_are_compared_by_type_shape_and_number(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    save(tmp_path, "neg.onnx", "g (float[2] x) => (float[2] y) { y = Neg (x) }")
    assert tried(str(tmp_path / "neg.onnx"), [], lambda _: None) == {"onnxruntime": "ran (plain 2)"}
    one = np.ones((2, 2), np.float32)
    assert compared([one], [one]) == ""
    assert compared([one * 1.001], [one]) == "differs: 0: 1.0010000467300415, not 1.0; 4 of 4, largest 1.0"
    assert compared([one.astype(np.float64)], [one]) == "differs: 0: float64[2, 2], not float32[2, 2]"
    assert compared([one[0]], [one]) == "differs: 0: float32[2], not float32[2, 2]"
    assert compared([one * np.nan], [one]).startswith("differs: 0: [nan nan nan nan], not [1. 1. 1. 1.]")
    assert compared([[{1: 0.5}]], [[{1: 0.25}]]) == "differs: 0: differs: 0: differs: 0: 0.5, not 0.25; 1 of 1, largest 0.25"
