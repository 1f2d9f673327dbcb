"""What is said of damaged ONNX models, word by word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import SparseTensorProto, TensorProto, helper

from partita.graph.errors import PartitaError
from partita.graph.readers.onnx import load_onnx
from tests.onnx.models import FUNCTIONS, LINE, model


def line(change: Callable[[Any], Any]) -> Any:
    """The model LINE, changed; `t = Relu(x)` is its first node."""
    proto = model(LINE)
    change(proto)
    return proto


def functions(change: Callable[[Any], Any]) -> Any:
    """The model FUNCTIONS, changed."""
    proto = model(FUNCTIONS)
    change(proto)
    return proto


def weight(**fields: Any) -> Any:
    """A model with an initializer of these fields."""
    return line(lambda m: m.graph.initializer.append(TensorProto(name="w", **fields)))


def sparse(indices: Any, index_dims: Any, dims: Any) -> Any:
    """A model with a sparse initializer of two elements."""
    values = TensorProto(name="s", data_type=1, dims=[2], float_data=[1.0, 2.0])
    places = TensorProto(data_type=7, dims=index_dims, int64_data=indices)
    return line(lambda m: m.graph.sparse_initializer.append(SparseTensorProto(values=values, indices=places, dims=dims)))


def constant(attribute: str, value: Any) -> Any:
    """A model whose first node is a Constant."""
    def change(proto: Any) -> None:
        del proto.graph.node[0].input[:]
        proto.graph.node[0].op_type = "Constant"
        proto.graph.node[0].attribute.append(helper.make_attribute(attribute, value))

    return line(change)


def relu(*attributes: Any) -> Any:
    """A model whose first node, a LeakyRelu, has these attributes."""
    def change(proto: Any) -> None:
        proto.graph.node[0].op_type = "LeakyRelu"
        proto.graph.node[0].attribute.extend(attributes)

    return line(change)


def recursive(proto: Any) -> None:
    """Lets the first function call itself."""
    proto.functions[0].node[0].op_type, proto.functions[0].node[0].domain = "leak", "my"


ALPHA = helper.make_attribute("alpha", 0.5)


def of_alpha(**fields: Any) -> Any:
    """The attribute alpha with other fields."""
    other = helper.make_attribute("alpha", 0.5)
    for name, value in fields.items():
        setattr(other, name, value)
    return other

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: weight(data_type=1, dims=[-1]), "net, initializer 'w': a tensor declares the impossible shape [-1]"),
    (lambda: weight(data_type=1, dims=[1] * 65, float_data=[1.0]),
     "net, initializer 'w': a tensor declares 65 dimensions; numpy has 64 at most"),
    (lambda: weight(data_type=1, dims=[0, 1 << 60]),
     "net, initializer 'w': a tensor declares the impossible shape [0, 1152921504606846976]"),
    (lambda: weight(data_type=1, dims=[2], float_data=[1.0]),
     "net, initializer 'w': a tensor float32[2] takes 2 numbers in float_data, and there are 1"),
    (lambda: weight(data_type=7, dims=[2], int64_data=[1, 2, 3]),
     "net, initializer 'w': a tensor int64[2] takes 2 numbers in int64_data, and there are 3"),
    (lambda: weight(data_type=11, dims=[2], double_data=[1.0]),
     "net, initializer 'w': a tensor float64[2] takes 2 numbers in double_data, and there are 1"),
    (lambda: weight(data_type=14, dims=[2], float_data=[1.0, 2.0]),
     "net, initializer 'w': a tensor complex64[2] takes 4 numbers in float_data, and there are 2"),
    (lambda: weight(data_type=22, dims=[3], int32_data=[1]),
     "net, initializer 'w': a tensor int4[3] takes 2 numbers in int32_data, and there are 1"),
    (lambda: weight(data_type=1, dims=[2], raw_data=b"abc"),
     "net, initializer 'w': a tensor float32[2] takes 8 bytes, and the file holds 3 bytes"),
    (lambda: weight(data_type=22, dims=[3], raw_data=b"abc"),
     "net, initializer 'w': a tensor int4[3] takes 2 bytes, and the file holds 3 bytes"),
    (lambda: weight(data_type=27, dims=[3], raw_data=b"ab"),
     "net, initializer 'w': a tensor float6_e2m3fn[3] takes 3 bytes, and the file holds 2 bytes"),
    (lambda: weight(data_type=99, dims=[2]), "net, initializer 'w': there is no element type 99"),
    (lambda: weight(data_type=8, dims=[2], string_data=[b"a"]),
     "net, initializer 'w': a tensor string[2] holds 1 strings"),
    (lambda: weight(data_type=8, dims=[1], raw_data=b"a"),
     "net, initializer 'w': strings cannot be stored as raw or external data"),
    (lambda: weight(data_type=1, dims=[1], float_data=[1.0], segment=TensorProto.Segment(begin=0, end=1)),
     "net, initializer 'w': tensors in segments are not supported"),
    (lambda: sparse([0, 5], [2], [4]), "net, sparse initializer 's': an index of a sparse tensor is out of range"),
    (lambda: sparse([0, -1], [2], [4]), "net, sparse initializer 's': an index of a sparse tensor is out of range"),
    (lambda: sparse([0], [1], [4]), "net, sparse initializer 's': the values and indices of a sparse tensor do not match"),
    (lambda: sparse([0, 0, 1, 4], [2, 2], [2, 4]),
     "net, sparse initializer 's': an index of a sparse tensor is out of range"),
    (lambda: sparse([0, 0, 1, 3], [2, 2], [2, 4, 1]),
     "net, sparse initializer 's': the values and indices of a sparse tensor do not match"),
    (lambda: sparse([0, 1], [2], [1 << 20, 1 << 20]),
     "net, sparse initializer 's': a sparse tensor would take 4398046511104 bytes as a dense one; the "
     "limit is 67108864"),
    (lambda: constant("value_graphs", [model(LINE).graph]),
     "net, node 't' (Constant): ai.onnx.Constant-21 has no attribute 'value_graphs'\n"
     "  Did you mean 'value_floats', 'value_ints', 'value_float'?"),
    (lambda: constant("value_flot", 1.0),
     "net, node 't' (Constant): ai.onnx.Constant-21 has no attribute 'value_flot'\n"
     "  Did you mean 'value_float', 'value_floats', 'value_int'?"),
    (lambda: relu(ALPHA, ALPHA), "net, node 't' (LeakyRelu): the attribute 'alpha' is given twice"),
    (lambda: relu(of_alpha(name="")), "net, node 't' (LeakyRelu): an attribute has no name"),
    (lambda: relu(of_alpha(name="alhpa")),
     "net, node 't' (LeakyRelu): ai.onnx.LeakyRelu-16 has no attribute 'alhpa'\n"
     "  Did you mean 'alpha'?"),
    (lambda: relu(of_alpha(i=3)), "net, node 't' (LeakyRelu): the attribute 'alpha' must be FLOAT and holds f and i"),
    (lambda: relu(of_alpha(type=0, i=3)),
     "net, node 't' (LeakyRelu): the attribute 'alpha' must be of type 0 and holds f and i"),
    (lambda: relu(of_alpha(ref_attr_name="a")),
     "net, node 't' (LeakyRelu): the attribute 'alpha' refers to 'a' of a function, but the node is in "
     "none"),
    (lambda: line(lambda m: m.graph.node[0].attribute.append(ALPHA)),
     "net, node 't' (Relu): ai.onnx.Relu-14 has no attribute 'alpha'\n"
     "  It has none."),
    (lambda: line(lambda m: setattr(m.graph.node[0], "op_type", "Transpose") or m.graph.node[0].attribute.append(ALPHA)),
     "net, node 't' (Transpose): ai.onnx.Transpose-21 has no attribute 'alpha'\n"
     "  It has perm."),
    (lambda: line(lambda m: setattr(m.graph.node[0], "op_type", "")), "net, node 't' (): a node has no op type"),
    (lambda: line(lambda m: setattr(m.graph.node[0], "op_type", "Cast")),
     "net, node 't' (Cast): ai.onnx.Cast-21 needs the attribute 'to'"),
    (lambda: line(lambda m: setattr(m.graph.node[0], "domain", "ai.onnx.training")),
     "net, node 't' (Relu): the model uses domain 'ai.onnx.training' and does not import its opset\n"
     "  Set opset_import."),
    (lambda: line(lambda m: setattr(m.graph.node[0], "op_type", "Upsample")),
     "net, node 't' (Upsample): Upsample is withdrawn since version 10 of its domain, and the model "
     "imports version 21\n"
     "  Declare the version that the model was made for."),
    (lambda: line(lambda m: setattr(m, "ir_version", 0)),
     "net: the model declares no IR version\n"
     "  Set ir_version."),
    (lambda: line(lambda m: m.ClearField("opset_import")),
     "net: the model imports no opset\n"
     "  Set opset_import."),
    (lambda: line(lambda m: m.graph.node[0].output.append("u")),
     "net, node 't' (Relu): ai.onnx.Relu-14 has 1 outputs, not 2"),
    (lambda: line(lambda m: m.graph.node[0].ClearField("input")),
     "net, node 't' (Relu): ai.onnx.Relu-14 has 1 inputs, not 0"),
    (lambda: line(lambda m: m.graph.output.add(name="far")), "net: the output 'far' is never defined"),
    (lambda: line(lambda m: m.graph.input.append(m.graph.input[0])), "net: the value 'x' is defined twice"),
    (lambda: functions(lambda m: m.functions.append(m.functions[0])),
     "net, function 'leak': the function is defined twice"),
    (lambda: functions(lambda m: setattr(m.functions[0], "name", "")), "net, function '': a function has no name"),
    (lambda: functions(recursive),
     "net, function 'leak': the function calls itself\n"
     "  ONNX allows no recursion."),
    (lambda: functions(lambda m: m.graph.node[0].input.append("x")),
     "net, node 'y' (twice): the call has 2 inputs and 1 outputs, and its function 1 and 1"),
    (lambda: functions(lambda m: m.functions[0].node[0].input.__setitem__(0, "q")),
     "net, node 'b' (LeakyRelu): the node reads 'q', which nothing defines"),
    (lambda: functions(lambda m: m.functions[0].output.__setitem__(0, "q")),
     "net, function 'leak': the output 'q' is never defined"),
    (lambda: model(LINE).SerializeToString().replace(b"Relu", b"R\xffu\xfe"),
     "the bytes given: the model is damaged: a name or text is not UTF-8: b'R\\xffu\\xfe'"),
    (lambda: model(LINE).SerializeToString().replace(b"net", b"\xff\xfe\xfd"),
     "the bytes given: the model is damaged: a name or text is not UTF-8: b'\\xff\\xfe\\xfd'"),
]


@pytest.mark.parametrize(("made", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_damaged_model_is_refused_in_these_words(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(PartitaError) as raised:
        load_onnx(made())
    assert str(raised.value) == message
