"""Accelerators that do not keep their word: each mistake is one error that names the device, or sends its ops elsewhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import partita as pt
from partita.accelerators import Accelerator, CompiledSubgraph
from partita.accelerators.building.units import OutputCheck
from partita.accelerators.errors import DeviceMistake
from partita.accelerators.interface.registry import accelerator
from partita.graph.interpret import interpret
from partita.graph.types import TensorType
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


def returning(change):
    """A device's compiled form that changes what it has to return."""

    class Changed(CompiledSubgraph):
        def __init__(self, graph):
            self.graph = graph

        def run(self, inputs, out=None):
            return change(interpret(self.graph, inputs))

    return Changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda outputs: None, "it returned NoneType, not a list of outputs"),
        (lambda outputs: outputs[0], "it returned ndarray, not a list of outputs"),
        (lambda outputs: [], "it returned 0 values for 1 outputs"),
        (lambda outputs: [None], "it returned NoneType for output 'b', which is float32[4]"),
        (lambda outputs: [outputs[0].tolist()], "it returned list for output 'b', which is float32[4]"),
        (lambda outputs: [outputs[0].astype("f8")], "it returned float64 for output 'b', which is float32[4]"),
        (lambda outputs: [outputs[0].astype(">f4")], "it returned float32 in foreign byte order for output 'b'"),
        (lambda outputs: [outputs[0][:2]], "it returned sizes [2] for output 'b', which is float32[4]"),
        (lambda outputs: [outputs[0][None]], "it returned sizes [1, 4] for output 'b', which is float32[4]"),
    ],
)
def test_outputs_that_are_not_what_the_body_states(beta, change, message):
    with device("wrong", "Softmax", subgraph_type=returning(change)):
        m = pt.compile(alternating(), "HETERO:wrong,beta")
        with pytest.raises(pt.RunError) as caught:
            m(X)
    assert str(caught.value).startswith(f"subgraph 'wrong_1' on 'wrong': {message}")


@pytest.mark.parametrize(
    ("shape", "returned", "fits"),
    [
        ((2, 3), np.zeros((2, 3), "f"), True),
        ((2, 3), np.zeros((3, 2), "f"), False),
        ((2, 3), np.zeros((2, 3)), False),
        ((2, "n"), np.zeros((2, 9), "f"), True),
        ((2, "n"), np.zeros((3, 9), "f"), False),
        ((2, "n"), np.zeros((2, 9, 1), "f"), False),
        ((2, "n"), np.zeros(2, "f"), False),
        (None, np.zeros((4, 4, 4), "f"), True),
        (None, [0.0], False),
    ],
)
def test_outputs_that_fit_their_declared_sizes(shape, returned, fits):
    body = pt.Graph([pt.op("Relu", pt.variable("x", "float32", shape))])
    (relu,) = [node for node in body.nodes if node.is_op]
    typed = relu.evolve(output_types=(TensorType("float32", shape),))
    check = OutputCheck(pt.Graph([typed], [relu.inputs[0].node]))
    assert check.fits([returned]) is check.fits((returned,)) is fits
    assert not check.fits(returned) and not check.fits([]) and not check.fits([returned, returned])


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: tuple(outputs),
        lambda outputs: [outputs[0][::-1].copy()[::-1]],
        lambda outputs: [outputs[0].view(np.recarray)],
    ],
)
def test_outputs_in_another_guise(beta, change):
    with device("odd", "Softmax", subgraph_type=returning(change)):
        result = pt.compile(alternating(), "HETERO:odd,beta")(X)[0]
    np.testing.assert_array_equal(result, interpret(alternating(), [X])[0])
    assert type(result) is np.ndarray


def test_numpy_scalars_are_arrays_without_dimensions():
    x = pt.variable("x", "float32", ())
    g = pt.Graph([pt.op("Exp", x, name="y")])
    with device("odd", subgraph_type=returning(lambda outputs: [outputs[0][()]])):
        result = pt.compile(g, "odd")(np.float32(0))[0]
    assert type(result) is np.ndarray and result.shape == () and result == 1


