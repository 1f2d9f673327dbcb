"""Reasons and notes of a report: the device's own words, names that no op has, questions that a selector leaves unanswered."""

from __future__ import annotations

from typing import Any

import pytest

import partita as pt
from partita.graph import Graph, Node, call, variable
from partita.partition import ContainOpSelector, PartitionReport, Pattern, PatternProperty, SubgraphSelector
from partita.passes import apply_pass
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import SHAPE, chain, from_edges

from .making import Property


def report_of(g: Graph, subject: Any, **options: Any) -> PartitionReport:
    return apply_pass(g, "PartitionGraph", subgraph_property=subject, **options).attrs["partition_report"]


def taking(*names: str) -> PatternProperty:
    return PatternProperty(ContainOpSelector(set(names)), "mine")


# -- the device's own reason ------------------------------------------------------------------------------


def test_a_backend_that_is_a_device_gives_its_own_reason() -> None:
    with device("mynumpy", "Relu"):
        result = apply_pass(chain("Relu", "Tanh", "Relu"), "PartitionGraph", backend="mynumpy")
    report = result.attrs["partition_report"]
    assert report.outside[0].text == "'mynumpy' does not run 'tanh1': mynumpy has no Tanh"
    assert {(b.producer, b.consumer): b.text for b in report.borders if b.rule == "unsupported"} == {
        ("relu0", "tanh1"): "'mynumpy' does not run 'tanh1': mynumpy has no Tanh",
        ("tanh1", "relu2"): "'mynumpy' does not run 'tanh1': mynumpy has no Tanh",
    }
    assert "mynumpy has no Tanh" in str(report)


@pytest.mark.parametrize("growth", ["largest", "walk", "seed", "waves"])
def test_with_every_growth_and_with_selectors_combined(growth: str) -> None:
    class Choosy(ContainOpSelector):
        def why_not(self, node: Node) -> str | None:
            return f"{node.op} is not to its taste"

    for selector in (Choosy({"Relu"}), Choosy({"Relu"}) & ContainOpSelector({"Relu"}), Choosy({"Relu"}) | Choosy({"Relu"})):
        (out,) = report_of(chain("Relu", "Exp"), PatternProperty(selector, "choosy"), growth=growth).outside
        assert out.text.startswith("'choosy' does not run 'exp1': Exp is not to its taste")


def test_either_part_may_have_taken_it_so_both_have_to_say_why_not() -> None:
    class Choosy(ContainOpSelector):
        def why_not(self, node: Node) -> str | None:
            return "no"

    (out,) = report_of(chain("Relu", "Exp"), PatternProperty(Choosy({"Relu"}) | ContainOpSelector({"Relu"}), "m")).outside
    assert out.text == "'m' does not take 'exp1' (Exp)"


def test_a_walk_adds_the_reason_to_what_select_said() -> None:
    class Walking(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return node.op != "Exp"

        def why_not(self, node: Node) -> str | None:
            return f"{node.op} costs too much"

    (out,) = report_of(chain("Relu", "Exp"), Property(Walking)).outside
    assert out.text == "select(exp1) of 'mine' said no (Exp costs too much), and no subgraph took it in"


@pytest.mark.parametrize(
    ("answer", "message"), [(3, r"it returned 3 \(int\), not a text or None"), (None, "it raised KeyError: 'exp1'")]
)
def test_a_reason_that_goes_wrong_names_the_hook(answer: int | None, message: str) -> None:
    class Wrong(ContainOpSelector):
        def why_not(self, node: Node) -> Any:
            return answer or {}[node.name]

    report = report_of(chain("Relu", "Exp"), PatternProperty(Wrong({"Relu"}), "wrong"))
    with pytest.raises(pt.PartitionError, match=rf"property 'wrong', hook why_not, node 'exp1' \(Exp\): {message}"):
        report.outside


# -- names that no op has ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Convolution", "It is a name of MXNet's; did you mean Conv?"),
        ("Rellu", "Did you mean 'Relu'"),
        ("zzzz", "Ops have ONNX's names; those of another domain are written domain::Op"),
        ("ai.onnx.ml::Normaliser", "Did you mean 'Normalizer'?"),
    ],
)
@pytest.mark.parametrize("growth", [None, "walk"])
def test_an_op_name_that_no_op_has(name: str, hint: str, growth: str | None) -> None:
    (note,) = report_of(chain("Relu"), taking("Relu", name), growth=growth).notes
    assert note.startswith(f"There is no op '{name}', which ContainOpSelector({{") and hint in note


