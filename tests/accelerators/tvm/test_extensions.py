"""Custom ops on the TVM devices: what they compute is a function over tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.extensions import TvmExtension, remove
from tests.accelerators.tvm.running import check, normals, schedules

pytest.importorskip("tvm")

normal = normals(7)


def swish(x: Any, beta: float = 1.0) -> Any:
    from tvm import te, tirx

    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + tirx.exp(-beta * x(*i))), name="swish")


def negated(x: Any, beta: float = 1.0) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda *i: -x(*i), name="negated")


@contextmanager
def extended(compute: Callable[..., Any]) -> Iterator[None]:
    """The op my.Swish computes this on the TVM devices."""
    accelerator("cpu").add_extension(TvmExtension("Swish", "my", compute))
    try:
        yield
    finally:
        remove("Swish", "my")


@pytest.fixture
def _registered() -> Iterator[None]:
    """The op my.Swish has types, and a meaning in numpy."""
    meaning = lambda x, beta: x / (1 + np.exp(-beta * x))  # noqa: E731
    pt.register_op("Swish", "my", attributes={"beta": 1.0}, shape=lambda types, attrs: types[0], numpy=meaning)
    yield
    pt.unregister_op("Swish", "my")


def custom() -> pt.Graph:
    x = pt.variable("x", "float32", (4, 50))
    y = pt.op("Relu", pt.op("Swish", x, domain="my", beta=2.0, name="swish"), name="relu")
    return pt.Graph([y], inputs=[x], opsets={"": 21, "my": 1})


@pytest.mark.usefixtures("_registered")
def test_a_custom_op_with_a_tensor_expression() -> None:
    with extended(swish):
        assert all(answer is True for answer in accelerator("cpu").query(custom()).values())
        assert schedules(check(custom(), [normal(4, 50)]))[0] == "generic"


@pytest.mark.usefixtures("_registered")
def test_another_function_for_the_same_op() -> None:
    given = normal(4, 50)
    with extended(swish):
        pt.compile(custom(), "cpu")
    with extended(negated):
        (result,) = pt.compile(custom(), "cpu")(given)
    assert (result == np.maximum(-given, 0)).all()


@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (lambda x, beta: 1 / 0, "TVM's extension my.Swish refuses it: ZeroDivisionError: division by zero"),
        (lambda x, beta: None, "extension my.Swish returns NoneType, not a te.Tensor"),
        (lambda x, beta: [swish(x), swish(x)], "extension my.Swish makes 2 outputs, and the op has 1"),
        (lambda x, beta: cut(x), "extension my.Swish makes float32[2, 2], and the op float32[4, 50]"),
    ],
    ids=["raises", "nothing", "too many", "another shape"],
)
def test_a_function_that_is_wrong(compute: Callable[..., Any], said: str) -> None:
    with extended(compute):
        model = pt.compile(custom(), "HETERO:cpu,reference")
    assert [move.reason for move in model.report.moves] == [said]  # type: ignore[union-attr]


def cut(x: Any) -> Any:
    from tvm import te

    return te.compute((2, 2), lambda i, j: x(i, j))


def test_an_op_without_a_type() -> None:
    assert accelerator("cpu").query(custom())["swish"] == "TVM has no op my.Swish"
    with extended(swish):
        said = accelerator("cpu").query(custom())["swish"]
    assert said == "the type of 'swish' is unknown: register_op says what my.Swish makes"


@pytest.mark.parametrize(
    ("extension", "said"),
    [
        ("Swish", "an extension is a TvmExtension, not str"),
        (TvmExtension("Relu", "", swish), "'Relu' cannot be defined in ONNX's own domain"),
        (TvmExtension("Swish", "my", 5), "what my.Swish computes is a function, not 5"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_extension(extension: Any, said: str) -> None:
    with pytest.raises(AcceleratorError, match=said):
        accelerator("cpu").add_extension(extension)


def test_an_extension_that_nobody_added() -> None:
    with pytest.raises(AcceleratorError, match=r"no extension my.Swish was added"):
        remove("Swish", "my")