def test_a_size_that_the_model_states_wrongly_is_an_error_that_blames_the_model(beta):
    import onnx

    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (int64[1,9] y) { y = NonZero(x) }'
    m = pt.compile(pt.load(onnx.parser.parse_model(text)), "beta", strict=True)
    for _ in range(2):
        with pytest.raises(pt.RunError) as caught:
            m(X)
        said = "subgraph 'beta_0' on 'beta': the value 'y' is declared int64[1, 9], but these inputs give sizes [1, 4]"
        assert str(caught.value).startswith(said)


LONGER = """<ir_version: 8, opset_import: ["" : 18]> g (float[n] x) => (float[n] y, float[n] z) <float[2] c = {1.0, 2.0}>
{ y = Relu(x) z = Concat<axis=0>(x, c) }"""


@pytest.mark.parametrize("device", ["reference", "onnxruntime", "openvino", "cpu", "HETERO:cpu,reference"])
def test_a_size_that_the_model_states_by_a_symbol_is_a_claim_on_every_device(device):
    import onnx

    for name, package in {"cpu": "tvm", "onnxruntime": "onnxruntime", "openvino": "openvino"}.items():
        if name in device:
            pytest.importorskip(package)
    model = pt.compile(pt.load(onnx.parser.parse_model(LONGER)), device, strict=True)
    said = r"the value 'z' is declared float32\[(n|5)\], but (these inputs give sizes |float32)\[7\]"
    for call in (model, lambda x: model.start(x).result()):
        with pytest.raises(pt.RunError, match=said):
            call(np.ones(5, np.float32))


def test_a_size_that_the_model_states_by_a_symbol_is_named_with_the_input_that_has_it(beta):
    import onnx

    model = pt.compile(pt.load(onnx.parser.parse_model(LONGER.replace("float[n] y", "float[m] y"))), "beta", strict=True)
    with pytest.raises(pt.RunError) as caught:
        model(X)
    assert str(caught.value) == (
        "model 'g': the value 'z' is declared float32[n], but these inputs give sizes [6]: 'n' is 4 in input 'x'\n"
        "  Correct the declared type, or leave it out of the model."
    )
    right = pt.compile(pt.load(onnx.parser.parse_model(LONGER.replace("float[n] z", "float[m] z"))), "beta")
    assert [y.shape for y in right(X)] == [(4,), (6,)]


LOOP = """<ir_version: 8, opset_import: ["" : 18]> g (float[N,3] x, int64 m) => (float[N,3] y, float[K,N,3] z) {
y, z = Loop<body = b (int64 i, bool go, float[M,3] s) => (bool on, float[M,3] t, float[M,3] u)
{ on = Identity(go) t = Relu(s) u = Neg(s) }>(m, , x) }"""
SCAN = """<ir_version: 8, opset_import: ["" : 18]> g (float[N] x, float[K,N] r) => (float[N] y, float[K,N] z) {
y, z = Scan<num_scan_inputs = 1, body = b (float[M] s, float[M] a) => (float[M] t, float[M] u)
{ t = Relu(s) u = Neg(a) }>(x, r) }"""


@pytest.mark.parametrize("device", ["reference", "HETERO:onnxruntime,reference"])
def test_a_loop_without_turns_gives_empty_values(device):
    import onnx

    if "onnxruntime" in device:
        pytest.importorskip("onnxruntime")
    loop = pt.compile(pt.load(onnx.parser.parse_model(LOOP)), device)
    x = np.ones((2, 3), np.float32)
    empty = (0, 2, 3) if device == "reference" else (0, 0, 3)  # onnxruntime takes M for 0.
    assert [loop(x, np.array(turns))["z"].shape for turns in (0, -1, 2)] == [empty, empty, (2, 2, 3)]


