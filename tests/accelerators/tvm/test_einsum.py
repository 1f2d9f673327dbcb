"""An Einsum that is a product of matrices is computed as one, and attention that is written so is one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.passes.decompose import decomposed
from partita.passes.decompose.einsum import groups_of, order_of
from tests.accelerators.tvm.any_size import check
from tests.accelerators.tvm.running import normals
from tests.close import assert_close

pytest.importorskip("tvm")

normal = normals(3)
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}


def einsum(equation: str, dtype: str = "float32", **sizes: int | str) -> pt.Node:
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [tuple((SIZES | sizes).get(letter, 2) for letter in term) for term in terms]
    return pt.op("Einsum", *(pt.variable(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)), equation=equation)


@pytest.mark.parametrize("equation", ["ab, bc -> ac", "abc,dac->bda", "ba,cb", "cadb,dbce->dace", "bac,bdc->dab"])
def test_a_product_in_any_order_of_dimensions(equation: str) -> None:
    node = einsum(equation)
    body = decomposed(node, {"": 21})
    assert body is not None and {inner.op for inner in body.nodes if inner.is_op} <= {"Transpose", "MatMul"}
    operands = [normal(*(int(size) for size in entry.type.shape)) for entry in node.reads]  # type: ignore[union-attr]
    assert_close(interpret(body, operands)[0], np.einsum(equation, *operands))


def is_matmul(node: pt.Node) -> bool:
    groups = groups_of(node)
    return groups is not None and groups.is_matmul


NONE = ["aab,bc->ac", "ab,bc->c", "ab,bc->acz", "a,b->ab", "...ab,bc->...ac", "ab,bc,cd->ad", "ab->ba"]
NONE += ["abc,abc->ab", "abc,bcd->ad"]
"""Equations that no MatMul computes as they stand."""


@pytest.mark.parametrize("equation", NONE)
def test_what_is_no_product(equation: str) -> None:
    assert not is_matmul(einsum(equation))


def test_sizes_that_are_not_known_to_be_equal_are_no_product() -> None:
    x, y = pt.variable("x", "float32", (2, 1)), pt.variable("y", "float32", (5, 3))
    assert not is_matmul(pt.op("Einsum", x, y, equation="ab,bc->ac"))
    x, y = pt.variable("x", "float32", (2, None)), pt.variable("y", "float32", (None, 3))
    assert not is_matmul(pt.op("Einsum", x, y, equation="ab,bc->ac"))
    assert is_matmul(einsum("ab,bc->ac", b="n"))
    assert not is_matmul(einsum("ab,bc->ac", a=0))
    assert not is_matmul(einsum("ab,bc->ac", "float64"))


@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((2, 3, 3), (3, 3)), ((3, 3), (3, 3, 3))])
def test_an_equation_that_does_not_fit_its_operands_is_an_error(shapes: tuple[tuple[int, ...], ...]) -> None:
    operands = [pt.variable(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(pt.PartitaError):
        pt.compile(pt.Graph([pt.op("Einsum", *operands, equation="ab,bc->ac")], inputs=operands), "cpu")


def test_a_result_with_a_letter_of_nobody_is_refused() -> None:
    node = einsum("ab,bc->acz")
    with pytest.raises(pt.PartitaError, match="has 'z' in its result, which no input has"):
        pt.compile(pt.Graph([node]), "cpu")


def test_attention_that_is_written_as_einsums_is_one_kernel() -> None:
    query, key, value = (pt.variable(name, "float32", (2, 3, 17, 16)) for name in "qkv")
    scores = pt.op("Einsum", query, key, equation="abid,abjd->abij")
    mixed = pt.op("Einsum", pt.op("Softmax", scores, axis=-1), value, equation="abij,abjd->abid")
    graph, inputs = pt.Graph([mixed], inputs=[query, key, value]), [normal(2, 3, 17, 16) for _ in range(3)]
    model, wanted = pt.compile(graph, "cpu"), pt.compile(graph, "reference")(*inputs)[0]
    assert [kernel.schedule for kernel in model.kernels()] == ["attention"]
    assert np.abs(model(*inputs)[0] - wanted).max() < 1e-5


@pytest.mark.parametrize("equation", ["nsd->dns", "n s d -> s n d", "nsd"])
def test_an_operand_alone_is_turned_at_any_size(equation: str) -> None:
    x = pt.variable("x", "float32", ("N", "S", 8))
    check(pt.Graph([pt.op("Relu", pt.op("Einsum", x, equation=equation))]), [{"x": normal(n, s, 8)} for n, s in [(1, 1), (3, 5)]])


@pytest.mark.parametrize("equation", ["nnd->nd", "nsd->ns", "n...->n...", "nsd->nsdn"])
def test_what_is_not_only_turned(equation: str) -> None:
    assert order_of(pt.op("Einsum", pt.variable("x", "float32", (3, 3, 8)), equation=equation)) is None
