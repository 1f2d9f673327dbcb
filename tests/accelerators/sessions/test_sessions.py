"""Sessions say the same as the model that is told everything anew, on every device, however a decoder was exported."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from benchmarks.models.exports import SMALL, SMALL_LLAMA, Llama, Sizes, Value, gpt2, llama, numbers, scalar
from partita.accelerators.decoder.input_roles import Unfit, roles_of
from partita.accelerators.decoder.kv_pairs import find_caches
from partita.accelerators.decoder.step import StepSizes, step_graph
from partita.accelerators.errors import AcceleratorError, InputError, NotSupported, RunError
from partita.graph.interpret import evaluate_node
from tests.close import is_close
from tests.insight.small_devices import device_of

Make = Callable[[Sizes], pt.Graph]

EXPORTS = [
    pytest.param(
        make, attrs.evolve(sizes, layers=1, style=style, position_ids=given), id=f"{make.__name__}-{style}-{given}",
        marks=() if (make is gpt2) == ((style == "ops") == given) else pytest.mark.slow,
    )
    for make, sizes in ((gpt2, SMALL), (llama, SMALL_LLAMA))
    for style in ("ops", "op")
    for given in (True, False)
]
"""All ways; each two of their parameters' values meet in a quick one."""


def told_at_once(graph: pt.Graph, ids: np.ndarray) -> np.ndarray:
    """The scores where all tokens are given in one call."""
    batch, rows = ids.shape
    feeds = {"input_ids": ids, "attention_mask": np.ones((batch, rows), np.int64)}
    for node in graph.inputs:
        kind = node.output_types[0]
        assert isinstance(kind, pt.TensorType) and kind.shape is not None
        if node.name == "position_ids":
            feeds[node.name] = np.broadcast_to(np.arange(rows), (batch, rows))
        elif len(kind.shape) == 4:
            feeds[node.name] = np.zeros((batch, kind.shape[1], 0, kind.shape[3]), np.float32)
    scores: np.ndarray = pt.compile(graph, "reference")(feeds)["logits"]
    return scores


def tokens(rows: int, batch: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, SMALL.words, (batch, rows))


@pytest.mark.parametrize(("make", "sizes"), EXPORTS)
@pytest.mark.thinned(4)
def test_a_step_is_recognised_and_says_the_same(make: Make, sizes: Sizes) -> None:
    graph = make(sizes)
    session = pt.compile(graph, "cpu").session(longest=24, chunks=(4, 1))
    ids = tokens(7)
    wanted = told_at_once(graph, ids)
    first = session(ids[:, :4])["logits"]
    rest = [session(part)["logits"] for part in (ids[:, 4:6], ids[:, 6:])]
    assert session.notes == ()
    assert session.length == 7
    assert is_close(np.concatenate([first, *rest], axis=1), wanted)
    steps = session._decoder._steps
    assert {size.rows for size in steps} >= {1, 4}
    for step in steps.values():  # No pass has made the body of the call another one, by which the kernel would not be known.
        assert [kernel.schedule for kernel in step.kernels()].count("cached attention") == sizes.layers
    assert all(not array[:, :, 7:].any() for array in session._state.arrays.values())


@pytest.mark.parametrize("device", ["HETERO:onnxruntime,reference", "HETERO:openvino,reference", "reference"])
@pytest.mark.thinned(2)
def test_other_devices_copy_and_say_the_same(device: str) -> None:
    if device != "reference":
        pytest.importorskip(device.removeprefix("HETERO:").partition(",")[0])
    graph, ids = llama(SMALL_LLAMA), tokens(6, batch=2)
    session = pt.compile(graph, device).session()
    outputs = [session(ids[:, :4])["logits"], session(ids[:, 4:5])["logits"], session(input_ids=ids[:, 5:])["logits"]]
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))
    (note,) = session.notes
    assert note == "caches are copied: the devices of this model have no attention to a cache that is appended to"


class _Window(Llama):
    """Each token sees the last five alone."""

    def visible(self) -> Value:
        near = pt.op("Greater", pt.op("Add", self.columns(), numbers(5)), self.rows())
        return pt.op("And", super().visible(), pt.op("Unsqueeze", near, numbers(0, 1)))