def test_a_scan_of_nothing_gives_empty_values():
    import onnx

    scan = pt.compile(pt.load(onnx.parser.parse_model(SCAN)), "reference")
    assert [scan(np.ones(3, np.float32), np.ones((rows, 3), np.float32))["z"].shape for rows in (0, 2)] == [(0, 3), (2, 3)]


# -- questions and configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [False, np.False_])
def test_an_answer_without_a_reason(beta, answer):
    with device("silent", supports=lambda self, node, graph: answer):
        placement = pt.query(alternating(), "HETERO:silent,beta")
        assert placement.why("a") == "a (Relu) is on beta\n  not on silent: it does not say why"


def test_numpys_true_is_true_and_bodies_are_asked_all_the_same():
    from partita.accelerators.interface.query import FUSED, worse, yes_or_why_not

    said = yes_or_why_not(np.True_, "supports of device 'odd'", "a")
    assert said is True and worse(said, "no") == "no" and FUSED


@pytest.mark.parametrize("answer", [None, 0, 1, b"x", [], ""])
@pytest.mark.parametrize("hook", ["supports", "query"])
def test_an_answer_that_is_neither_true_nor_a_reason_sends_nothing_elsewhere(beta, hook, answer):
    given = {"supports": lambda self, node, graph: answer, "query": lambda self, graph: {"a": answer}}[hook]
    with device("odd", **{hook: given}):
        for ask in (lambda: pt.query(alternating(), "HETERO:odd,beta"), lambda: accelerator("odd").query(alternating())):
            with pytest.raises(pt.DeviceMistake) as caught:
                ask()
            said = f"{hook} of device 'odd': it answers {answer!r} about 'a', not True or the reason why not"
            assert said in str(caught.value) and "Fix the device's own code" in str(caught.value)


@pytest.mark.parametrize("key", ["nope", 1, None, "the node itself"])
def test_an_answer_about_what_is_no_node_sends_nothing_elsewhere(beta, key):
    def query(self, graph):
        return {graph.nodes[-1] if key == "the node itself" else key: True}

    said = "query of device 'odd': it answers about .*, which is not the name of a node"
    with device("odd", query=query), pytest.raises(pt.DeviceMistake, match=said):
        pt.query(alternating(), "HETERO:odd,beta")


def steps_that_raise(self, graph):
    yield graph
    raise KeyError("weights")


QUESTIONS = {
    "supports": lambda self, node, graph: missing(self), "query": lambda self, graph: missing(self), "stages": steps_that_raise,
    "stages at once": lambda self, graph: missing(self), "stages lazily": lambda self, graph: map(missing, [graph]),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_mistake_in_what_a_device_is_asked_names_the_hook(beta, case):
    hook = case.partition(" ")[0]
    with device("odd", **{hook: QUESTIONS[case]}):
        for ask in (lambda: pt.compile(alternating(), "HETERO:odd,beta"), lambda: accelerator("odd").query(alternating())):
            with pytest.raises(pt.DeviceMistake) as caught:
                ask()
            assert f"{hook} of device 'odd': it raised KeyError: 'weights'" in str(caught.value)


@pytest.mark.parametrize(("steps", "said"), [
    (None, "it returned NoneType, not Iterable"), ([5], "it gave 5, not a Graph"), (iter([None]), "it gave None, not a Graph"),
])
def test_steps_that_are_no_graphs(beta, steps, said):
    odd = device("odd", stages=lambda self, graph: steps)
    with odd, pytest.raises(pt.DeviceMistake, match=f"stages of device 'odd': {said}"):
        pt.query(alternating(), "HETERO:odd,beta")


def unavailable(self):
    raise pt.AcceleratorUnavailable("no card")


@pytest.mark.parametrize("constructor", [lambda self: missing(self), lambda self: None, unavailable])
def test_a_device_whose_constructor_is_wrong_is_not_passed_over_in_silence(beta, constructor):
    from tests.accelerators.hetero.small_devices import Small

    pt.register_accelerator(type("Odd", (Small,), {"name": "odd", "__init__": constructor}))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pt.query(alternating(), "HETERO:odd,beta")
        with pytest.raises(pt.AcceleratorUnavailable) as alone:
            pt.query(alternating(), "odd")
    finally:
        pt.unregister_accelerator("odd")
    silent = constructor is unavailable
    assert [str(warning.message) for warning in caught] == ([] if silent else [f"odd is skipped: {alone.value}"])


def raising(self):
    raise ValueError("boo")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"subgraph_property": lambda self: None}, "subgraph_property of device 'odd': it returned None, not a SubgraphProperty"),
        ({"subgraph_property": raising}, "subgraph_property of device 'odd': it raised ValueError: boo"),
        ({"transform": lambda self, graph: raising(self)}, "transform of device 'odd': it raised ValueError: boo"),
        ({"__init__": lambda self: None}, "device 'odd' of registered: its constructor does not call super().__init__()"),
    ],
)
def test_errors_name_the_device(members, message):
    from partita.accelerators import register_accelerator, unregister_accelerator
    from tests.accelerators.hetero.small_devices import Small

    register_accelerator(type("Odd", (Small,), {"name": "odd", **members}))
    try:
        with pytest.raises(pt.AcceleratorError) as caught:
            pt.compile(alternating(), "odd")
    finally:
        unregister_accelerator("odd")
    assert message in str(caught.value)


