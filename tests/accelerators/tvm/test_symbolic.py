"""A symbol bypasses nothing: each rule holds for symbols too, or is asked again for the size that comes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.symbolic_cases import chosen_cases, outcome


def loaded(op: str, *given: np.ndarray, **attributes: object) -> pt.Graph:
    """One op on x[N, 4] and constants."""
    x = pt.variable("x", "float32", ("N", 4))
    return pt.Graph([pt.op(op, x, *map(pt.constant, given), name="y", **attributes)])


FAR = {
    "Gather": (loaded("Gather", np.array([1, 9]), axis=1), "index 9 is outside of a dimension of 4"),
    "GatherElements": (loaded("GatherElements", np.array([[1, -5]]), axis=1), "index -5 is outside of a dimension of 4"),
    "GatherND": (loaded("GatherND", np.array([[0], [4000]]), batch_dims=0), None),
    "ScatterND": (loaded("ScatterND", np.array([[4000]]), np.ones((1, 4), np.float32)), None),
    "rows": (loaded("Gather", np.array([4000])), None),
}


@pytest.mark.parametrize("name", FAR)
def test_constant_indices_outside(name: str) -> None:
    """Outside of a known dimension `query` says so; of the symbol's, the run does: nothing is read or written there."""
    graph, said = FAR[name]
    if said is not None:
        assert said in pt.query(graph, "HETERO:cpu,reference").why("y")
        return
    model = pt.compile(graph, "cpu")
    with pytest.raises(pt.InputError, match="a dimension and the indices into it"):
        model(np.ones((3, 4), np.float32))


def test_a_constant_index_that_is_inside_for_one_size_only() -> None:
    model = pt.compile(loaded("Gather", np.array([5])), "cpu")
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(model(x)[0], x[5:6])
    with pytest.raises(pt.InputError, match="a dimension and the indices into it do not go together: 5 is less than 6"):
        model(x[:5])
    np.testing.assert_array_equal(model(x)[0], x[5:6])


def test_truth_values_are_no_numbers_at_any_size() -> None:
    a, b = pt.variable("a", "bool", ("N", 3)), pt.variable("b", "bool", ("N", 3))
    said = pt.query(pt.Graph([pt.op("Add", a, b, name="both")], [a, b]), "HETERO:cpu,reference").why("both")
    assert "not on cpu: ONNX's Add of opset 21 takes no bool, and input 0 is bool[N, 3]" in said


def test_a_size_for_which_the_answer_is_no_is_served_otherwise() -> None:
    """TVM's nearest place is right where the ratio of the sizes is a power of two."""
    x = pt.variable("x", "float32", (1, 1, "H", 4))
    scales = pt.constant(np.array([1, 1, 1.3, 1], np.float32))
    graph = pt.Graph([pt.op("Resize", x, None, scales, name="y", mode="nearest", opset=18)], opsets={"": 18})
    try:
        model = pt.compile(graph, "cpu")
    except pt.NotSupported:
        return
    reference = pt.compile(graph, "reference")
    for size in (3, 10):
        given = np.arange(size * 4, dtype=np.float32).reshape(1, 1, size, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(model(given)[0], reference(given)[0])


NAMES = ("Add Gather GatherND Slice Reshape MaxPool Conv Concat Softmax ReduceSum Transpose Where ScatterElements").split()


def test_node_tests_with_a_symbol() -> None:
    check([case for case in chosen_cases(1) if next(n.op for n in case.graph.nodes if n.is_op) in NAMES])


@pytest.mark.slow
def test_all_node_tests_with_a_symbol() -> None:
    check(list(chosen_cases(3)))


def check(cases: list) -> None:
    listed = {case.name: list(outcome(case)) for case in cases}
    wrong = {name: said for name, said in listed.items() if any(text[:5] == "wrong" for text in said)}
    assert not wrong and sum(said == ["right", "right"] for said in listed.values()) >= len(cases) // 3


def test_a_thread_that_cannot_start_leaves_the_next_call_free_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.accelerators.building import specialized

    monkeypatch.setattr(specialized.threading, "Thread", lambda **options: (_ for _ in ()).throw(RuntimeError("no threads")))
    graph = pt.Graph([pt.op("Relu", pt.variable("x", "float32", ("N",)), name="y")])
    subgraph = specialized.SpecializedSubgraph(graph, lambda g: None, lambda g: None, True, None)  # type: ignore[arg-type,return-value]
    subgraph._begin(((4,),))
    assert not subgraph._at_work


def test_no_more_sizes_that_do_not_compile_are_remembered_than_are_counted() -> None:
    from partita.accelerators.building import specialized

    stand_in = specialized._StandIn(pt.Graph([pt.variable("x", "float32", (2,))]), lambda g: object())  # type: ignore[arg-type,return-value]
    for size in range(specialized.COUNTED + 5):
        assert stand_in.takes_over(((size,),))
    assert not stand_in.took_over(((0,),)) and stand_in.took_over(((5,),)) and len(stand_in._only) == specialized.COUNTED
