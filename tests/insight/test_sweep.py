"""A sample of the sweep of planted faults on real devices, and all of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

import partita as pt
from tests.graphs.small_models import convolutions, transformer
from tests.insight import sweep
from tests.insight.planting import KINDS, Plant
from tests.insight.sweep import DEVICES, Subject, main, read_results, swept, table


def small(graph: pt.Graph) -> Subject:
    typed = pt.apply_pass(graph, "InferShape")
    (x,) = typed.inputs
    array = np.random.default_rng(1).standard_normal(x[0].type.shape, np.float32)  # type: ignore[union-attr,arg-type]
    return Subject(typed.name, typed, {x.name: array})


@pytest.mark.slow
def test_faults_on_real_devices_are_found() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    pytest.importorskip("tvm")
    subjects = [small(convolutions()), small(transformer())]
    results = list(swept(subjects, DEVICES, 2 * len(KINDS), "reference"))
    assert {(one.device, one.model) for one in results} == {(device, one.name) for device in DEVICES for one in subjects}
    assert not [str(one) for one in results if not (one.exact and one.within)]


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    subjects, devices = [small(convolutions())], ("onnxruntime",)
    results = list(swept(subjects, devices, 2, "reference"))
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(attrs.asdict(one)) + "\n" for one in results))
    known = read_results(path)
    assert list(known.values()) == results
    monkeypatch.setattr(sweep, "diagnosed", None)
    assert list(swept(subjects, devices, 2, "reference", known=known)) == results
    assert table(results).split("\n")[-1].startswith("| `onnxruntime` | 1 of 1 | 1 of 1 | 0 of 0 |")


def test_a_wrong_output_that_is_laid_on_nothing_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = small(convolutions())
    for is_ok in (True, False):
        monkeypatch.setattr(pt, "diagnose", lambda *args, ok=is_ok, **options: SimpleNamespace(fault=None, ok=ok))
        result = sweep.diagnosed(subject, "reference", Plant("off", "first"), "reference")
        assert (result is None) == is_ok
    assert result is not None and not result.exact


@pytest.mark.slow
def test_two_hundred_faults_in_fifteen_models() -> None:
    """Takes about an hour on two cores."""
    assert main(["--count", "200"]) == 0