def complaining(self, *args):
    raise pt.PartitaError("boo", where="table 3", remedy="Ask somebody else")


HOOKS = ["import_", "export", "export_weights", "transform", "identity", "profile_rows", "metrics", "misfit"]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", [raising, complaining])
def test_errors_of_hooks_name_device_and_hook(hook, kind, tmp_path):
    from partita.accelerators.interface.query import query_through_transform

    class Compiled(CompiledSubgraph):
        def run(self, inputs, out=None):
            return [np.abs(inputs[0])]

        def export(self):
            return b"abs"

    def broken(self, *args):
        return kind(self)

    of_subgraph = hook in ("export", "export_weights", "profile_rows")
    compiled = type("Odd", (Compiled,), {hook: broken}) if of_subgraph else Compiled
    members = {"config_keys": {}, "compile": lambda self, graph, config: compiled(), "import_": lambda *args: compiled()}
    x = pt.variable("x", "float32", (4,))
    g = pt.Graph([pt.op("Abs", x, name="y")], name="g")
    broken_device = device("odd", "Abs", **{**members, **({} if of_subgraph else {hook: broken})})
    with broken_device, pytest.raises(pt.PartitaError) as caught:
        query_through_transform(accelerator("odd"), g)
        accelerator("odd").get_metric("AVAILABLE_DEVICES")
        model = pt.compile(g, "odd", {"PERF_COUNT": True})
        model.profile(X)
        model.export(tmp_path / "g.partita")
        pt.import_model(tmp_path / "g.partita")
    text = str(caught.value)
    assert f"{hook} of " in text and "'odd'" in text and "boo" in text
    if kind is complaining:
        assert "table 3" in text


def missing(self, *args):
    return {}["weights"]


@pytest.mark.parametrize("wrong", [missing, lambda self, *args: 5])
@pytest.mark.parametrize("hook", ["transform", "meaning", "identity", "why_no_export", "import_", "export", "export_weights"])
def test_a_mistake_in_a_hook_sends_nothing_elsewhere(hook, wrong, beta, tmp_path):
    """The first compilation calls all of these, since the device keeps what it compiles in the cache."""

    class Compiled(CompiledSubgraph):
        def run(self, inputs, out=None):
            return [np.abs(inputs[0])]

        def export(self):
            return b"abs"

    of_subgraph = hook.startswith("export")
    compiled = type("Odd", (Compiled,), {hook: wrong, "__module__": __name__}) if of_subgraph else Compiled
    members = {
        "config_keys": {}, "may_cache": lambda self, graph: True, "query": lambda self, graph: {"y": True},
        "import_": lambda *args: compiled(), "compile": lambda self, graph, config: compiled(),
    }
    g = pt.Graph([pt.op("Abs", pt.variable("x", "float32", (4,)), name="y")], name="g")
    with device("odd", "Abs", **{**members, **({} if of_subgraph else {hook: wrong})}), pytest.raises(pt.DeviceMistake) as caught:
        pt.compile(g, "HETERO:odd,beta", {"odd": {"CACHE_DIR": str(tmp_path / "cache")}})
    assert f"{hook} of " in str(caught.value) and "Fix the device's own code" in str(caught.value)
    assert "it raised KeyError: 'weights'" in str(caught.value) or "it returned int, not " in str(caught.value)


