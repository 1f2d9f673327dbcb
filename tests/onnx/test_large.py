"""Files whose large tensors are read apart give the graphs, and the errors, of files that protobuf parses whole."""

from __future__ import annotations

import io
import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from partita.graph.errors import PartitaError
from partita.graph.readers import load
from partita.graph.readers.onnx import large
from partita.graph.text import print_graph
from tests.onnx.test_fuzz import bytes_damaged


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is large, and every tensor of 64 bytes."""
    monkeypatch.setattr(large, "WORTH", 0)
    monkeypatch.setattr(large, "LARGE", 64)


def weights(count: int) -> list[onnx.TensorProto]:
    numbers = np.random.default_rng(count)
    return [numpy_helper.from_array(numbers.standard_normal((4, 4 + i), np.float32), f"w{i}") for i in range(count)]


def chain(initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    """A product with each of the weights in turn, added up."""
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"p{i}"]) for i in range(len(initializers))]
    nodes += [helper.make_node("ReduceSum", [f"p{i}"], [f"y{i}"], keepdims=0) for i in range(len(initializers))]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])
    outputs = [helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, []) for i in range(len(initializers))]
    graph = helper.make_graph(nodes, "chain", [x], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def outcome(data: bytes) -> str:
    try:
        graph = load(data)
    except PartitaError as error:
        return str(error)
    arrays = [node.value.tobytes().hex() for node in graph.nodes if node.value is not None]
    return "\n".join([print_graph(graph), *arrays])


def test_a_large_tensor_is_read_apart_into_memory_of_its_own(apart: None) -> None:
    data = chain(weights(3)).SerializeToString()
    parts = large.read_parts(io.BytesIO(data))
    assert parts is not None and [len(parts.data[i]) for i in range(3)] == [64, 80, 96]
    assert len(parts.rest) < len(data) - 64 - 80 - 96
    value = next(node.value for node in load(data).nodes if node.value is not None)
    assert value.flags.aligned and not value.flags.writeable


def test_a_small_file_is_left_to_protobuf() -> None:
    assert large.read_parts(io.BytesIO(chain(weights(3)).SerializeToString())) is None


def test_the_graph_is_the_same(apart: None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = chain(weights(5)).SerializeToString()
    read_apart = outcome(data)
    monkeypatch.undo()
    assert read_apart == outcome(data)


@pytest.mark.parametrize("last", [16, 1])
def test_a_tensor_that_holds_its_data_twice_has_the_last(apart: None, last: int) -> None:
    tensor = weights(1)[0]
    tensor.dims[:] = [last]
    other = onnx.TensorProto(raw_data=np.ones(last, np.float32).tobytes())
    twice = tensor.SerializeToString() + other.SerializeToString()
    field = b"\x2a" + large._varint(len(twice)) + twice
    bare = chain([tensor])
    del bare.graph.initializer[:]
    graph = bare.graph.SerializeToString() + field
    bare.ClearField("graph")
    data = bare.SerializeToString() + b"\x3a" + large._varint(len(graph)) + graph
    assert large.read_parts(io.BytesIO(data)) is None
    value = next(node.value for node in load(data).nodes if node.value is not None)
    assert (np.asarray(value).reshape(-1) == 1).all()


def test_a_model_whose_graph_comes_in_two_pieces_is_one_graph(apart: None) -> None:
    first, second = chain(weights(2)), chain(weights(2))
    del first.graph.initializer[1:]
    rest = onnx.ModelProto()
    rest.graph.initializer.append(second.graph.initializer[1])
    data = first.SerializeToString() + rest.SerializeToString()
    assert large.read_parts(io.BytesIO(data)) is None
    assert outcome(data) == outcome(chain(weights(2)).SerializeToString())


def test_data_of_another_size_than_the_shape_says(apart: None) -> None:
    model = chain(weights(1))
    model.graph.initializer[0].dims[0] = 5
    with pytest.raises(PartitaError, match=r"a tensor float32\[5, 4\] takes 80 bytes, and the file holds 64 bytes"):
        load(model.SerializeToString())


def test_strings_in_raw_data_are_refused(apart: None) -> None:
    model = chain(weights(1))
    model.graph.initializer[0].data_type = onnx.TensorProto.STRING
    with pytest.raises(PartitaError, match="strings cannot be stored as raw or external data"):
        load(model.SerializeToString())


def test_damaged_files_come_to_the_same(apart: None, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = chain(weights(4)).SerializeToString()
    random_numbers = random.Random(4)
    damaged = [bytes_damaged(whole, random_numbers) for _ in range(400)]
    read_apart = list(map(outcome, damaged))
    monkeypatch.undo()
    assert read_apart == list(map(outcome, damaged))
    assert len(set(read_apart)) > 50
