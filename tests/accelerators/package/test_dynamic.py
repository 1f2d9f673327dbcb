"""BERT with any number of tokens on the TVM device, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from accelerators.registry import accelerator
from accelerators.specialized import KEPT

BERT = Path(__file__).parents[2] / "data" / "torch" / "bert_dynamic.onnx"


def check_lengths(lengths):
    engine = pytest.importorskip("onnxruntime")
    try:
        accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))
    session = engine.InferenceSession(BERT)
    model = pt.compile(pt.load(BERT), "cpu")
    random = np.random.default_rng(0)
    seen = set()
    for n in lengths:
        feed = {"input_ids": random.integers(0, 20, (1, n)), "attention_mask": np.ones((1, n), np.int64)}
        seen.add(n)
        for a, b in zip(model(feed), session.run(None, feed), strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max(), f"{n} tokens"
    assert len(model.units) == 1, "the symbolic graph is cut once"
    assert len(model.units[0].compiled.sizes) == min(len(seen), KEPT)


def test_bert_with_two_lengths():
    check_lengths([5, 2, 5])


@pytest.mark.slow
def test_bert_with_many_lengths():
    check_lengths(np.random.default_rng(1).permutation(np.arange(1, 33)).tolist())