class _Chunks(Llama):
    """Each token sees those before it in its own chunk alone."""

    chunk = 8

    def visible(self) -> Value:
        number = pt.constant(np.int64(self.chunk))
        same = pt.op("Equal", pt.op("Div", self.columns(), number), pt.op("Div", self.rows(), number))
        return pt.op("And", super().visible(), pt.op("Unsqueeze", same, numbers(0, 1)))


class _Kept(Llama):
    """Each token sees the last five alone, and only the last four are kept."""

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        caches = slice(2 * layer, 2 * layer + 2)
        self.caches[caches] = [last_four(past) for past in self.caches[caches]]  # type: ignore[list-item]
        seen = super().attend(layer, query, key, value)
        self.present[caches] = [last_four(joined) for joined in self.present[caches]]
        return seen

    def visible(self) -> Value:
        near = pt.op("Greater", pt.op("Add", self.columns(), numbers(5)), self.rows())
        return pt.op("And", super().visible(), pt.op("Unsqueeze", near, numbers(0, 1)))


def last_four(x: Value) -> Value:
    return pt.op("Slice", x, numbers(-4), numbers(np.iinfo(np.int64).max), numbers(2), numbers(1))


class _Slopes(Llama):
    """What is far counts less."""

    def masked(self, scores: Value) -> Value:
        far = pt.op("Cast", pt.op("Sub", self.columns(), self.rows()), to=1)
        return pt.op("Add", super().masked(scores), pt.op("Mul", far, pt.constant(np.float32(0.1))))


class _Bent(Llama):
    """Large scores are bent towards a number."""

    def masked(self, scores: Value) -> Value:
        high = pt.constant(np.float32(400.0))
        return super().masked(pt.op("Mul", pt.op("Tanh", pt.op("Div", scores, high)), high))


class _Summed(Llama):
    """The past is read by more than attention."""

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        total = pt.op("ReduceSum", self.caches[0], numbers(2), keepdims=1)
        wide = pt.op("ReduceSum", total, numbers(1, 3), keepdims=1)
        return super().attend(layer, pt.op("Add", query, wide), key, value)


class _Repeated(Llama):
    """ONNX's Attention reads heads of keys and values that are repeated, of a past that went through a Concat of its own."""

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        past = [pt.op("Concat", one, axis=-2) for one in self.caches[2 * layer : 2 * layer + 2]]
        joined = [pt.op("Concat", old, new, axis=-2) for old, new in zip(past, (key, value), strict=True)]
        self.present += joined
        return self.joined(pt.op("Attention", query, *map(self.repeated, joined), self.visible(), opset=24))


class _Rotary(Llama):
    """Queries and keys are turned by ONNX's own op, by tables of sines and cosines."""

    def turned(self, x: Value) -> Value:
        half = self.sizes.each // 2
        angles = np.arange(self.sizes.longest)[:, None] * 10000.0 ** (-np.arange(half) / half)
        tables = [pt.constant(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles))]
        return pt.op("RotaryEmbedding", x, *tables, self.positions, opset=24)


@pytest.mark.slow
def test_keys_that_an_op_turns_are_appended_to_in_place() -> None:
    graph, ids = _Rotary(attrs.evolve(SMALL_LLAMA, layers=1, style="op")).graph("rotary"), tokens(5)
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    outputs = [session(ids[:, :4])["logits"], session(ids[:, 4:])["logits"]]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


@pytest.mark.slow
def test_repeated_heads_that_attention_reads_are_appended_to_in_place() -> None:
    graph, ids = _Repeated(attrs.evolve(SMALL_LLAMA, layers=1, style="op")).graph("repeated"), tokens(5)
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    outputs = [session(ids[:, :4])["logits"], session(ids[:, 4:])["logits"]]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


@pytest.mark.parametrize("longest", [5, 8, 12])
@pytest.mark.slow
def test_a_window_is_found_in_a_buffer_that_it_fills_nearly(longest: int) -> None:
    """Where the first of several new tokens sees all, the last may not."""
    graph, ids = _Window(attrs.evolve(SMALL_LLAMA, layers=1)).graph("window"), tokens(longest)
    session = pt.compile(graph, "cpu").session(longest=longest, chunks=(4, 1))
    outputs = [session(part)["logits"] for part in np.split(ids, [4], axis=1)]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


