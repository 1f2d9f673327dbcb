"""The benchmark of overheads runs."""

from __future__ import annotations

import sys

import pytest

from benchmarks import overhead

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")


@pytest.mark.slow
def test_the_benchmark_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["overhead", "--tiny"])
    overhead.main()
    shown = capsys.readouterr().out
    assert "COPIED" not in shown and shown.count("no copy") == 3
    assert "in 5 subgraphs" in shown
    assert shown.count("by its own clock") == 2