def test_in_a_pattern_and_in_selectors_combined() -> None:
    pattern = Pattern(("Relu", ["Convolution"]), "Exp")
    (note,) = report_of(chain("Relu"), PatternProperty(pattern)).notes
    assert note.startswith("There is no op 'Convolution', which Pattern(('Relu', ['Convolution']), 'Exp') looks for.")
    (note,) = report_of(chain("Relu"), PatternProperty(ContainOpSelector({"Relu"}) | ~ContainOpSelector({"Rellu"}))).notes
    assert "'Rellu'" in note


def test_names_of_ops_that_are_not_in_the_graph_but_exist_are_not_noted() -> None:
    names = ("Relu", "Conv", "Upsample", "com.microsoft::Gelu", "ai.onnx.ml::Normalizer")
    assert report_of(chain("Relu"), taking(*names)).notes == ()


def test_a_function_of_the_model_is_an_op() -> None:
    opsets = {"": 21, "mine": 1}
    body, x = chain("Relu").evolve(opsets=opsets), variable("x", "float32", SHAPE)
    g = Graph([call(body, x, name="my").evolve(op="MyOp", domain="mine")], opsets=opsets)
    assert report_of(g, taking("mine::MyOp")).notes == ()
    (note,) = report_of(g, taking("mine::MyOpp")).notes
    assert "Did you mean 'MyOp'?" in note


# -- a selector that defines select alone -----------------------------------------------------------------


class SelectAlone(SubgraphSelector):
    def select(self, node: Node) -> bool:
        return node.op in ("Relu", "Neg")


class SelectAloneWithoutState(SelectAlone):
    stateless = True


@pytest.mark.parametrize("kind", [SelectAlone, SelectAloneWithoutState])
def test_a_selector_that_defines_select_alone_is_noted(kind: type[SubgraphSelector]) -> None:
    (note,) = report_of(chain("Relu", "Neg", "Exp"), Property(kind)).notes
    assert note == (
        f"{kind.__name__} defines select alone, so each op that it takes is a subgraph of its own: "
        "the inherited select_input and select_output follow no edge"
    )


def test_not_where_it_makes_no_difference() -> None:
    g = from_edges({"a": [], "b": []})
    assert report_of(g, Property(SelectAlone)).notes == ()
    assert report_of(chain("Relu", "Exp", "Relu"), Property(SelectAlone)).notes == ()


def test_notes_are_in_plans() -> None:
    planned = pt.plan(chain("Relu"), subgraph_property=taking("Convolution"))
    assert "did you mean Conv?" in planned.notes[0]
    assert "did you mean Conv?" in str(planned)


# -- names of MXNet's ------------------------------------------------------------------------------------

LAYERS = {"FullyConnected", "Relu"}


def test_names_of_mxnet_in_a_selectors_code_are_noted() -> None:
    class ByName(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return node.op in LAYERS or node.op == "relu"

        def select_output(self, cur: Node, new: Node) -> bool:
            return new.op in ("Convolution", "Exp")

    nothing = report_of(chain("Tanh"), Property(ByName)).notes
    assert [note.partition(", which ByName names. ")[::2] for note in nothing] == [
        ("There is no op 'Convolution'", "It is a name of MXNet's; did you mean Conv?"),
        ("There is no op 'FullyConnected'", "It is a name of MXNet's; did you mean Gemm or MatMul?"),
        ("There is no op 'relu'", "It is a name of MXNet's; did you mean Relu?"),
    ]
    some = report_of(chain("Relu"), Property(ByName)).notes
    assert len(some) == 2 and all("'relu'" not in note for note in some), "lower-case texts may be other words"


def test_names_given_to_mxnet_ops_are_no_mistake() -> None:
    class ByTable(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return node.op in pt.mxnet_ops("FullyConnected")

        def select_output(self, cur: Node, new: Node) -> bool:
            return new.op in pt.mxnet_ops("Activation")

    assert report_of(chain("Tanh"), Property(ByTable)).notes == ()


def test_hooks_with_mxnets_names_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="nothing calls Old.SelectInput: the hook is select_input"):
        type("Old", (SubgraphSelector,), {"SelectInput": lambda self, cur, new: True})
    with pytest.warns(UserWarning, match="nothing calls Old.CreateSubgraphNode: the hook is create_subgraph_node"):
        type("Old", (pt.SubgraphProperty,), {"CreateSubgraphNode": lambda self, sym, number: sym, "Other": 3})