KEPT = attrs.evolve(SMALL_LLAMA, layers=1)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("device", ["cpu", "reference", "HETERO:onnxruntime,reference"])
@pytest.mark.parametrize("style", ["ops", "op"])
def test_caches_of_the_last_positions_go_on(device: str, style: str, tmp_path: Path) -> None:
    if "onnxruntime" in device:
        pytest.importorskip("onnxruntime")
    sizes = attrs.evolve(KEPT, style=style)
    graph, ids = _Kept(sizes).graph("kept"), tokens(13, batch=2)
    wanted = told_at_once(_Window(sizes).graph("window"), ids)
    session = pt.compile(graph, device).session(longest=16, chunks=(3, 1))
    ends = (3, 4, 5, 6, 9, 10)
    for start, end in zip((0, *ends), ends, strict=False):
        assert is_close(session(ids[:, start:end])["logits"], wanted[:, start:end])
    assert bool(session.notes) == (device != "cpu")
    session.save(tmp_path / "said")
    for other in (session.fork(), pt.compile(graph, "reference").session().load(tmp_path / "said"), session):
        assert is_close(other(ids[:, 10:])["logits"], wanted[:, 10:])
    session.reset()
    assert is_close(session(ids[:, :12])["logits"], wanted[:, :12])
    session.save(tmp_path / "whole")
    with np.load(tmp_path / "whole") as stored:
        assert {array.shape for name, array in stored.items() if "past" in name} == {(2, 2, 4, 8)}
    again = session.fork(rows=[1]).load(tmp_path / "said").fork(rows=[1, 0])
    assert is_close(again(ids[::-1, 10:])["logits"], wanted[::-1, 10:])


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.thinned(2)
def test_hidden_tokens_of_caches_of_the_last_positions(device: str) -> None:
    graph, ids = _Kept(KEPT).graph("kept"), tokens(10, batch=2)
    hiding = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    session, alone = pt.compile(graph, device).session(), _Window(KEPT).graph("window")
    session(ids[:, :6], attention_mask=hiding)
    for at in range(6, 10):
        scores = session(ids[:, at : at + 1])["logits"]
        assert is_close(scores[0], told_at_once(alone, ids[:1, : at + 1])[0, -1:])
        assert is_close(scores[1], told_at_once(alone, ids[1:, 2 : at + 1])[0, -1:])


def test_one_mask_for_caches_of_different_lengths_hides_nothing() -> None:
    path = Path(__file__).parents[2] / "data" / "torch" / "decoders" / "gemma3.onnx"
    session, hiding = pt.compile(pt.load(path), "reference").session(), np.array([[1] * 8, [0] + [1] * 7])
    session(tokens(8, batch=2), attention_mask=hiding)
    with pytest.raises(InputError, match="a mask hides tokens, and some caches hold the last positions alone"):
        session(tokens(1, batch=2))


@pytest.mark.parametrize("longest", [16, 24, 30])
@pytest.mark.thinned(2)
def test_chunks_are_no_window_that_slides(longest: int) -> None:
    """Buffers may end with a chunk, where both see the same; only what lies between tells them apart."""
    graph, ids = _Chunks(attrs.evolve(SMALL_LLAMA, layers=1)).graph("chunks"), tokens(12)
    session = pt.compile(graph, "cpu").session(longest=longest, chunks=(1,))
    outputs = [session(ids[:, at : at + 1])["logits"] for at in range(12)]
    (note,) = session.notes
    assert "is not plain causal attention to" in note
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("chunk", [2, 7, 8, 64, 500, 513, 1000])
@pytest.mark.thinned(2)
def test_chunks_of_any_size_are_told_from_windows(chunk: int, rows: int) -> None:
    graph = type("_Sized", (_Chunks,), {"chunk": chunk})(attrs.evolve(SMALL_LLAMA, layers=1, longest=1024)).graph("chunks")
    with pytest.raises(Unfit, match="is not plain causal attention to"):
        step_graph(roles_of(graph, find_caches(graph)), StepSizes(1, rows, 1024))


class _Started(Llama):
    """The caller gives the position of the first token of a call."""

    def scores(self) -> Value:
        start = pt.variable("start_pos", "int64", (1,))
        self.inputs.append(start)
        steps = pt.op("Range", pt.constant(np.int64(0)), scalar(self.new), pt.constant(np.int64(1)))
        self.positions = pt.op("Unsqueeze", pt.op("Add", steps, start), numbers(0))
        return super().scores()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.thinned(2)