@pytest.mark.parametrize(("hook", "wrong"), [
    ("kernels", missing), ("kernels", lambda self: None), ("kernels", lambda self: [3]), ("export_weights", lambda self: [3]),
    ("measured", missing), ("let_go", missing), ("metrics", lambda self: {1: 1}),
])
def test_mistakes_behind_a_compiled_model_name_device_and_hook(hook, wrong, tmp_path):
    class Compiled(CompiledSubgraph):
        def run(self, inputs, out=None):
            return [np.abs(inputs[0])]

        def export(self):
            return b"abs"

    of_device = hook == "metrics"
    compiled = Compiled if of_device else type("Odd", (Compiled,), {hook: wrong, "__module__": __name__})
    members = {"import_": lambda *args: compiled(), "compile": lambda self, graph, config: compiled()}
    g = pt.Graph([pt.op("Abs", pt.variable("x", "float32", (4,)), name="y")], name="g")
    with device("odd", "Abs", **members, **({hook: wrong} if of_device else {})):
        model = pt.compile(g, "odd")
        acts = {
            "kernels": lambda: pt.report_page(model, tmp_path / "page.html"), "measured": lambda: model.profile(X),
            "let_go": model.close, "metrics": lambda: accelerator("odd").get_metric("FULL_DEVICE_NAME"),
        }
        with pytest.raises(pt.AcceleratorError) as caught:
            acts.get(hook, lambda: model.export(tmp_path / "g.partita"))()
    assert hook in str(caught.value) and "'odd'" in str(caught.value) and "Fix the device's own code" in str(caught.value)


@pytest.mark.parametrize("rows", [["text"], [{"node": "y"}], "text", 5])
def test_rows_of_a_profile_are_rows(rows):
    class Compiled(CompiledSubgraph):
        def run(self, inputs, out=None):
            return [np.abs(inputs[0])]

        def profile_rows(self):
            return rows

    g = pt.Graph([pt.op("Abs", pt.variable("x", "float32", (4,)), name="y")], name="g")
    with device("odd", "Abs", compile=lambda self, graph, config: Compiled()):
        model = pt.compile(g, "odd", {"PERF_COUNT": True})
        with pytest.raises(pt.PartitaError, match="subgraph 'odd_0' on 'odd'.*profile_rows"):
            model.profile(X)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"identity": lambda *_: {"driver": np.int64(3)}}, "identity of device 'odd': it returned .*3.* for 'driver', not str"),
        ({"identity": lambda *_: {3: "driver"}}, "identity of device 'odd': it returned 3 in a dict of str"),
        ({"meaning": lambda *_: {3: ""}, "may_cache": lambda *_: True}, "meaning of device 'odd': it returned 3 in a dict"),
        ({"may_cache": lambda *_: np.zeros(2)}, "may_cache of device 'odd': it returned ndarray, not bool"),
    ],
)
def test_hooks_of_the_cache_return_what_can_be_written(members, message, tmp_path):
    with device("odd", findings=lambda self: {}, **members), pytest.raises(DeviceMistake, match=message):
        pt.compile(alternating(), "odd", {"CACHE_DIR": str(tmp_path)})


def leaving(*_, **__):
    raise SystemExit(3)


