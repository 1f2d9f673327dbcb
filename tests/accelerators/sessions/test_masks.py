"""Masks that hide tokens: sequences of several lengths side by side say what each says alone."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest

import partita as pt
from benchmarks.models.exports import SMALL, SMALL_LLAMA, gpt2, llama
from tests.accelerators.sessions.test_sessions import Make, Sizes, tokens, told_at_once, with_buffers
from tests.close import is_close

LENGTHS = (5, 3)
"""The prompts of two sequences; the second one is filled up at its left."""

MASK = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])

NOTE = "caches are copied: a mask hides tokens"


def alone(graph: pt.Graph, ids: np.ndarray, end: int) -> np.ndarray:
    """The scores behind the last of so many tokens, of each sequence by itself."""
    starts = [LENGTHS[0] - length for length in LENGTHS]
    return np.concatenate([told_at_once(graph, ids[i : i + 1, start:end])[:, -1] for i, start in enumerate(starts)])


def close(scores: np.ndarray, wanted: np.ndarray) -> bool:
    return is_close(scores[:, -1], wanted, atol=2e-5)


MODELS = [
    pytest.param(gpt2, attrs.evolve(SMALL, layers=1), id="gpt2"),
    pytest.param(llama, attrs.evolve(SMALL_LLAMA, layers=1), id="llama"),
    pytest.param(llama, attrs.evolve(SMALL_LLAMA, layers=1, position_ids=False), id="llama without positions"),
]


@pytest.mark.thinned(6)
@pytest.mark.parametrize(("make", "sizes"), MODELS)
@pytest.mark.parametrize("device", ["cpu", "reference", "HETERO:onnxruntime,reference"])
def test_a_prompt_is_filled_up_at_its_left(make: Make, sizes: Sizes, device: str) -> None:
    if "onnxruntime" in device:
        pytest.importorskip("onnxruntime")
    graph, ids = make(sizes), tokens(8, batch=2)
    session = pt.compile(graph, device).session()
    assert close(session(ids[:, :5], attention_mask=MASK)["logits"], alone(graph, ids, 5))
    assert NOTE in session.notes
    for end in (6, 7):
        assert close(session(ids[:, end - 1 : end])["logits"], alone(graph, ids, end))
    whole = np.concatenate([MASK, np.ones((2, 3), np.int64)], axis=1)
    assert close(session(ids[:, 7:], attention_mask=whole)["logits"], alone(graph, ids, 8))


@pytest.fixture(scope="module")
def graph() -> pt.Graph:
    return gpt2(attrs.evolve(SMALL, layers=1))


@pytest.fixture(scope="module")
def model(graph: pt.Graph) -> pt.CompiledModel:
    return pt.compile(graph, "cpu")


def test_what_is_hidden_goes_with_forks_and_files(model: pt.CompiledModel, graph: pt.Graph, tmp_path: Path) -> None:
    ids, session = tokens(7, batch=2), model.session()
    session(ids[:, :5], attention_mask=MASK)
    session.save(tmp_path / "said")
    forked, loaded = session.fork(rows=[1, 0]), pt.compile(graph, "reference").session().load(tmp_path / "said")
    wanted = alone(graph, ids, 6)
    assert close(forked(ids[::-1, 5:6])["logits"], wanted[::-1])
    assert close(loaded(ids[:, 5:6])["logits"], wanted)
    assert NOTE in forked.notes and NOTE in loaded.notes


def test_a_conversation_goes_on_in_place_once_nothing_is_hidden(model: pt.CompiledModel, graph: pt.Graph) -> None:
    ids, session = tokens(7), model.session(longest=16, chunks=(1,))
    session(ids[:, :4])
    assert session.notes == ()
    hiding = session(ids[:, 4:5], attention_mask=np.array([[0, 1, 1, 1, 1]]), position_ids=np.array([[4]]))["logits"]
    assert session.notes == (NOTE,)
    assert not close(hiding, told_at_once(graph, ids[:, :5])[:, -1])
    session.reset()
    assert session.notes == ()
    assert close(session(ids)["logits"], told_at_once(graph, ids)[:, -1])


def test_a_call_that_fails_hides_nothing(model: pt.CompiledModel, graph: pt.Graph) -> None:
    ids, session = tokens(4), model.session(longest=16, chunks=(1,))
    session(ids[:, :3])
    with pytest.raises(pt.PartitaError):
        session(np.array([[SMALL.words + 7]]), attention_mask=np.array([[0, 1, 1, 1]]))
    assert session.notes == () and session.length == 3
    assert close(session(ids[:, 3:])["logits"], told_at_once(graph, ids)[:, -1])


def test_a_file_whose_mask_does_not_fit_is_refused(model: pt.CompiledModel, tmp_path: Path) -> None:
    session = model.session()
    session(tokens(5, batch=2), attention_mask=MASK)
    session.save(tmp_path / "said")
    with np.load(tmp_path / "said") as stored:
        arrays = dict(stored)
    arrays["partita.mask"] = np.ones((2, 4), bool)
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(pt.PartitaError, match="the file is not a session of this model"):
        model.session().load(tmp_path / "other.npz")
    said = pt.compile(with_buffers(), "reference").session()
    said(tokens(3))
    said.save(tmp_path / "buffers")
    with np.load(tmp_path / "buffers") as stored:
        np.savez(tmp_path / "masked.npz", **stored, **{"partita.mask": np.array([[False, True, True]])})
    with pytest.raises(pt.PartitaError, match="the file says which tokens count, and the model has no mask"):
        said.load(tmp_path / "masked.npz")
