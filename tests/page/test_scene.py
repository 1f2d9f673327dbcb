"""What the page is told, and that no name in a model can make it do anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.page.boxes import Boxes
from partita.page.collect import collect
from partita.page.reading import read_page
from partita.page.scene import NOWHERE, Scene
from partita.page.sections import add_sections
from partita.page.writing import page_text
from tests.graphs.pages import HOSTILE, long, small

PAGE = Path(__file__).resolve().parents[2] / "partita" / "page"


def tree(scene: Scene) -> list[str]:
    """A line for each box, indented by how many boxes it is in."""

    def depth(box: int) -> int:
        return 0 if scene.items[box].parent < 0 else 1 + depth(scene.items[box].parent)

    return [f"{'  ' * depth(i)}{item.kind} {item.name}: {item.label} @{item.owner}" for i, item in enumerate(scene.items)]


def arrows(scene: Scene) -> list[str]:
    name = [item.name for item in scene.items]
    return [f"{name[scene.values[value].source]} -> {name[reader]}: {scene.values[value].type}" for value, reader in scene.edges]


def test_facts_of_values_with_and_without_types() -> None:
    x, y = pt.variable("x", "float32").evolve(output_types=(None,)), pt.variable("y", "float32", ("N", 2))
    graph = pt.Graph([pt.op("Add", x, y, name="z"), pt.op("Neg", y, name="n")], [x, y], name="net")
    numbers = (("ops", "2"), ("subgraphs", "0"), ("borders", "0"), ("parameters", "0"))
    inputs = (("input", "x"), ("input", "y: float32[N, 2]"))
    assert collect(graph).facts == (*numbers, *inputs, ("output", "z: float32"), ("output", "n: float32[N, 2]"))


def test_bodies_read_what_they_capture() -> None:
    """A Loop's own inputs, here `i`, `c` and `v`, come before what it captures."""
    x, w = (pt.variable(name, "float32", (2,)) for name in "xw")
    i, c, v = pt.variable("i", "int64", ()), pt.variable("c", "bool", ()), pt.variable("v", "float32", (2,))
    inner = pt.variable("inner", "float32", (2,))
    body = pt.Graph([pt.op("Identity", c, name="on"), pt.op("Add", v, inner, name="sum")], [i, c, v, inner], name="body")
    a = pt.op("Neg", x, name="a")
    loop = pt.op("Loop", pt.constant(np.array(3)), None, w, captures=[a], name="l", body=body, n_outputs=1)
    scene = collect(pt.apply_pass(pt.Graph([loop], name="net"), "InferShape"))
    assert tree(scene) == [
        "input x: input @", "input w: input @", "op a: Neg @", "op l: Loop @", "  body body: 2 ops @",
        "    input i: input @", "    input c: input @", "    input v: input @", "    op on: Identity @", "    op sum: Add @",
        "output l: output @",
    ]
    assert [arrow.partition(":")[0] for arrow in arrows(scene)] == [
        "x -> a", "w -> l", "a -> l", "c -> on", "v -> sum", "a -> sum", "l -> l",
    ]


def test_boxes_and_edges_of_a_partitioned_graph() -> None:
    scene = collect(small())
    assert tree(scene) == [
        "input x: input @",
        "call conv_0: 2 ops @conv",
        "  op conv1: Conv @conv",
        "  op relu1: Relu @conv",
        "op pool: MaxPool @",
        "call conv_1: 2 ops @conv",
        "  op conv2: Conv @conv",
        "  op relu2: Relu @conv",
        "output relu2: output @",
    ]
    assert arrows(scene) == [
        "x -> conv1: float32[1, 3, 8, 8]",
        "conv1 -> relu1: float32[1, 3, 8, 8]",
        "relu1 -> pool: float32[1, 3, 8, 8]",
        "pool -> conv2: float32[1, 3, 4, 4]",
        "conv2 -> relu2: float32[1, 3, 4, 4]",
        "relu2 -> relu2: float32[1, 3, 4, 4]",
    ]