@pytest.mark.parametrize("hook", ["supports", "query", "stages", "transform"])
def test_a_hook_that_ends_the_program_is_an_error(hook):
    message = f"{hook} of device 'odd': it raised SystemExit: 3"
    with device("odd", **{hook: leaving}), pytest.raises(pt.AcceleratorError, match=message):
        pt.query(alternating(), "HETERO:odd,reference")


class Wordless(Exception):
    """An error, or a value, that cannot be written."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


def wordless(*_, **__):
    raise Wordless


def test_errors_and_values_without_words_are_told_all_the_same():
    class Rows(returning(list)):
        def profile_rows(self):
            return [Wordless()]

    unread = "Wordless: (its message cannot be read: RuntimeError)"
    with device("odd", compile=wordless), pytest.raises(pt.PartitaError) as caught:
        pt.compile(alternating(), "odd")
    assert unread in str(caught.value)
    with device("odd", subgraph_type=returning(wordless)), pytest.raises(pt.RunError) as caught:
        pt.compile(alternating(), "odd")(X)
    assert caught.value.cause == unread
    with device("odd", supports=lambda *_: Wordless()), pytest.raises(DeviceMistake, match="a Wordless that cannot be written"):
        pt.query(alternating(), "HETERO:odd,reference")
    with device("odd", subgraph_type=Rows), pytest.raises(DeviceMistake, match="a Wordless that cannot be written"):
        pt.compile(alternating(), "odd", {"PERF_COUNT": True}).profile(X)


def test_compile_completes_a_partial_configuration():
    seen = []

    def kept(self, graph, config):
        seen.append(dict(config))
        return returning(list)(graph)

    with device("odd", config_keys={"SPEED": 3}, compile=kept):
        accelerator("odd").compile(alternating(), {"KEY_SPEED": 4})
        accelerator("odd").compile(alternating(), {})
        with pytest.raises(pt.UnknownKey, match="'SPEEED'"):
            accelerator("odd").compile(alternating(), {"SPEEED": 4})
    assert [(one["SPEED"], one["PERF_COUNT"]) for one in seen] == [(4, False), (3, False)]


def test_metrics_that_raise_are_listed_and_break_nothing():
    with device("odd", metrics=raising):
        listed = {info.name: info for info in pt.devices()}
        assert not listed["odd"].usable and listed["odd"].detail == "metrics of device 'odd': it raised ValueError: boo"
        assert listed["reference"].usable
        assert pt.compile(alternating(), "odd")(X) is not None
        with pytest.raises(pt.AcceleratorError, match="metrics of device 'odd': it raised ValueError: boo"):
            pt.compile(alternating(), "odd", {"PRECISION": "f16"})


def test_a_wrong_configuration_value_is_no_reason_to_go_elsewhere():
    pytest.importorskip("onnxruntime")
    wrong = {"NUM_THREADS": "two", "PROVIDER": "NoSuchProvider", "PROVIDER_OPTIONS": 5, "ALLOW_SPINNING": []}
    for key, value in wrong.items():
        with pytest.raises(pt.BadConfig, match=f"device 'onnxruntime': {key} cannot be"):
            pt.compile(alternating(), "HETERO:onnxruntime,reference", {"onnxruntime": {key: value}})


@pytest.mark.parametrize("cls", [5, object])
def test_only_classes_are_registered(cls):
    with pytest.raises(pt.AcceleratorError, match="is not a class derived from Accelerator"):
        pt.register_accelerator(cls)


@pytest.mark.parametrize("name", ["HETERO", "hetero", "a.b", "a:b", "", 5, None])
def test_names_that_no_device_can_have(name):
    with pytest.raises(pt.AcceleratorError, match="an accelerator's name is letters, digits"):
        pt.register_accelerator(type("Odd", (Accelerator,), {"name": name}))


def test_keys_that_are_no_strings():
    for ask in (accelerator("reference").get_config, accelerator("reference").get_metric):
        with pytest.raises(pt.UnknownKey, match="device 'reference' has no .* 5"):
            ask(5)
