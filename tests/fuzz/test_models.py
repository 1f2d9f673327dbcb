"""Random models on every device, in a few seconds; `python -m tests.fuzz.models` goes on for as long as one likes."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.ops.schemas import newest_versions, spec_of
from tests.fuzz.models.__main__ import Campaign
from tests.fuzz.models.builder import Case
from tests.fuzz.models.check import SETTINGS, Finding
from tests.fuzz.models.generate import generate
from tests.fuzz.models.reasons import reason_of
from tests.fuzz.models.recipes import LEFT_OUT, RECIPES
from tests.fuzz.models.reduce import cut, reduced
from tests.fuzz.models.stability import SPECIAL, Expected, difference, expected

ON_EVERYTHING = range(100, 106)
"""Seeds of models that go through all settings."""

ON_FAST_ONES = range(110, 150)
"""The seeds of the models that are only tried on what takes no compiling."""


def test_every_op_of_onnx_is_drawn_or_left_out_for_a_reason() -> None:
    import onnx.defs

    newest = newest_versions()[""]
    names = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}
    known = {name for name in names if spec_of(name, "", newest) is not None}
    assert known - set(RECIPES) - set(LEFT_OUT) == set()
    assert set(LEFT_OUT) & set(RECIPES) == set()


def test_a_seed_makes_the_same_model_again() -> None:
    for seed in range(20):
        first, second = generate(seed), generate(seed)
        assert str(first.graph) == str(second.graph)
        for a, b in zip(first.feeds, second.feeds, strict=True):
            np.testing.assert_array_equal(a, b)


def test_most_of_the_vocabulary_is_met() -> None:
    ops = {node.op for seed in range(600) for node in generate(seed).graph.nodes if node.is_op}
    assert len(ops & set(RECIPES)) > 0.9 * len(RECIPES)


@pytest.mark.parametrize(
    ("settings", "seeds"),
    [(list(SETTINGS), ON_EVERYTHING), (["passes", "partitioned", "files", "onnxruntime"], ON_FAST_ONES)],
)
def test_random_models_are_the_same_everywhere(settings: list[str], seeds: range) -> None:
    campaign = Campaign(settings)
    try:
        for seed in seeds:
            campaign.try_seed(seed)
    finally:
        campaign.close()
    assert campaign.tally.runs == len(settings) * len(seeds)
    assert campaign.tally.unknown == []


def chain() -> Case:
    x = pt.variable("x", "float32", (3,))
    last = x
    for number, op in enumerate("Neg Relu Abs Exp Neg".split()):
        last = pt.op(op, last, name=f"n{number}")
    return Case(pt.Graph([last], name="chain"), [np.array([-1, 0, 2], "float32")])


def test_a_failure_is_cut_down_to_the_nodes_that_fail() -> None:
    case = chain()
    asked: list[set[str]] = []

    def fails(names: set[str]) -> bool:
        asked.append(set(names))
        return {"n1", "n3"} <= names

    assert reduced(case, fails) == {"n1", "n3"}
    assert reduced(case, lambda names: "n2" in names) == {"n2"}
    small = cut(case, {"n1", "n3"})
    assert small is not None
    assert [node.op for node in small.graph.nodes if node.is_op] == ["Relu", "Exp"]
    np.testing.assert_allclose(interpret(small.graph, small.feeds)[1], np.exp([1, 0, 0]), rtol=1e-6)


def called_relu() -> Case:
    """A call of a function of three ops."""
    formal, x = pt.variable("f", "float32", (3,)), pt.variable("x", "float32", (3,))
    last = formal
    for op in "Neg Relu Abs".split():
        last = pt.op(op, last, name=op.lower())
    called = pt.call(pt.Graph([last], [formal], name="function"), x, name="call")
    return Case(pt.Graph([called], name="g"), [np.array([1, np.nan, 2], "float32")])


@pytest.mark.parametrize("at_fault", ["Relu", "Abs"])
def test_a_function_is_cut_down_before_a_reason_is_looked_for(at_fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("openvino", "differs", "1 of 3 numbers differ")

    def ask(seed: int, settings: object, keep: set[str], inlined: bool) -> tuple[list[Finding], int]:
        return ([finding] if keep & {"call", at_fault.lower()} else []), 1

    monkeypatch.setattr("tests.fuzz.models.__main__.generate", lambda seed: called_relu())
    campaign = Campaign(["openvino"])
    monkeypatch.setattr(campaign, "_ask", ask)
    campaign._judge(1, Finding("openvino", "differs", "at first"))
    campaign.close()
    assert (len(campaign.tally.known), len(campaign.tally.unknown)) == ((1, 0) if at_fault == "Relu" else (0, 1))


def test_what_differs_through_its_call_alone_stays_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("openvino", "differs", "1 of 3 numbers differ")
    monkeypatch.setattr("tests.fuzz.models.__main__.generate", lambda seed: called_relu())
    campaign = Campaign(["openvino"])
    monkeypatch.setattr(campaign, "_ask", lambda seed, settings, keep, inlined: ([] if inlined else [finding], 1))
    campaign._judge(1, finding)
    campaign.close()
    assert campaign.tally.unknown == [(1, finding)]


@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "Unique"])
def test_no_reason_covers_a_nan_that_openvino_compares_or_sorts(op: str) -> None:
    """Comparisons are turned for it, and a Unique of floats is refused."""
    x = pt.variable("x", "float32", (3,))
    graph = pt.Graph([pt.op(op, x, name="n") if op == "Unique" else pt.op(op, x, pt.constant(np.float32(1)), name="n")], name="g")
    finding = Finding("openvino", "differs", "n: 1 of 3 numbers differ: at [1] True instead of False")
    assert reason_of(Case(graph, [np.array([1, np.nan, 2], "float32")]), finding) is None


def test_what_is_integer_or_moved_has_to_be_exact() -> None:
    x = pt.variable("x", "float32", (2,))
    graph = pt.Graph([pt.op("Neg", x), pt.op("Cast", pt.op("Abs", x), to=7), pt.op("Exp", x)], name="g")
    neg, cast, exp = expected(graph, [np.array([1.5, np.nan], "float32")])
    assert difference(np.array([-1.5, np.nan], "float32"), neg) is None
    assert difference(np.array([-1.5000001, np.nan], "float32"), neg) is not None
    assert difference(cast.value + 1, cast) is not None
    assert difference(exp.value * np.float32(1 + 1e-6), exp) is None
    assert difference(exp.value * np.float32(1 + 1e-4), exp) is not None
    assert difference(exp.value.astype("float64"), exp) == "float64 instead of float32"
    assert "sizes" in str(difference(exp.value[:1], exp))


def test_a_comparison_of_rounding_errors_says_nothing() -> None:
    x = pt.variable("x", "float32", (4,))
    total = pt.op("Sub", pt.op("Exp", x), pt.op("Exp", x))
    graph = pt.Graph(
        [
            pt.op("Greater", total, pt.constant(np.float32(0))),
            pt.op("Greater", x, pt.constant(np.float32(0))),
        ],
        name="g",
    )
    noise, sure = expected(graph, [np.array([1, 2, 3, -4], "float32")])
    assert np.isinf(noise.spread).any()
    assert difference(~sure.value, sure) is not None


def test_denormal_numbers_have_few_digits_on_the_way() -> None:
    x, scale = pt.variable("x", "float32", (1, 1, 4)), pt.variable("s", "float32", (1,))
    graph = pt.Graph([pt.op("InstanceNormalization", x, scale, scale, name="n")], inputs=[x, scale])
    numbers = np.array([[[8, -9, 7, 30]]], "float32")
    for size, allowed in ((1e-40, True), (1e-30, False)):
        (right,) = expected(graph, [numbers, np.array([size], "float32")])
        near = right.value * np.float32(1 + 6e-5)
        assert (difference(near, right) is None) is allowed


def test_nothing_is_compared_loosely_by_accident() -> None:
    checked = exact = 0
    for seed in range(40):
        case = generate(seed)
        for right in expected(case.graph, case.feeds):
            if isinstance(right, Expected) and isinstance(right.value, np.ndarray) and right.value.size:
                checked += 1
                exact += not np.isinf(right.spread).any()
    assert exact > 0.9 * checked


def one_clip(value: float, bound: float | None) -> Case:
    x = pt.variable("x", "float32", (2,))
    bounds = [None if bound is None else pt.constant(np.float32(bound)), pt.constant(np.float32(9))]
    graph = pt.Graph([pt.op("Clip", x, *bounds, name="clip")], name="g")
    return Case(graph, [np.array([1, value], "float32")])


def test_a_reason_holds_for_its_own_values_alone() -> None:
    special = Finding("onnxruntime", "differs", f"clip of Clip: 1 of 2 numbers differ: 9.0 instead of inf, {SPECIAL}")
    plain = Finding("onnxruntime", "differs", "clip of Clip: 1 of 2 numbers differ: 9.0 instead of 8.0")
    assert "left out" in str(reason_of(one_clip(-np.inf, None), special))
    assert reason_of(one_clip(-np.inf, None), plain) is None, "finite numbers differ"
    assert reason_of(one_clip(-np.inf, 0), special) is None, "both bounds are given"
    assert reason_of(one_clip(3, None), special) is None, "no number is extreme"


@pytest.mark.parametrize("setting", ["openvino", "openvino-nan"])
def test_nan_is_no_reason_where_it_has_to_come_through(setting: str) -> None:
    finding = Finding(setting, "differs", f"relu: 1 of 2 numbers differ: 0.0 instead of nan, {SPECIAL}")
    x = pt.variable("x", "float32", (2,))
    graph = pt.Graph([pt.op("Relu", x, name="relu")], name="g")
    known = [reason_of(Case(graph, [np.array([1, value], "float32")]), finding) is not None for value in (np.nan, np.inf)]
    assert known == [setting == "openvino", True]


def test_a_dequantized_number_may_be_off_by_a_rounding() -> None:
    x = pt.variable("x", "uint8", (2,))
    node = pt.op("DequantizeLinear", x, pt.constant(np.float32(0.2)), pt.constant(np.uint8(7)), name="d", output_names=["y"])
    case = Case(pt.Graph([node], name="g"), [np.array([7, 7], "uint8")])
    details = [f"y of DequantizeLinear: 2 of 2 numbers differ: at [0] {far} instead of 0.0" for far in (3e-8, 0.2)]
    findings = [Finding("openvino", "differs", detail) for detail in details]
    assert [reason_of(case, finding) is not None for finding in findings] == [True, False]


def quantized_window(least: float) -> Case:
    window = pt.op("HannWindow", pt.constant(np.array(2, "int64")), periodic=0)
    shifted = pt.op("Add", window, pt.constant(np.float32(least)))
    quantized = pt.op("DynamicQuantizeLinear", shifted if least else window, name="quantize")
    return Case(pt.Graph([quantized[1]], name="g"), [])


def test_the_scale_of_errors_of_a_rounding_is_that_of_zeros() -> None:
    scale = quantized_window(0).graph.outputs[0].name
    finding = Finding("onnxruntime", "differs", f"{scale} of DynamicQuantizeLinear: 1 of 1 numbers differ: 1.0 instead of 3e-17")
    assert "may be zero on one side alone" in str(reason_of(quantized_window(0), finding))
    assert reason_of(quantized_window(0.25), finding) is None, "no error of a rounding is as large"


def test_the_quotient_of_an_error_of_a_rounding_may_be_infinite() -> None:
    def quotient(least: float) -> Case:
        window = pt.op("HannWindow", pt.constant(np.array(5, "int64")), periodic=0, output_datatype=11)
        shifted = pt.op("Add", window, pt.constant(np.float64(least)))
        return Case(pt.Graph([pt.op("Reciprocal", shifted if least else window, output_names=["y"])], name="g"), [])

    finding = Finding("onnxruntime", "differs", f"y of Reciprocal: 1 of 5 numbers differ: at [4] inf instead of 7e+31, {SPECIAL}")
    assert "its quotients are infinite there" in str(reason_of(quotient(0), finding))
    assert reason_of(quotient(0.25), finding) is None, "no error of a rounding is as large"


def test_what_differs_on_finite_numbers_is_not_called_special() -> None:
    wanted = Expected(np.array([1, np.nan], "float32"), np.zeros(2))
    assert SPECIAL in str(difference(np.array([1, 2], "float32"), wanted))
    assert SPECIAL not in str(difference(np.array([3, 2], "float32"), wanted))


def test_sizes_that_rest_on_roundings_say_nothing() -> None:
    x = pt.variable("x", "float32", (2, 3))
    kept = pt.op("NonZero", pt.op("Sub", pt.op("Exp", x), pt.op("Exp", x)))
    graph = pt.Graph([pt.op("Reshape", kept, pt.constant(np.array([2, 0], "int64")), allowzero=1)], name="g")
    assert np.isinf(expected(graph, [np.ones((2, 3), "float32")])[0].spread)


def test_a_loop_without_a_turn_is_computed_as_in_the_model() -> None:
    for seed in (66542, *range(300, 400)):
        refused: list[str] = []
        generate(seed, refused)
        assert not [text for text in refused if text.startswith("model")], "drawn again only for a reason"