def test_borders_refusals_and_transfers() -> None:
    scene = collect(small())
    name = [item.name for item in scene.items]
    assert [(name[w.producer], name[w.consumer], w.inside, w.rule, w.text) for w in scene.walls] == [
        ("relu1", "pool", "conv_0", "unsupported", "'conv' does not take 'pool' (MaxPool)"),
        ("pool", "conv2", "conv_1", "unsupported", "'conv' does not take 'pool' (MaxPool)"),
    ]
    assert [(r.what, r.rule, r.text, [name[i] for i in r.items]) for r in scene.refusals] == [
        ("in no subgraph", "unsupported", "'conv' does not take the op (MaxPool)", ["pool"])
    ]
    assert [(t.source, t.target, t.values, t.nbytes) for t in scene.transfers] == [
        ("conv", "outside", 1, 3 * 64 * 4),
        ("outside", "conv", 1, 3 * 16 * 4),
    ]


def test_a_border_that_keeps_a_cycle_away_shows_its_way() -> None:
    x = pt.variable("x", "float32", (2,))
    a = pt.op("Sin", x, name="a")
    c = pt.op("Add", a, pt.op("Exp", a, name="b"), name="c")
    graph = pt.Graph([c], name="g")
    chosen = pt.PatternProperty(pt.ContainOpSelector({"Sin", "Add"}), "trig")
    scene = collect(pt.apply_pass(graph, "PartitionGraph", subgraph_property=chosen))
    assert [wall.text for wall in scene.walls if wall.rule == "cycle"] == [
        "one subgraph with 'trig_1' would close a cycle (the way: trig_0 → b → trig_1)"
    ]


def test_a_plan_and_a_placement_are_shown_as_what_they_lead_to() -> None:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    assert tree(collect(pt.plan(graph, subgraph_property=pt.PatternProperty(pt.Pattern("Conv", "Relu"), "pair"))))[1] == (
        "call pair_0: 2 ops @pair"
    )
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    placement["pool"] = "reference"
    scene = collect(placement)
    assert scene.owners[:2] == ("onnxruntime", "reference")
    assert [(r.what, r.text) for r in scene.refusals] == [("not on onnxruntime", "placed by hand")]
    assert [item.owner for item in scene.items if item.kind == "call"] == ["onnxruntime", "reference", "onnxruntime"]


def test_a_compiled_model_with_its_run() -> None:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    placement["pool"] = "reference"
    model = pt.compile(placement.apply(graph), "HETERO:onnxruntime,reference")
    profile = model.profile()
    scene = collect(model, profile)
    assert scene.subtitle == "compiled for onnxruntime, reference"
    assert [bar.name for bar in scene.bars if not bar.depth] == [item.name for item in scene.items if item.kind == "call"]
    assert all(scene.items[bar.item].us >= 0 for bar in scene.bars if bar.item >= 0)
    assert scene.total_us == profile.total_us and scene.run == "inputs made up"


def test_ops_that_share_a_kernel_lie_in_one_box() -> None:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    scene = collect(pt.compile(graph, "cpu"))
    kernels = [line.split(": ")[1] for line in tree(scene) if line.strip().startswith("kernel")]
    assert kernels == ["Conv+Relu @cpu", "Conv+Relu @cpu"], "also where another kernel moves what the first one computed"


def test_a_model_on_several_devices_is_shown_as_the_first_of_them_has_it() -> None:
    model = pt.compile(pt.apply_pass(small(), "InlineSubgraphs"), "MULTI:reference,onnxruntime")
    scene = collect(model)
    assert [item.name for item in scene.items if item.kind == "call"] == [unit.name for unit in model.models["reference"].units]


def test_an_imported_model_keeps_what_was_said_of_it(tmp_path: Path) -> None:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    placement["pool"] = "reference"
    pt.compile(placement.apply(graph), "HETERO:onnxruntime,reference").export(tmp_path / "m.partita")
    scene = collect(pt.import_model(tmp_path / "m.partita"))
    assert [r.what for r in scene.refusals] == ["not on onnxruntime"]


def test_bodies_of_control_flow_lie_inside_their_op() -> None:
    lines = tree(collect(_with_if()))
    assert sorted(line for line in lines if "body" in line) == ["  body else_branch: 1 op @", "  body then_branch: 1 op @"]


