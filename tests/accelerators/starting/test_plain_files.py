"""Which files onnxruntime may have as they stand."""

from __future__ import annotations

import io
import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from partita.accelerators.engines.onnxruntime import quirks
from partita.accelerators.engines.onnxruntime.plain_files import PLAIN, is_plain
from tests.accelerators.starting.files import convolution, model, value
from tests.onnx.test_fuzz import bytes_damaged

ONE = [value("x", [2, 3])]


def plain(proto: onnx.ModelProto) -> bool:
    return is_plain(io.BytesIO(proto.SerializeToString()))


def of(op: str, count: int = 1, *, initializers=(), sizes=(2, 3), domain: str = "", **attributes):
    """A model of this op, and a Relu behind it."""
    names = ["x", *(tensor.name for tensor in initializers)]
    node = helper.make_node(op, names[:count], ["v"], domain=domain, **attributes)
    return model([node, helper.make_node("Relu", ["v"], ["y"])], [value("x", sizes)], [value("y", None)], initializers)


def tensor(numbers, name: str = "i"):
    return numpy_helper.from_array(np.asarray(numbers), name)


@pytest.mark.parametrize("proto", [
    convolution(),
    convolution("N"),
    convolution(auto_pad="NOTSET", strides=[1, 1], group=1),
    of("MaxPool", sizes=[1, 2, 4, 4], kernel_shape=[2, 2], ceil_mode=0, storage_order=0),
    of("Reshape", 2, initializers=[tensor([3, 2])], allowzero=1),
    of("Dropout"),
    of("GatherND", 2, initializers=[tensor([[0], [1]])]),
], ids=str)
def test_plain_models(proto) -> None:
    assert plain(proto)


def external(proto):
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value="elsewhere")
    return proto


def noted(proto):
    proto.graph.node[0].metadata_props.add(key="partita.affinity", value="cpu")
    return proto


def with_function(proto):
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    proto.functions.append(function)
    return proto


def claiming(proto):
    proto.graph.value_info.append(value("c", ["N", 4, "M", 4]))
    return proto


def constant(numbers):
    nodes = [helper.make_node("Constant", [], ["v"], value=tensor(numbers)), helper.make_node("Add", ["x", "v"], ["y"])]
    return model(nodes, ONE, [value("y", None)])


@pytest.mark.parametrize("proto", [
    convolution(auto_pad="SAME_UPPER"),
    of("MaxPool", sizes=[1, 2, 4, 4], kernel_shape=[2, 2], ceil_mode=1),
    of("GatherND", 2, initializers=[tensor([[0], [1]])], batch_dims=1),
    of("Dropout", 3, initializers=[tensor(np.float32(0.5)), tensor(True, "j")]),
    of("ReduceMean", noop_with_empty_axes=1),
    of("Reshape", 2, initializers=[tensor(np.zeros(0, np.int64))]),
    of("Slice", 3, initializers=[tensor([0]), tensor([1], "j")]),
    of("Mod", 2, initializers=[tensor(np.ones(3, np.float32))], fmod=1),
    of("Relu", domain="com.microsoft"),
    model([helper.make_node("Identity", ["x"], ["y"])], ONE, [value("y", [2, 3])]),
    model([helper.make_node("Relu", ["x"], ["y"])], ONE, [value("x", [2, 3])]),
    constant(np.zeros((0, 3), np.float32)),
    external(convolution()),
    noted(convolution()),
    with_function(convolution()),
    claiming(convolution("N")),
    onnx.ModelProto(),
], ids=str)
def test_models_that_are_read_first(proto) -> None:
    assert not plain(proto)


def test_a_tensor_that_stands_elsewhere_in_an_attribute() -> None:
    proto = constant(np.ones(3, np.float32))
    assert plain(proto)
    proto.graph.node[0].attribute[0].t.external_data.add(key="location", value="elsewhere")
    assert not plain(proto)


def test_a_message_in_two_parts_hides_nothing() -> None:
    """protobuf puts the parts of a message together: the first may hold what the second does not."""
    whole = convolution().SerializeToString()
    assert is_plain(io.BytesIO(whole))
    assert not is_plain(io.BytesIO(whole + external(convolution()).SerializeToString()))
    assert not is_plain(io.BytesIO(whole + b"\x3a\x00"))


@pytest.mark.parametrize("number", range(1, 16))
def test_a_whole_number_where_a_message_belongs_is_no_error(number: int) -> None:
    """protobuf passes over a field of the wrong kind."""
    for part in (lambda proto: proto.graph.node[0], lambda proto: proto.graph.node[0].attribute[0], lambda proto: proto.graph):
        proto = convolution(group=1)
        part(proto).MergeFromString(bytes((number << 3, 7)))
        plain(proto)


def test_damaged_files_are_no_error() -> None:
    whole = convolution().SerializeToString()
    assert not any(is_plain(io.BytesIO(whole[:length])) for length in range(len(whole) - 40))
    for seed in range(300):
        is_plain(io.BytesIO(bytes_damaged(whole, random.Random(seed))))


def test_no_plain_op_has_to_be_looked_at_otherwise() -> None:
    """The quirks of these ops concern attributes that a plain op does not have."""
    assert PLAIN.keys() & quirks.QUIRKS.by_op.keys() == {"AveragePool", "Conv", "ConvTranspose", "GatherND", "MaxPool"}
    assert not PLAIN.keys() & (quirks.FATAL | {"Compress", "TopK", "DequantizeLinear", "EPContext"})
    versions = [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]
    known = {op: {name.encode() for schema in versions if schema.name == op for name in schema.attributes} for op in PLAIN}
    assert {op: names - known[op] for op, names in PLAIN.items()} == dict.fromkeys(PLAIN, frozenset())
