"""Sessions of decoders that torch exported say what torch says. Needs no torch: see tests/make_torch_decoders.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.decoder.input_roles import roles_of
from partita.accelerators.decoder.kv_pairs import find_caches
from partita.accelerators.errors import InputError, RunError
from tests.close import is_close

FOLDER = Path(__file__).parents[2] / "data" / "torch" / "decoders"


COPIES = "caches are copied: the devices of this model have no attention to a cache that is appended to"

CASES = [
    pytest.param("gpt2", "cpu", (), marks=pytest.mark.slow),
    ("llama", "cpu", ()),
    ("gemma3", "cpu", ()),
    ("gemma3", "reference", (COPIES,)),
]


@pytest.mark.parametrize(("name", "device", "notes"), CASES)
@pytest.mark.thinned(2)
def test_a_session_says_what_torch_says(name: str, device: str, notes: tuple[str, ...]) -> None:
    """Every second layer of Gemma's sees six positions alone, and keeps five; the conversation has nineteen."""
    with np.load(FOLDER / f"{name}.npz") as stored:
        scores, wanted = stored["scores"], stored["said"].tolist()
    session = pt.compile(pt.load(FOLDER / f"{name}.onnx"), device).session(longest=32, chunks=(7, 1))
    first = session(np.arange(3, 3 + scores.shape[1])[None])["logits"]
    said = [int(first[0, -1].argmax())]
    while len(said) < len(wanted):
        said.append(int(session(np.array([said[-1:]]))["logits"][0, -1].argmax()))
    assert session.notes == notes
    assert is_close(first, scores)
    assert said == wanted


@pytest.mark.slow
def test_a_prompt_of_any_length_has_one_form() -> None:
    """The sizes of Gemma's caches are not polynomials, and its model is compiled for each size. Before anything was said there
    are none."""
    with np.load(FOLDER / "gemma3.npz") as stored:
        scores = stored["scores"]
    model, ids = pt.compile(pt.load(FOLDER / "gemma3.onnx"), "cpu"), np.arange(3, 3 + scores.shape[1])[None]
    assert "compiled for each size" in " ".join(model.report.notes)
    for length in (7, 3, 5):
        session = model.session(longest=32)
        assert np.allclose(session(ids[:, :length])["logits"], scores[:, :length], atol=1e-5)
        if length < 7:
            assert np.allclose(session(ids[:, length : length + 1])["logits"], scores[:, length : length + 1], atol=1e-5)
    decoder = session._decoder
    assert {sizes.rows for sizes in decoder._steps} == {1} and session.notes == ()
    (prompt,) = decoder._prompts.values()
    assert prompt is not None and "compiled once for any size" in " ".join(prompt.report.notes)
    model.close()
    with pytest.raises(RunError, match="the model is closed"):
        prompt(ids, np.ones_like(ids), np.arange(ids.shape[1])[None])


def test_equal_sizes_may_have_several_symbols() -> None:
    graph = pt.load(FOLDER / "gpt2.onnx")
    caches = find_caches(graph)
    symbols = {str(cache.past.output_types[0].shape[2]) for cache in caches}  # type: ignore[union-attr, index]
    assert len(symbols) > 1
    roles = roles_of(graph, caches)
    assert {node.name: role for node, role in roles.filled.items()} == {"attention_mask": "mask", "position_ids": "positions"}
    assert symbols == {symbol for symbol, count in roles.symbols.items() if count == "past"}


def test_equal_sizes_with_several_symbols_are_compared() -> None:
    ids, marks = (pt.variable(name, "int64", (f"batch of {name}", "sequence")) for name in ("ids", "marks"))
    past = [pt.variable(f"past {name}", "float32", (f"batch of {name}", 2, "past", 4)) for name in ("ids", "marks")]
    new = pt.op("Reshape", pt.op("Cast", pt.op("Add", ids, marks), to=1), pt.constant(np.array([0, 2, -1, 4])))
    joined = [pt.op("Concat", one, new, axis=2) for one in past]
    total = pt.op("Add", pt.op("ReduceSum", joined[0]), pt.op("ReduceSum", joined[1]))
    graph = pt.Graph([total, *joined], [ids, marks, *past], "several")
    session = pt.compile(graph, "reference").session()
    with pytest.raises(InputError, match="dimension 'batch of marks' is 3, and that of another input 2"):
        session(np.ones((2, 8), np.int64), np.ones((3, 8), np.int64))