def _with_if() -> pt.Graph:
    import onnx
    from onnx import TensorProto, helper

    kind = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [kind(name, TensorProto.FLOAT, [2])])
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    body = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], name="choose", **branches)],
        "g",
        [kind("x", TensorProto.FLOAT, [2]), kind("c", TensorProto.BOOL, [])],
        [kind("y", TensorProto.FLOAT, [2])],
    )
    return pt.load(onnx.helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)]))


def test_long_graphs_begin_as_sections_that_close_no_cycle() -> None:
    scene = collect(long(2000))
    outermost = [item for item in scene.items if item.parent < 0]
    assert len(outermost) < 60
    assert all(item.kind in ("section", "output") for item in outermost)
    assert outermost[0].name.startswith("block0 … block")
    assert not any(item.is_open for item in scene.items if item.kind == "call")
    top = {i: i for i in range(len(scene.items))}
    for i, item in enumerate(scene.items):
        while item.parent >= 0:
            top[i], item = item.parent, scene.items[item.parent]
    order = {box: n for n, box in enumerate(i for i, item in enumerate(scene.items) if item.parent < 0)}
    between = {(order[top[scene.values[v].source]], order[top[reader]]) for v, reader in scene.edges}
    import networkx

    graph = networkx.DiGraph((u, v) for u, v in between if u != v)
    assert networkx.is_directed_acyclic_graph(graph)


def shown_at_first(scene: Scene) -> list[int]:
    def is_seen(box: int) -> bool:
        parent = scene.items[box].parent
        return parent < 0 or (scene.items[parent].is_open and is_seen(parent))

    return [i for i in range(len(scene.items)) if is_seen(i)]


def test_a_model_of_many_nodes_begins_with_its_subgraphs_closed() -> None:
    scene = collect(long(200))
    assert sum(item.kind == "op" for item in scene.items) == 200
    assert not any(item.is_open for item in scene.items)
    assert all(item.is_open for item in collect(long(30)).items if item.kind == "call")


def test_a_section_says_what_its_boxes_took() -> None:
    boxes = Boxes(long(2000), {})
    for i, item in enumerate(boxes.items):
        item.us = float(i) if item.kind == "call" else NOWHERE
    add_sections(boxes)
    sections = [i for i, item in enumerate(boxes.items) if item.kind == "section" and item.parent == NOWHERE]
    inside = {i: [item.us for item in boxes.items if item.parent == i and item.us >= 0] for i in sections}
    assert len(sections) > 5 and all(boxes.items[i].us == sum(inside[i]) > 0 for i in sections)


def test_one_subgraph_alone_is_open_because_closed_it_would_say_nothing() -> None:
    whole = pt.PatternProperty(pt.ContainOpSelector({"Relu", "Add", "MaxPool"}), "all")
    graph = pt.apply_pass(pt.apply_pass(long(200), "InlineSubgraphs"), "PartitionGraph", subgraph_property=whole)
    scene = collect(graph)
    assert [item.name for item in scene.items if item.is_open] == ["all_0"]
    assert len(shown_at_first(scene)) == 203


def test_the_same_graph_gives_the_same_page() -> None:
    assert page_text(small()) == page_text(small())


def test_too_large_a_graph_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.page.boxes.MOST_OPS", 3)
    with pytest.raises(pt.GraphError, match="the page can show 3 nodes at the outermost level, and the graph has 4") as caught:
        collect(small())
    assert "Partition it into larger subgraphs first" in str(caught.value)


def test_what_is_no_subject_is_refused(tmp_path: Path) -> None:
    with pytest.raises(pt.GraphError, match="a page shows a Graph, Plan, Placement or CompiledModel, not str"):
        pt.report_page("resnet.onnx", tmp_path / "r.html")  # type: ignore[arg-type]
    plan = pt.Plan.from_json(pt.plan(small(), subgraph_property=pt.PatternProperty(pt.Pattern("MaxPool"), "p")).to_json())
    with pytest.raises(pt.GraphError, match="the plan was read from a file, without its graph"):
        pt.report_page(plan, tmp_path / "r.html")


# -- the file ---------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Lists the elements, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.now: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.now = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self.now or ""] = self.texts.get(self.now or "", "") + data

    def handle_endtag(self, tag: str) -> None:
        self.now = None


