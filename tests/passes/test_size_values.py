"""The elements of vectors that hold sizes, op by op."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import dtype_name
from partita.passes.infer.contract import Contract
from partita.passes.infer.shape_operands import SHAPED_BY, deciding, deciding_inputs
from partita.passes.infer.values import VALUES
from tests.numerics.case import Case
from tests.numerics.kept_variations import CASES as VARIED

from .reading import Cases, elements, of

SIZES = ["N", 3, "M"]
GAPPED = ["N", None, 4]

CASES: Cases = {
    "Shape": [
        (of(("N", 3, 4)), "[N, 3, 4]"),
        (of(("N", 3, 4), start=1), "[3, 4]"),
        (of(("N", 3, 4), end=-1), "[N, 3]"),
        (of(()), "[]"),
        (of(("N", 3, 4), start=-1, end=9), "[4]"),
    ],
    "Size": [
        (of(("N", 3, "M")), "3*M*N"),
        (of(("N",)), "N"),
    ],
    "Concat": [
        (of(["N"], [3, "M"], axis=0), "[N, 3, M]"),
        (of(["N"], (2,), axis=0), "[N, None, None]"),
        (of((2,), (1,), axis=0), ""),
        (of(["N"], ("K",), axis=0), ""),
        (of(["N"] * 64, axis=0), "[" + ", ".join(["N"] * 64) + "]"),
        (of(["N"] * 60, ["M"] * 5, axis=0), ""),
    ],
    "Gather": [
        (of(SIZES, [2, 0]), "[M, N]"),
        (of(SIZES, -1), "M"),
        (of(SIZES, (1,)), ""),
        (of(SIZES, ["N"]), ""),
        (of(GAPPED, [1, 2]), "[None, 4]"),
        (of(GAPPED, 0), "N"),
    ],
    "Slice": [
        (of(SIZES, [1], [3]), "[3, M]"),
        (of(SIZES, [0], [-1]), "[N, 3]"),
        (of(SIZES, [2], [0], [0], [-1]), "[M, 3]"),
        (of(SIZES, [-1], [-9], [0], [-1]), "[M, 3, N]"),
        (of(SIZES, [-9], [-9], [0], [-1]), "[N]"),
        (of(SIZES, [0], [9], [-1], [2]), "[N, M]"),
        (of(SIZES, [-1], [-3], [0], [-1]), "[M, 3]"),
        (of(SIZES, [-1], [-4], [0], [-1]), "[M, 3, N]"),
        (of(SIZES, [-9], [2]), "[N, 3]"),
        (of(SIZES, [0], [-9]), "[]"),
        (of(SIZES, [0], [3], [0], ["N"]), ""),
        (of(SIZES, [1], ["N"]), ""),
        (of(SIZES, ["N"], [3]), ""),
        (of(SIZES, [0], (1,)), ""),
        (of(SIZES, (1,), [2]), ""),
        (of(GAPPED, [1], [9]), "[None, 4]"),
    ],
    "Where": [
        (of(np.array([True, False, True]), SIZES, ["K", 4, 5]), "[N, 4, M]"),
        (of((3,), SIZES, SIZES), ""),
        (of(np.array(True), ["N"], [None]), ""),
    ],
    "Transpose": [
        (of(SIZES), "[N, 3, M]"),
    ],
    "Expand": [
        (of(["N"], [3]), "[N, N, N]"),
        (of(["N"], [2, 1]), "[[N], [N]]"),
        (of(SIZES, ["N", 1]), ""),
    ],
    "ReduceProd": [
        (of(SIZES), "[3*M*N]"),
        (of(SIZES, [0], keepdims=0), "3*M*N"),
        (of(GAPPED), ""),
        (of(["N", "M", "N"], keepdims=0), "M*N*N"),
    ],
    "Split": [
        (of(SIZES, [1, 2], results=2), "[N] [3, M]"),
        (of(SIZES, [0, 3], results=2), "[] [N, 3, M]"),
        (of(SIZES, results=3, num_outputs=3), "[N] [3] [M]"),
        (of(SIZES, results=2, num_outputs=2), "[N, 3] [M]"),
        (of(GAPPED, [2, 1], results=2), "[N, None] [4]"),
        (of(SIZES, (2,), results=2), ""),
    ],
    "Range": [
        (of("N", "N+3", 1), "[N, N + 1, N + 2]"),
        (of("N+4", "N", -2), "[N + 4, N + 2]"),
        (of("N", "N", 1), "[]"),
        (of(0, "N", 1), ""),
        (of("N", "N+4", 2), "[N, N + 2]"),
    ],
    "Cast": [
        (of(SIZES, to=7), "[N, 3, M]"),
        (of(SIZES, to=6), "[N, 3, M]"),
        (of(SIZES, to=1), ""),
    ],
    "Identity": [
        (of(SIZES), "[N, 3, M]"),
        (of(GAPPED), "[N, None, 4]"),
    ],
    "Reshape": [
        (of(["N"], [1, 1]), "[[N]]"),
        (of(SIZES, [-1]), "[N, 3, M]"),
    ],
    "Squeeze": [
        (of(["N"], [0]), "N"),
        (of([None], [0]), ""),
    ],
    "Unsqueeze": [
        (of("N", [0]), "[N]"),
        (of(SIZES, [0]), "[[N, 3, M]]"),
    ],
    "Flatten": [
        (of(SIZES, axis=0), "[[N, 3, M]]"),
    ],
    "Add": [
        (of(SIZES, [1, "N", 2]), "[N + 1, N + 3, M + 2]"),
        (of(SIZES, "M"), "[M + N, M + 3, 2*M]"),
        (of(GAPPED, [1]), "[N + 1, None, 5]"),
        (of(SIZES, (3,)), ""),
    ],
    "Sub": [
        (of(SIZES, [1, "N", "M"]), "[N - 1, -1*N + 3, 0]"),
        (of(SIZES, "N"), "[0, -1*N + 3, M - 1*N]"),
        (of("N", "M+2"), "-1*M + N - 2"),
    ],
    "Mul": [
        (of(SIZES, [2, "N", 0]), "[2*N, 3*N, 0]"),
        (of(["N", "M-2"], -1), "[-1*N, -1*M + 2]"),
    ],
    "Div": [
        (of(SIZES, 2), "[(N)//2, 1, (M)//2]"),
        (of(["N", "M-2"], 3), "[(N)//3, (M + 1)//3 - 1]"),
        (of(SIZES, "N"), "[1, (3)//(N), (M)//(N)]"),
        (of(SIZES, [-1, 2, 1]), "[None, 1, M]"),
        (of(SIZES, 0), "[None, None, None]"),
        (of(["N+1", 7, -7], [2, 2, 2]), "[(N + 1)//2, 3, -3]"),
        (of(6, "N"), "(6)//(N)"),
        (of(["M-2"], ["N"]), "[None]"),
    ],
    "Mod": [
        (of(SIZES, 2), "[-2*(N)//2 + N, 1, -2*(M)//2 + M]"),
        (of(["N", "M-2"], 2), "[-2*(N)//2 + N, -2*(M)//2 + M]"),
        (of(SIZES, "N"), "[None, None, None]"),
        (of([7, "N"], [4, 1]), "[3, 0]"),
        (of(SIZES, 0), "[None, None, None]"),
    ],
    "Neg": [
        (of(SIZES), "[-1*N, -3, -1*M]"),
    ],
    "Equal": [
        (of(SIZES, ["N", 3, "N"]), "[True, True, None]"),
        (of(SIZES, ["N+1", 4, "M"]), "[False, False, True]"),
        (of(["N"], [-1]), "[False]"),
        (of(["N+1"], [0]), "[False]"),
        (of(["N"], [0]), "[None]"),
    ],
    "Max": [
        (of(SIZES, ["N+1", 2, "M"]), "[N + 1, 3, M]"),
        (of(["N"], ["M"]), "[max(M, N)]"),
        (of(["N"], [0], [-3]), "[N]"),
        (of(["N"], ["N+2"], [1]), "[N + 2]"),
        (of(SIZES), "[N, 3, M]"),
        (of(["N"], [3]), "[max(3, N)]"),
    ],
    "Min": [
        (of(SIZES), "[N, 3, M]"),
        (of(["N"], ["N+2"], [-1]), "[-1]"),
        (of(SIZES, ["N+1", 2, "M"]), "[N, 2, M]"),
        (of(["N"], ["M"]), "[min(M, N)]"),
        (of(["N"], [0]), "[0]"),
        (of(["N"], [3]), "[min(3, N)]"),
    ],
    "GreaterOrEqual": [
        (of(["N", 3, "N", "N"], ["N", 4, -1, "M"]), "[True, False, True, None]"),
        (of(["N", "N"], [0, 1]), "[True, None]"),
        (of(["N"], ["N+1"]), "[False]"),
    ],
    "LessOrEqual": [
        (of(["N", 3, "N", "N"], ["N", 4, -1, "M"]), "[True, True, False, None]"),
        (of(["N", "N"], ["N+1", 0]), "[True, None]"),
    ],
    "Greater": [
        (of(["N", 3, "N", "N"], ["N", 4, -1, "M"]), "[False, False, True, None]"),
        (of(["N+1", "N"], ["N", 0]), "[True, None]"),
    ],
    "Less": [
        (of(["N", 3, "N", "N"], ["N", 4, -1, "M"]), "[False, True, False, None]"),
        (of(["N", "N"], ["N+1", 0]), "[True, False]"),
    ],
    "Relu": [
        (of(SIZES), ""),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_elements_that_follow(name: str) -> None:
    assert [elements(name, given) for given, _ in CASES[name]] == [expected for _, expected in CASES[name]]


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_the_largest_and_smallest_of_any_number_of_sizes(op: str, count: int) -> None:
    inputs = [pt.variable(f"x{i}", "float32", (f"N{i}",)) for i in range(count)]
    size = pt.op(op, *[pt.op("Shape", node) for node in inputs])
    graph = pt.Graph([pt.op("Expand", pt.constant(np.zeros(1, np.float32)), size)])
    contract = Contract(graph)
    contract.check(tuple([(i + 2,) for i in range(count)]))
    chosen = {"Max": max, "Min": min}[op](range(2, count + 2))
    assert interpret(graph, [np.zeros(i + 2, np.float32) for i in range(count)])[0].shape == (chosen,)


def test_a_value_rule_that_fails_leaves_the_elements_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise ValueError("not as ONNX has it")

    monkeypatch.setitem(VALUES, "Neg", fails)
    assert elements("Neg", of(SIZES)) == ""


BY_DATA = {"NonZero", "Compress", "Unique", "NonMaxSuppression"}
"""Ops whose results have as many elements as their data have of a kind."""


def known_without(case: Case, slot: int | None) -> tuple[bool, bool]:
    """True if all sizes of the results are static where this input, of a static shape, is the one that is no constant;
    and True if the input is listed as deciding them."""
    inputs = [
        None if x is None else pt.variable(f"x{i}", dtype_name(x.dtype), x.shape) if i == slot else pt.constant(x)
        for i, x in enumerate(case.inputs)
    ]
    version = max(case.since, min(case.until, 21))
    node = pt.op(case.op, *inputs, n_outputs=case.outputs, opset=version, **case.attrs)
    graph = pt.apply_pass(pt.Graph([node], opsets={"": version}), "InferShape")
    static = all(isinstance(entry.type, pt.TensorType) and entry.type.is_static for entry in graph.outputs)
    return static, slot is not None and node.inputs[slot] in deciding(node)


def test_inputs_that_decide_sizes_are_those_without_which_they_are_unknown() -> None:
    seen: dict[str, set[int]] = {}
    for case in VARIED.values():
        if case.until < 9 or not known_without(case, None)[0] or case.op in BY_DATA:
            continue
        for slot in [i for i, x in enumerate(case.inputs) if x is not None]:
            static, listed = known_without(case, slot)
            assert listed or static, (case.op, slot)
            if listed and not static:
                seen.setdefault(case.op, set()).add(slot)
    kernels_need = {"CumSum", "Trilu", "MaxUnpool"}
    expected = {op: set(slots) for op, slots in SHAPED_BY.items() if op not in kernels_need}
    assert {op: slots for op, slots in seen.items() if not op.startswith("Reduce")} == expected


def test_inputs_whose_values_decide_sizes_somewhere_in_a_body() -> None:
    """By any number of ops; a value of which only the shape is read does not."""
    x, sizes, times, pads, like = (pt.variable(name, "int64", (2,)) for name in ("x", "sizes", "times", "pads", "like"))
    one = pt.constant(np.array([1]), "one")
    nodes = [
        pt.op("Reshape", x, pt.op("Abs", pt.op("Add", sizes, one))),
        pt.op("Tile", x, pt.op("Slice", times, *(pt.constant(np.array([i]), f"c{i}") for i in (0, 1)))),
        pt.op("Expand", x, pt.op("Shape", pt.op("Neg", like))),
        pt.op("Reshape", x, pt.op("Concat", pt.op("Size", like, name="count"), one, axis=0)),
        pt.op("Pad", x, pt.op("Cast", pads, to="int64")),
    ]
    assert [one.name for one in deciding_inputs(pt.Graph(nodes, [x, sizes, times, pads, like]))] == ["sizes", "times", "pads"]
    for node, expected in zip(nodes, [["sizes"], ["times"], [], [], ["pads"]], strict=True):
        assert [one.name for one in deciding_inputs(pt.Graph([node], [x, sizes, times, pads, like]))] == expected