def test_the_position_of_the_first_token_is_given_to_all_of_them(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a prompt would each begin where the first one does."""
    sizes = attrs.evolve(SMALL_LLAMA, layers=1, position_ids=False)
    graph, ids = _Started(sizes).graph("started"), tokens(7)
    if cut:
        monkeypatch.setattr(pt.CompiledModel, "is_for_any_size", False)
    session = pt.compile(graph, "cpu").session(longest=24, chunks=(2, 1))
    outputs = [session(ids[:, :5], start_pos=np.array([0]))["logits"], session(ids[:, 5:], start_pos=np.array([5]))["logits"]]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(llama(sizes), ids))


def test_a_window_that_slides_is_appended_to_in_place() -> None:
    graph, ids = _Window(attrs.evolve(SMALL_LLAMA, layers=1)).graph("window"), tokens(11)
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    outputs = [session(ids[:, start:end])["logits"] for start, end in ((0, 8), (8, 9), (9, 10), (10, 11))]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


UNLIKE = [
    (_Slopes, "'matmul_1' is not plain causal attention to 1 earlier positions"),
    (_Bent, "'matmul_1' is not plain causal attention to 6 earlier positions"),
    (_Summed, "'reducesum_0' reads the past, and is not attention"),
]


@pytest.mark.parametrize(("decoder", "reason"), UNLIKE)
def test_what_is_not_plain_attention_is_not_taken_for_it(decoder: type[Llama], reason: str) -> None:
    graph = decoder(attrs.evolve(SMALL_LLAMA, layers=1)).graph("unlike")
    roles = roles_of(graph, find_caches(graph))
    with pytest.raises(Unfit) as refusal:
        step_graph(roles, StepSizes(1, 2, 16))
    assert refusal.value.cause == reason


def test_what_is_not_recognised_is_copied() -> None:
    graph, ids = _Slopes(attrs.evolve(SMALL_LLAMA, layers=1)).graph("slopes"), tokens(9)
    session = pt.compile(graph, "cpu").session(longest=16)
    outputs = [session(ids[:, :8])["logits"], session(ids[:, 8:])["logits"]]
    assert session.notes == ("caches are copied: 'matmul_1' is not plain causal attention to 1 earlier positions",)
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))


@pytest.mark.parametrize("longest", [None, 48])
@pytest.mark.thinned(2)
def test_a_table_of_few_positions_is_the_longest_conversation(longest: int | None) -> None:
    graph, ids = gpt2(attrs.evolve(SMALL, layers=1, longest=20)), tokens(20)
    session = pt.compile(graph, "cpu").session(longest=longest, chunks=(4, 1))
    outputs = [session(ids[:, :18])["logits"], session(ids[:, 18:])["logits"]]
    assert session.notes == ()
    assert is_close(np.concatenate(outputs, axis=1), told_at_once(graph, ids))
    with pytest.raises(InputError, match="20 tokens were read, and 1 more exceed 20\n  The model has no more positions"):
        session(ids[:, :1])
    assert session.length == 20


@pytest.fixture(scope="module")
def model() -> Iterator[pt.CompiledModel]:
    with pt.compile(llama(attrs.evolve(SMALL_LLAMA, layers=1)), "cpu") as compiled:
        yield compiled


def test_no_step_compiles_or_moves_a_cache(model: pt.CompiledModel) -> None:
    session, ids = model.session(longest=32), tokens(1)
    session(ids)
    decoder, state = session._decoder, session._state
    steps, arrays = dict(decoder._steps), dict(state.arrays)
    for _ in range(31):
        session(ids)
    assert decoder._steps == steps
    assert all(state.arrays[name] is array for name, array in arrays.items())
    with pytest.raises(InputError, match="32 tokens were read, and 1 more exceed 32"):
        session(ids)
    session.reset()
    assert session.length == 0
    session(ids)
    assert decoder._steps == steps


@pytest.mark.slow
def test_a_rest_is_read_with_tokens_before_it(model: pt.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven tokens in pieces of four: the last piece begins one token earlier, and not three single steps."""
    monkeypatch.setattr(pt.CompiledModel, "is_for_any_size", False)
    ids = tokens(11)
    session, slow = model.session(longest=32, chunks=(4, 1)), model.session(longest=32, chunks=(1,))
    outputs = [session(ids[:, :7])["logits"], session(ids[:, 7:8])["logits"], session(ids[:, 8:])["logits"]]
    assert session.length == 11
    assert is_close(np.concatenate(outputs, axis=1), slow(ids)["logits"])
    pieces = [[(piece.start, piece.count, piece.again) for piece in session._pieces(1, rows)] for rows in (3, 5, 7, 10)]
    singles = [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    assert pieces == [singles, [(0, 4, 0), (4, 1, 0)], [(0, 4, 0), (3, 4, 1)], [(0, 4, 0), (4, 4, 0), (6, 4, 2)]]


def test_room_is_doubled(model: pt.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.accelerators.decoder.conversation.ROOM", 4)
    ids = tokens(9)
    small, large = model.session(chunks=(1,)), model.session(longest=32, chunks=(1,))
    for at in range(9):
        assert is_close(small(ids[:, at : at + 1])[0], large(ids[:, at : at + 1])[0])
    assert {array.shape[2] for array in small._state.arrays.values()} == {16}


def test_a_fork_goes_its_own_way(model: pt.CompiledModel) -> None:
    session = model.session(longest=32, chunks=(1,))
    for at in range(3):
        session(tokens(3)[:, at : at + 1])
    fork = session.fork()
    first = fork(tokens(1, seed=1))[0]
    session(tokens(1, seed=2))
    second = fork(tokens(1, seed=3))[0]
    alone = model.session(longest=32, chunks=(1,))
    ids = np.concatenate([tokens(3), tokens(1, seed=1), tokens(1, seed=3)], axis=1)
    outputs = [alone(ids[:, at : at + 1])[0] for at in range(5)]
    assert np.array_equal(first, outputs[3])
    assert np.array_equal(second, outputs[4])


def test_a_fork_may_choose_sequences(model: pt.CompiledModel) -> None:
    session = model.session(longest=32, chunks=(1,))
    ids = tokens(2, batch=2)
    session(ids[:, :1])
    session(ids[:, 1:])
    beams = session.fork(rows=[1, 1])
    ones = beams(np.array([[3], [4]]))[0]
    both = session(np.array([[7], [4]]))[0]
    assert is_close(ones[1], both[1], atol=1e-6)
    with pytest.raises(InputError, match=r"rows \[2\] are not among the 2 sequences of the conversation"):
        session.fork(rows=[2])


def test_a_session_is_saved_and_goes_on_elsewhere(model: pt.CompiledModel, tmp_path: Path) -> None:
    session, path = model.session(longest=32, chunks=(1,)), tmp_path / "talk.npz"
    for at in range(3):
        session(tokens(3)[:, at : at + 1])
    session.save(path)
    again = model.session(longest=32, chunks=(1,)).load(path)
    assert again.length == 3
    assert np.array_equal(again(tokens(1))[0], session(tokens(1))[0])
    copying = pt.compile(model.origin.graph, "reference").session().load(path)  # type: ignore[union-attr]
    assert is_close(copying(tokens(1))[0], model.session(longest=32, chunks=(1,)).load(path)(tokens(1))[0])


def test_a_file_that_is_no_session_is_refused(model: pt.CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(AcceleratorError, match="the file is not a session of this model"):
        model.session().load(path)
    path.write_bytes(b"not a file of numpy's")
    with pytest.raises(AcceleratorError, match="no saved session can be read"):
        model.session().load(path)
    with pytest.raises(AcceleratorError, match="no saved session can be read"):
        model.session().load(tmp_path / "missing.npz")


def stored(counts: dict[str, np.ndarray], **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{"partita.length": np.array(2), "partita.batch": np.array(1), **counts}, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def claiming(file: bytes) -> bytes:
    """The file, with a header that claims 11 TiB."""
    header, result = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1, 2, 10**11, 16)})
    with zipfile.ZipFile(io.BytesIO(file)) as members, zipfile.ZipFile(result, "w") as copy:
        for name in members.namelist():
            copy.writestr(name, header.getvalue() if name.startswith("past_key_values.0.key") else members.read(name))
    return result.getvalue()


def packed(file: bytes) -> bytes:
    """The file, compressed."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as members, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in members.namelist():
            copy.writestr(name, members.read(name))
    return result.getvalue()


PAST = {f"past_key_values.0.{name}": np.zeros((1, 2, 2, 8), np.float32) for name in ("key", "value")}
NO_SESSION, NOT_READ = "the file is not a session of this model", "no saved session can be read"

STRANGE = {
    "text": (stored({"partita.length": np.array("two")}, **PAST), f"array 'partita.length.npy': {NOT_READ}: the array holds <U3"),
    "half": (stored({"partita.length": np.array(2.5)}, **PAST), NO_SESSION),
    "empty": (stored({"partita.length": np.array(5)}), NO_SESSION),
    "less": (stored({"partita.length": np.array(-2)}, **PAST), NO_SESSION),
    "longer": (stored({"partita.length": np.array(3)}, **PAST), "in the file has the shape"),
    "beside": (stored({"partita.batch": np.array(3)}, **PAST), "in the file has the shape"),
    "kind": (stored({}, **{name: array.astype(np.int32) for name, array in PAST.items()}), NO_SESSION),
    "huge": (claiming(stored({}, **PAST)), "takes 12,800,000,000,000 bytes, and there are 0"),
    "packed": (stored({}, **PAST).replace(b"PK\x01\x02\x2d\x03\x2d", b"PK\x01\x02\x2d\x03\xff"), NOT_READ),
    "array": (b"\x93NUMPY\x01\x00", NOT_READ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_file_is_one_error(model: pt.CompiledModel, tmp_path: Path, name: str) -> None:
    content, cause = STRANGE[name]
    (tmp_path / "talk.npz").write_bytes(content)
    with pytest.raises(AcceleratorError, match=cause):
        model.session().load(tmp_path / "talk.npz")


def test_a_small_file_does_not_fill_the_memory(
    model: pt.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partita.graph.readers.arrays.UNPACKED", 1 << 20)
    content = packed(stored({}, **{name: np.zeros((1, 2, 1 << 15, 8), np.float32) for name in PAST}))
    (tmp_path / "talk.npz").write_bytes(content)
    with pytest.raises(AcceleratorError, match=r"no saved session can be read: its arrays would take 4,19\d,\d{3} bytes, for a"):
        model.session().load(tmp_path / "talk.npz")


def test_a_pipe_is_no_saved_session(model: pt.CompiledModel, tmp_path: Path) -> None:
    """To open it as a file would wait for somebody who writes to it."""
    os.mkfifo(tmp_path / "talk.npz")
    with pytest.raises(AcceleratorError, match="no saved session can be read: it is not a file"):
        model.session().load(tmp_path / "talk.npz")


def test_a_saved_conversation_has_no_fewer_tokens_than_none(tmp_path: Path) -> None:
    """Buffers of a fixed length say nothing of how many positions count; before the first, numpy would write at the end."""
    session, path = pt.compile(with_buffers(), "reference").session(), tmp_path / "talk.npz"
    arrays = {name: np.zeros((1, 2, 16, 8), np.float32) for name in ("keys", "values")}
    for length, cause in ((-3, NO_SESSION), (17, "17 tokens were read, and 1 more exceed 16")):
        path.write_bytes(stored({"partita.length": np.array(length)}, **arrays))
        with pytest.raises(AcceleratorError, match=cause):
            session.load(path)(tokens(1))


def test_what_a_session_cannot_take_is_an_error(model: pt.CompiledModel) -> None:
    session = model.session(longest=32, chunks=(1,))
    session(tokens(1))
    with pytest.raises(InputError, match="2 sequences were given, and the conversation has 1"):
        session(tokens(1, batch=2))
    with pytest.raises(InputError, match=r"'attention_mask' has the shape \[1, 5\], and the conversation then \[1, 2\]"):
        session(tokens(1), attention_mask=np.ones((1, 5), np.int64))
    with pytest.raises(InputError, match="'attention_mask': it is int64, and the array given str32"):
        session(tokens(1), attention_mask=np.array([["x", "y"]]))
    with pytest.raises(InputError, match="dimension 1, 'sequence', is 1 here and 2 in input 'input_ids'"):
        session(tokens(2), position_ids=np.array([[1]]))
    with pytest.raises(InputError, match="cannot be read as an array"):
        session([[3], [4, 5]])
    for rows in ("ab", [0.0], [True], 0, [[0]], []):
        with pytest.raises(InputError, match="are not among the 1 sequences of the conversation"):
            session.fork(rows=rows)  # type: ignore[arg-type]
    assert session.fork(rows=np.array([0, 0]))(tokens(1, batch=2))[0].shape[0] == 2  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is no input 'past_key_values.0.key' for the caller"):
        session(tokens(1), **{"past_key_values.0.key": np.zeros(1)})
    with pytest.raises(InputError, match=r"'input_ids': it has 2 dimensions \(int64\[batch, sequence\]\), and the array given 1"):
        session(np.array([3]))
    with pytest.raises(InputError, match="input 'input_ids' is missing"):
        session()
    with pytest.raises(InputError, match="there is no new token"):
        session(np.zeros((1, 0), np.int64))
    for longest in (0, 2**31, 2**62, True):
        with pytest.raises(InputError, match=f"longest is a number of tokens, at most 2,147,483,647, not {longest}"):
            model.session(longest=longest)
    with pytest.raises(InputError, match="chunks are numbers of tokens, and 1 is among them"):
        model.session(chunks=(4,))
    for chunks in (4, (True,), (1, 2.0)):
        with pytest.raises(InputError, match="chunks are numbers of tokens, and 1 is among them"):
            model.session(chunks=chunks)  # type: ignore[arg-type]


def test_a_call_that_fails_leaves_the_conversation_as_it_was(model: pt.CompiledModel) -> None:
    session, other = model.session(longest=32, chunks=(1,)), model.session(longest=32, chunks=(1,))
    session(tokens(1))
    other(tokens(1))
    with pytest.raises(RunError, match="an index is outside of a dimension of 50"):
        session(np.array([[1, 2, 99]]))
    assert session.length == 1
    anew = model.session(longest=32, chunks=(1,))
    with pytest.raises(RunError, match="an index is outside of a dimension of 50"):
        anew(np.array([[99], [1]]))
    assert anew(tokens(1))[0].shape == (1, 1, 50)
    assert np.array_equal(session(tokens(1, seed=4))[0], other(tokens(1, seed=4))[0])


def _interrupted(results: Sequence[Any]) -> Sequence[Any]:
    raise KeyboardInterrupt


def test_a_device_that_misbehaves_leaves_the_conversation_as_it_was() -> None:
    graph, ids = llama(attrs.evolve(SMALL_LLAMA, layers=1)), tokens(7)
    misbehave: list[Callable[[Sequence[Any]], Sequence[Any]]] = []

    def kernel(node: pt.Node, read: Sequence[Any]) -> Sequence[Any]:
        results = evaluate_node(node, read, graph.opsets)
        return misbehave[0](results) if misbehave else results

    cases: list[tuple[Callable[[Sequence[Any]], Sequence[Any]], type[BaseException], str]] = [
        (lambda results: [results[0][..., :-1]], RunError, "small"),
        (lambda results: [results[0].astype(np.float64)], RunError, "small"),
        (lambda results: [None], RunError, "small"),
        (lambda results: [], RunError, "small"),
        (_interrupted, KeyboardInterrupt, "^$"),
    ]
    with device_of(kernel, "Softmax") as device:
        session = pt.compile(graph, f"HETERO:{device},reference").session(longest=24)
        said = [session(ids[:, :4])["logits"]]
        for case, error, message in cases:
            misbehave.append(case)
            with pytest.raises(error, match=message):
                session(ids[:, 4:5])
            misbehave.clear()
            assert session.length == 4
        said.append(session(ids[:, 4:])["logits"])
    assert is_close(np.concatenate(said, axis=1), told_at_once(graph, ids))


def test_sessions_of_a_closed_model_are_closed() -> None:
    model = pt.compile(llama(attrs.evolve(SMALL_LLAMA, layers=1)), "cpu")
    session = model.session(longest=32, chunks=(1,))
    session(tokens(1))
    model.close()
    with pytest.raises(RunError, match="the model is closed"):
        session(tokens(1))
    with pytest.raises(RunError, match="the model is closed"):
        model.session()


def test_a_model_without_caches_has_no_session() -> None:
    x = pt.variable("x", "float32", (1, 2))
    model = pt.compile(pt.Graph([pt.op("Relu", x)], name="plain"), "reference")
    with pytest.raises(NotSupported, match="the model keeps nothing from call to call"):
        model.session()


def test_positions_may_be_given(model: pt.CompiledModel) -> None:
    one, other, third = (model.session(longest=32, chunks=(1,)) for _ in range(3))
    usual = one(tokens(1))[0], one(tokens(1, seed=5))[0]
    stated = other(tokens(1), position_ids=np.array([[0]]))[0], other(tokens(1, seed=5), position_ids=np.array([[1]]))[0]
    assert np.array_equal(usual, stated)
    third(tokens(1))
    assert not np.allclose(third(tokens(1, seed=5), position_ids=np.array([[9]]))[0], usual[1], atol=1e-4)


def with_buffers(room: int = 16, **mode: str) -> pt.Graph:
    """A decoder whose caches are buffers that TensorScatter writes to."""
    random = np.random.default_rng(3)

    def weights(*shape: int) -> pt.Node:
        return pt.constant(random.standard_normal(shape, np.float32))

    ids = pt.variable("ids", "int64", ("batch", "sequence"))
    at, count = (pt.variable(name, "int64", ("batch",)) for name in ("write_indices", "counted"))
    past = [pt.variable(name, "float32", ("batch", 2, room, 8)) for name in ("keys", "values")]
    x = pt.op("Gather", weights(SMALL.words, 16), ids)
    apart = pt.constant(np.array([0, 0, 2, 8]))
    query, key, value = (
        pt.op("Transpose", pt.op("Reshape", pt.op("MatMul", x, weights(16, 16)), apart), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    kept = [pt.op("TensorScatter", old, new, at, opset=24, **mode) for old, new in zip(past, (key, value), strict=True)]
    seen = pt.op("Attention", query, *kept, None, None, None, count, is_causal=1, opset=24)
    joined = pt.op("Reshape", pt.op("Transpose", seen, perm=[0, 2, 1, 3]), pt.constant(np.array([0, 0, -1])))
    scores = pt.op("MatMul", pt.op("Add", x, joined), weights(16, SMALL.words))
    names = ["scores", "new_keys", "new_values"]
    return pt.Graph([scores, *kept], [ids, at, count, *past], "buffers", {"": 24}, output_names=names)


def test_buffers_that_are_scattered_to_are_written_in_place() -> None:
    graph = with_buffers()
    appending = pt.compile(graph, "HETERO:cpu,reference").session(chunks=(4, 1))
    copying = pt.compile(graph, "reference").session()
    for part in np.split(tokens(6), [4, 5], axis=1):
        assert is_close(appending(part)[0], copying(part)[0])
    assert appending.notes == ()
    with pytest.raises(InputError, match="6 tokens were read, and 11 more exceed 16"):
        appending(tokens(11))


@pytest.mark.parametrize("device", ["HETERO:cpu,reference", "reference", "HETERO:onnxruntime,reference"])
def test_rings_hold_the_last_positions_of_any_number(device: str) -> None:
    """A model without positions says of the last four tokens what it says where these are all."""
    if "onnxruntime" in device:
        pytest.importorskip("onnxruntime")
    ids, plain = tokens(11), pt.compile(with_buffers(), "reference")
    session = pt.compile(with_buffers(4, mode="circular"), device).session()
    ring = "caches are copied: 'keys' is a ring, in which new positions take the places of old ones"
    for end in range(1, 12):
        last = ids[:, max(0, end - 4) : end]
        assert is_close(session(ids[:, end - 1 : end])[0][:, -1], plain.session()(last)[0][:, -1])
    assert session.length == 11 and ring in session.notes


def with_flat_heads() -> pt.Graph:
    """A decoder whose Attention has heads side by side, two of queries for each of keys and values."""
    random = np.random.default_rng(5)

    def weights(*shape: int) -> pt.Node:
        return pt.constant(random.standard_normal(shape, np.float32))

    ids = pt.variable("ids", "int64", ("batch", "sequence"))
    past = [pt.variable(name, "float32", ("batch", 2, "past", 4)) for name in ("keys", "values")]
    x = pt.op("Gather", weights(SMALL.words, 16), ids)
    query, key, value = (pt.op("MatMul", x, weights(16, width)) for width in (16, 8, 8))
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    seen = pt.op("Attention", query, key, value, None, *past, **heads, is_causal=1, n_outputs=3, opset=24)
    scores = pt.op("MatMul", pt.op("Add", x, seen[0]), weights(16, SMALL.words))
    return pt.Graph([scores, seen[1], seen[2]], [ids, *past], "flat", {"": 24}, output_names=["scores", "new_keys", "new_values"])


@pytest.mark.slow
def test_heads_side_by_side_are_appended_to_in_place() -> None:
    graph = with_flat_heads()
    appending = pt.compile(graph, "HETERO:cpu,reference").session(longest=8, chunks=(3, 1))
    copying = pt.compile(graph, "reference").session()
    for part in np.split(tokens(5), [3, 4], axis=1):
        assert is_close(appending(part)[0], copying(part)[0])
    assert appending.notes == ()