def test_no_name_can_leave_its_place_in_the_file(tmp_path: Path) -> None:
    path = pt.report_page(small(hostile=True), tmp_path / "page.html")
    harmless, hostile = Elements(), Elements()
    harmless.feed(page_text(small()))
    text = path.read_text("utf-8")
    hostile.feed(text)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in harmless.found]
    data = hostile.texts["scene"]
    assert not set("<>&\u2028\u2029") & set(data)
    assert HOSTILE in json.loads(data)["texts"]
    assert "https:" not in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).replace("http://www.w3.org", "")


def test_the_policy_allows_this_program_and_these_styles_alone() -> None:
    page = Elements()
    page.feed(page_text(small()))
    policy = next(a["content"] for tag, a in page.found if tag == "meta" and "http-equiv" in a)
    assert policy is not None

    def digest(text: str) -> str:
        return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy.startswith("default-src 'none'; ")
    assert f"script-src '{digest(page.texts['program'])}'" in policy
    assert f"style-src '{digest(page.texts['style'])}'" in policy
    assert "unsafe" not in policy


def test_the_bundle_is_made_of_the_sources_that_lie_here() -> None:
    web = PAGE / "web"
    names = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    names += [f"src/{path.name}" for path in sorted((web / "src").iterdir())]
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\n".encode() + (web / name).read_bytes())
    assert (PAGE / "built" / "sources.sha256").read_text().strip() == digest.hexdigest(), "run `make page` and commit the result"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not there to build the page")
def test_building_it_again_gives_the_same_bundle(tmp_path: Path) -> None:
    shutil.copytree(PAGE / "web", tmp_path / "web", ignore=shutil.ignore_patterns("node_modules"))
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=tmp_path / "web", check=True)
    subprocess.run(["npm", "run", "--silent", "check"], cwd=tmp_path / "web", check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=tmp_path / "web", check=True)
    for path in sorted((PAGE / "built").iterdir()):
        assert (tmp_path / "built" / path.name).read_bytes() == path.read_bytes(), path.name


def test_licences_of_what_is_inside_are_kept() -> None:
    licences = (PAGE / "built" / "licences.txt").read_text("utf-8")
    assert "@dagrejs/dagre" in licences and "Permission is hereby granted" in licences
    assert "Permission is hereby granted" in page_text(small())


def test_types_are_found_where_nobody_inferred_them() -> None:
    x = pt.variable("x", "float32", (2, 3))
    graph = pt.Graph([pt.op("Exp", pt.op("Sin", x, name="a"), name="b")], name="g")
    result = pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.Pattern("Sin"), "sin"))
    scene = collect(result)
    assert [(t.source, t.target, t.nbytes, t.unknown) for t in scene.transfers] == [("sin", "outside", 24, 0)]
    assert len(scene.walls) == 1


def test_types_that_contradict_each_other_are_a_note() -> None:
    x, y = pt.variable("x", "float32", (2, 3)), pt.variable("y", "float32", (4, 5))
    scene = collect(pt.Graph([pt.op("Add", x, y, name="sum")], name="g"))
    assert len(scene.notes) == 1 and scene.notes[0].startswith("The types of the values are not known: ")


def test_names_that_no_text_file_can_hold_are_on_the_page(tmp_path: Path) -> None:
    """Half of a pair of UTF-16 is a character to Python, and to JSON as an escape."""
    x = pt.variable("x\udcff", "float32", (2,))
    graph = pt.Graph([pt.op("Exp", x, name="exp\ud800")], name="odd\ud800", output_names=["y\udfff"])
    path = pt.report_page(graph, tmp_path / "page.html")
    assert "<title>odd? · Partita</title>" in path.read_text("utf-8")
    assert read_page(path).to_json() == collect(graph).to_json()


def test_names_that_turn_the_direction_of_text_are_shown_as_escapes(tmp_path):
    x = pt.variable("x", "float32", (4,))
    graph = pt.Graph([pt.op("Relu", x, name="model\u202egnp.exe")], name="a\u2066b")
    pt.report_page(graph, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not set("\u202e\u2066") & set(text)
    assert r"<title>a\u{2066}b" in text and r"model\\u{202e}gnp.exe" in text
