"""What the manager checks around a pass, and how it says what went wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partita import passes
from partita.graph import Graph, GraphError, PassError, constant, op, variable
from partita.graph.rewrite import rewrite
from partita.passes import PassTrace, apply_pass, pass_info, register_pass, register_pipeline, unregister_pass, watch_passes
from partita.passes.manager import unwatched

from .before_after import text

NET = """
graph net(x: float32[2, 3]) -> (c) {
  a = Relu(x)
  b = Relu(x)
  dead = Neg(a)
  c = Add(a, b)
}
"""


@pytest.fixture
def g() -> Graph:
    return text(NET)


@pytest.fixture(autouse=True)
def own_passes() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    before = {*passes.list_passes(), *passes.list_pipelines()}
    yield
    for name in {*passes.list_passes(), *passes.list_pipelines()} - before:
        unregister_pass(name)


@pytest.fixture
def own_family() -> Iterator[str]:
    """A family whose passes are forgotten after the test."""
    yield "own"
    for name in passes.list_passes("own"):
        unregister_pass(f"own.{name}")


def message(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value)


def test_a_name_a_list_and_a_pipeline(g: Graph) -> None:
    assert len(apply_pass(g, "EliminateDead")) == 4
    assert len(apply_pass(g, ["EliminateDead", "MergeCommon"])) == 3
    register_pipeline("Tidy", ("MergeCommon", "EliminateDead"))
    assert len(apply_pass(g, "Tidy")) == 3
    register_pipeline("Tidier", ["Tidy", "EliminateDead"])
    assert passes.list_pipelines()["Tidier"] == ("MergeCommon", "EliminateDead", "EliminateDead")


def test_the_default_pipeline_is_one_tuple() -> None:
    assert passes.list_pipelines()["Default"] == passes.DEFAULT


def test_a_pass_of_the_users_is_like_ours(g: Graph) -> None:
    @register_pass("Rename", provides=("renamed",), keeps=("kept",))
    def rename(g: Graph, *, suffix: str = "_") -> Graph:
        graph = rewrite(g, lambda node, rewriter: rewriter.keep(node, rewriter.rebuilt(node).evolve(name=node.name + suffix)))
        graph.attrs["renamed"] = True
        return graph

    g.attrs.update(kept=1, stale=2)
    trace = PassTrace()
    result = apply_pass(g, "Rename", suffix="!", trace=trace)
    assert [node.name for node in result.nodes] == ["x!", "a!", "b!", "dead!", "c!"]
    assert result.attrs == {"kept": 1, "renamed": True}
    assert g.attrs == {"kept": 1, "stale": 2}
    assert trace.records[0].dropped == ("stale",)
    assert pass_info("Rename").options == {"suffix"}


def test_an_attribute_stays_if_the_graph_did_not_change(g: Graph) -> None:
    @register_pass("Look")
    def look(g: Graph) -> Graph:
        return g.evolve(attrs={**g.attrs, "seen": 1})

    g.attrs["fact"] = 1
    assert apply_pass(g, "Look").attrs == {"fact": 1, "seen": 1}


def test_wishes_survive_our_passes(g: Graph) -> None:
    g.attrs.update(subgraph_property="a wish", fact="about the old graph")
    assert apply_pass(g, "EliminateDead").attrs == {"subgraph_property": "a wish"}


def test_kept_views_show_the_new_graph(g: Graph) -> None:
    result = apply_pass(g, ["InferShape", "EliminateDead"])
    assert list(result.attrs["shape"]) == ["x", "a", "b", "c"]
    assert result.attrs["shape"]["c"] == (2, 3) == result.attrs["shape"][result["c"][0]]
    with pytest.raises(GraphError, match="there is no value 'dead'"):
        result.attrs["shape"]["dead"]


def test_needs_name_their_provider(g: Graph) -> None:
    with pytest.raises(PassError) as error:
        apply_pass(g, ["EliminateDead", "PlanMemory"])
    assert message(error) == (
        "pass 'PlanMemory' (after EliminateDead): the pass needs the graph attribute 'shape', which is not there\n"
        "  Run 'InferShape' before it."
    )

    @register_pass("Odd", needs=("luck",))
    def odd(g: Graph) -> Graph:
        return g

    with pytest.raises(PassError, match=r"No registered pass provides it; set g.attrs\['luck'\]"):
        apply_pass(g, "Odd")
    g.attrs["luck"] = 1
    assert apply_pass(g, "Odd") is g


def test_a_promise_is_checked(g: Graph) -> None:
    @register_pass("Liar", provides=("gold",))
    def liar(g: Graph) -> Graph:
        return g

    with pytest.raises(PassError, match="declares that it provides the graph attribute 'gold' and did not"):
        apply_pass(g, "Liar")


def test_options_go_where_they_are_taken(g: Graph) -> None:
    seen = []

    @register_pass("One")
    def one(g: Graph, *, size: int = 0) -> Graph:
        seen.append(("one", size))
        return g

    @register_pass("Any")
    def anything(g: Graph, **options: Any) -> Graph:
        seen.append(("any", options))
        return g

    apply_pass(g, ["One", "EliminateDead"], size=3)
    apply_pass(g, ["One", "Any"], size=3, Any={"depth": 1}, One={"size": 4})
    assert seen == [("one", 3), ("one", 4), ("any", {"size": 3, "depth": 1})]


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ("FoldConstants", {"limits": 1}, "pass 'FoldConstants': there is no option 'limits'\n  Did you mean 'limit'?"),
        ("EliminateDead", {"limit": 1}, "pass 'EliminateDead': there is no option 'limit'\n  It takes none."),
        (
            ["FoldConstants", "MergeCommon"],
            {"x": 1},
            "none of the passes FoldConstants, MergeCommon has an option 'x'\n"
            "  There are FoldConstants, MergeCommon, factor, growth, limit, only, shapes.",
        ),
        (
            ["FoldConstants", "MergeCommon"],
            {"FoldConstants": {"limt": 1}},
            "pass 'FoldConstants': there is no option 'limt'\n  Did you mean 'limit'?",
        ),
        ("EliminateDed", {}, "there is no pass 'EliminateDed'\n  Did you mean 'EliminateDead'?"),
    ],
)
def test_unknown_words_name_near_ones(g: Graph, names: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PassError) as error:
        apply_pass(g, names, **options)
    assert message(error) == said


def test_far_words_list_what_there_is(g: Graph) -> None:
    with pytest.raises(PassError, match=r"there is no pass 'xyzzy'\n  There are ConvertOpset, Default, EliminateDead"):
        apply_pass(g, "xyzzy")


def test_a_failing_pass_is_named_with_its_node_and_those_before(g: Graph) -> None:
    @register_pass("Fail")
    def fail(g: Graph) -> Graph:
        def visit(node: Any, rewriter: Any) -> None:
            if node.op == "Add":
                raise ValueError("no adding today")
            rewriter.keep(node)

        return rewrite(g, visit)

    with pytest.raises(PassError) as error:
        apply_pass(g, ["EliminateDead", "MergeCommon", "Fail"])
    assert message(error) == (
        "pass 'Fail' (after EliminateDead, MergeCommon), node 'c' (Add): ValueError: no adding today"
    )
    assert isinstance(error.value.__cause__, ValueError)


def test_an_error_of_ours_keeps_its_parts(g: Graph) -> None:
    @register_pass("Refuse")
    def refuse(g: Graph) -> Graph:
        raise GraphError("it is too large", where="node 'a'", remedy="Make it smaller")

    with pytest.raises(PassError) as error:
        apply_pass(g, ["Refuse"])
    assert (error.value.cause, error.value.where, error.value.remedy) == (
        "it is too large",
        "pass 'Refuse', node 'a'",
        "Make it smaller",
    )
    assert isinstance(error.value.__cause__, GraphError)


def test_what_a_pass_returns_is_checked(g: Graph) -> None:
    @register_pass("Nothing")
    def nothing(g: Graph) -> Any:
        pass

    @register_pass("Touch")
    def touch(g: Graph) -> Graph:
        g.attrs["mine"] = 1
        return g

    with pytest.raises(PassError) as error:
        apply_pass(g, "Nothing")
    assert message(error) == "pass 'Nothing': the pass returned NoneType, not a Graph\n  End it with `return g`."
    with pytest.raises(PassError, match=r"the pass changed the graph that it was given: g.attrs\['mine'\]"):
        apply_pass(g, "Touch")


def test_the_result_is_verified_unless_that_is_turned_off(g: Graph) -> None:
    @register_pass("Break")
    def broken(g: Graph) -> Graph:
        return Graph([op("Add", variable("x", "float32", (2,)), constant([1, 2], name="i"), name="sum")])

    with pytest.raises(PassError, match="pass 'Break', .*: the pass returned a graph that is not well formed: ") as error:
        apply_pass(g, "Break")
    assert "'sum'" in message(error)
    assert len(apply_pass(g, "Break", verify=False)) == 3
    passes.settings.verify = False
    try:
        assert len(apply_pass(g, "Break")) == 3
    finally:
        passes.settings.verify = True


def test_names_are_taken_once() -> None:
    with pytest.raises(PassError, match="there is a pass 'MergeCommon' already"):
        register_pass("MergeCommon")(lambda g: g)
    with pytest.raises(PassError, match="there is a pipeline 'Default' already"):
        register_pipeline("Default", ())
    with pytest.raises(PassError, match="there is no pass 'Nonesuch'"):
        unregister_pass("Nonesuch")
    with pytest.raises(PassError, match=r"needs is a sequence of names\n  Write needs=\('shape',\)"):
        register_pass("Odd", needs="shape")
    register_pass("Odd")(lambda g: g)
    register_pass("Odd", replace=True)(lambda g, **options: g)
    assert pass_info("Odd").options is None


def test_callback_trace_and_dumps(g: Graph, tmp_path: Path) -> None:
    seen: list[Any] = []
    trace = PassTrace()
    result = apply_pass(
        g,
        ["EliminateDead", "MergeCommon"],
        on_pass=lambda record, before, after: seen.append((record.name, len(before), len(after))),
        trace=trace,
        dump=tmp_path / "dumps",
    )
    assert seen == [("EliminateDead", 5, 4), ("MergeCommon", 4, 3)]
    assert [(r.name, r.nodes_before, r.nodes_after, r.changed) for r in trace] == [
        ("EliminateDead", 5, 4, True),
        ("MergeCommon", 4, 3, True),
    ]
    assert 0 < trace.seconds < 60 and all(0 < record.verify_seconds < 60 for record in trace)
    assert "EliminateDead" in str(trace) and trace.table().row_count == 2
    files = sorted(path.name for path in (tmp_path / "dumps").iterdir())
    assert files == ["00-input.txt", "01-EliminateDead.txt", "02-MergeCommon.txt"]
    assert (tmp_path / "dumps" / "02-MergeCommon.txt").read_text("utf-8") == str(result)


def test_dumps_go_to_a_function_too_and_names_are_safe(g: Graph, tmp_path: Path) -> None:
    register_pass("../up & away")(lambda g: g)
    titles: list[str] = []
    apply_pass(g, "../up & away", dump=lambda title, text: titles.append(title))
    assert titles == ["00-input", "01-../up & away"]
    apply_pass(g, "../up & away", dump=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-input.txt", "01-.._up___away.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(PassError, match="no dumps can be written there"):
        apply_pass(g, "MergeCommon", dump=tmp_path / "file")


def test_passes_are_left_out_by_name(g: Graph) -> None:
    trace = PassTrace()
    assert len(apply_pass(g, "Default", without=["MergeCommon", "InferType"], trace=trace)) == 4
    assert [record.name for record in trace] == [
        "InferShape", "FoldConstants", "SimplifyIdentities", "FoldBatchNorm", "EliminateDead",
    ]
    with pytest.raises(PassError) as error:
        apply_pass(g, ["MergeCommon", "EliminateDead"], without=["MergeComon"])
    assert message(error) == "there is no pass 'MergeComon' to leave out\n  Did you mean 'MergeCommon'?"
    register_pass("Common")(lambda g: g)
    apply_pass(g, ["Common", "MergeCommon"], without="MergeCommon", trace=(single := PassTrace()))
    assert [record.name for record in single] == ["Common"], "a text is one name, and no part of it is another"
    register_pass("Needed", essential=True)(lambda g: g)
    with pytest.raises(PassError, match="pass 'Needed' cannot be left out: what comes after it relies on it"):
        apply_pass(g, "Needed", without=["Needed"])


def test_a_family_keeps_its_names_to_itself(g: Graph, own_family: str) -> None:
    @register_pass("MergeCommon", family=own_family)
    def other(g: Graph, *, size: int) -> Graph:
        return g if size else broken(g)

    @register_pass("Break", family=own_family)
    def broken(g: Graph) -> Graph:
        raise GraphError("it is too large", where="node 'a'")

    assert "Break" not in passes.list_passes() and passes.list_passes(own_family) == ("Break", "MergeCommon")
    assert len(apply_pass(g, "MergeCommon")) == 4
    assert apply_pass(g, "MergeCommon", family=own_family, size=1) is g is apply_pass(g, f"{own_family}.MergeCommon", size=1)
    with pytest.raises(PassError, match="there is no pass 'Break'"):
        apply_pass(g, "Break")
    with pytest.raises(GraphError) as error:
        apply_pass(g, ["EliminateDead", "Break"], family=own_family)
    assert message(error) == f"pass '{own_family}.Break', node 'a': it is too large", "the class decides what a device does"
    with pytest.raises(PassError) as missing:
        apply_pass(g, "MergeCommon", family=own_family)
    assert message(missing) == (
        f"pass '{own_family}.MergeCommon': the pass needs the option 'size', which is not given\n"
        f"  Only a device of the family '{own_family}' runs it, and gives size."
    )


def test_a_missing_option_is_named(g: Graph) -> None:
    with pytest.raises(PassError, match=r"pass 'ConvertOpset': the pass needs the option 'opset', .*\n  Give opset=\.\.\.$"):
        apply_pass(g, "ConvertOpset")


def test_all_passes_inside_are_watched(g: Graph, tmp_path: Path) -> None:
    @register_pass("Outer")
    def outer(g: Graph) -> Graph:
        return apply_pass(g, "EliminateDead")

    with watch_passes(dump=tmp_path) as trace:
        tidy = apply_pass(apply_pass(g, "Outer", verify=False), "MergeCommon", verify=False)
        with unwatched():
            apply_pass(g, "EliminateDead")
    apply_pass(g, "EliminateDead")
    assert [record.name for record in trace] == ["Outer", "MergeCommon"], "a pass's own passes belong to it"
    assert [record.verify_seconds for record in trace] == [0.0, 0.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00-input.txt", "01-Outer.txt", "02-MergeCommon.txt"]
    assert (tmp_path / "02-MergeCommon.txt").read_text("utf-8") == str(tidy)


def test_a_watch_may_verify_what_is_not_verified_by_itself(g: Graph, own_family: str) -> None:
    @register_pass("Twice", family=own_family)
    def twice(g: Graph) -> Graph:
        graph = g.evolve()
        object.__setattr__(graph, "nodes", (*g.nodes, g.nodes[-1]))
        return graph

    assert len(apply_pass(g, "Twice", family=own_family, verify=False).nodes) == 6
    with watch_passes(verify=True), pytest.raises(PassError, match=f"pass '{own_family}.Twice', .*: a node is listed twice"):
        apply_pass(g, "Twice", family=own_family, verify=False)


def test_only_graphs_are_taken() -> None:
    with pytest.raises(PassError, match="passes are applied to a Graph, not to str"):
        apply_pass("net.onnx", "MergeCommon")  # type: ignore[arg-type]


def test_importing_the_passes_loads_nothing_heavy() -> None:
    code = "import sys, passes; print(*sorted({'onnx', 'rich', 'networkx'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
