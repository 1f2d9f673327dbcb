"""The benchmark of overheads runs, and its first figure is small enough."""

from __future__ import annotations

import sys

import pytest

from benchmarks import overhead

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")


def test_the_benchmark_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["overhead", "--tiny"])
    overhead.main()
    shown = capsys.readouterr().out
    assert "COPIED" not in shown and shown.count("no copy") == 3
    assert "in 5 subgraphs" in shown


def test_the_overhead_of_a_call():
    """At most 15 µs on a quiet machine; the best of three, since this one may not be quiet."""
    assert min(ours - bare for bare, ours in (overhead.one_op(20) for _ in range(3))) < 30
