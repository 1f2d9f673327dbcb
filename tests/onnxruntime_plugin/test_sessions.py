"""Sessions of onnxruntime with a provider of Partita's: what it takes, what it computes, and what it says."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

import partita as pt  # noqa: E402
from partita.onnxruntime_plugin import provider as provider_module  # noqa: E402
from tests.onnxruntime_plugin.models import CPU, assigned, chain, devices_of, model, provider, session  # noqa: E402
from tests.onnxruntime_plugin.node_tests import array_of, ort_value  # noqa: E402

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)


def plain(content: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(content, providers=[CPU]).run(None, feeds)


def test_a_session_by_name_runs_on_the_device() -> None:
    content = chain("Abs", "Sqrt", "Exp")
    with provider("HETERO:cpu,reference", "Named") as name:
        assert name == "NamedExecutionProvider"
        running = session(content, name)
        assert running.get_providers() == [name, CPU]
        assert assigned(running, name) == [["Abs", "Sqrt", "Exp"]]
        if name in onnxruntime.get_available_providers():  # since 1.25 or so
            running = onnxruntime.InferenceSession(content, providers=[name, CPU], enable_fallback=0)
            assert running.get_providers() == [name, CPU]
        np.testing.assert_allclose(running.run(None, {"x": X})[0], np.exp(np.sqrt(np.abs(X))), rtol=1e-6)
        del running


def test_devices_and_policies_find_it() -> None:
    with provider() as name:
        (device,) = devices_of(name)
        assert device.ep_vendor == "Partita" and device.ep_metadata["devices"] == "reference"
        settings = onnxruntime.SessionOptions()
        settings.add_provider_for_devices([device], {"devices": "reference"})
        running = onnxruntime.InferenceSession(chain("Abs"), settings)
        assert running.get_providers()[0] == name
        assert running.run(None, {"x": X})[0].tolist() == np.abs(X).tolist()
        settings = onnxruntime.SessionOptions()
        settings.set_provider_selection_policy_delegate(lambda devices, *rest: [one for one in devices if one.ep_name == name])
        running = onnxruntime.InferenceSession(chain("Abs"), settings)
        assert running.get_providers()[0] == name
        del running


class WithoutRelu(pt.Accelerator):
    """Runs everything but Relu, by the reference's numerics."""

    name = "without_relu"

    def supports(self, node, graph):
        return node.op != "Relu" or "it has no Relu"

    def compile(self, graph, config):
        return pt.accelerator("reference").compile(graph, {})


@pytest.fixture
def without_relu():
    pt.register_accelerator(WithoutRelu)
    yield "without_relu"
    pt.unregister_accelerator("without_relu")


def test_only_what_the_devices_run_is_taken(without_relu: str) -> None:
    content = chain("Abs", "Relu", "Exp", "Neg")
    with provider(without_relu) as name:
        running = session(content, name)
        assert sorted(assigned(running, name)) == [["Abs"], ["Exp", "Neg"]]
        np.testing.assert_allclose(running.run(None, {"x": X})[0], -np.exp(np.abs(X)), rtol=1e-6)
        del running


def test_groups_are_convex_and_without_cycles(without_relu: str) -> None:
    """Abs feeds Relu and Add, Relu feeds Add: Abs and Add cannot share a subgraph."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Add", ["a", "r"], ["y"]),
    ]
    with provider(without_relu) as name:
        running = session(model(nodes, {"x": ["n", 8]}, ["y"]), name)
        assert sorted(assigned(running, name)) == [["Abs"], ["Add"]]
        assert np.array_equal(running.run(None, {"x": X})[0], 2 * np.abs(X))
        del running


def test_several_outputs_scalars_empty_arrays_and_sizes_that_depend_on_data() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]), helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Neg", ["x"], ["neg"]),
    ]
    content = model(nodes, {"x": ["n", 8]}, ["found", "sum", "neg"])
    with provider() as name:
        running = session(content, name)
        for x in (X, np.zeros((0, 8), np.float32), np.zeros((2, 8), np.float32)):
            found, total, neg = running.run(None, {"x": x})
            assert np.array_equal(found, np.nonzero(x)) and np.array_equal(neg, -x)
            assert total.shape == () and total == pytest.approx(x.sum(), abs=1e-5)
        del running


TYPES = [
    "float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
    "float8_e4m3fn", "float8_e5m2", "int4", "uint4",
]


@pytest.mark.parametrize("dtype", TYPES)
def test_element_types(dtype: str) -> None:
    from partita.graph.types import ELEMENT_TYPES, numpy_dtype

    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(numpy_dtype(dtype))
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Transpose", ["c"], ["y"]),
             helper.make_node("Identity", ["t"], ["z"])]
    content = model(nodes, {"x": [2, 3]}, ["y", "z"], {"c": x}, dtype=ELEMENT_TYPES[dtype].number)
    with provider() as name:
        running = session(content, name)
        assert len(assigned(running, name)) >= 1
        y, z = [array_of(value) for value in running.run_with_ort_values(None, {"x": ort_value(x)})]
        assert y.dtype == z.dtype == x.dtype
        assert y.astype("float32").tolist() == z.astype("float32").tolist() == x.T.astype("float32").tolist()
        del running


def test_strings_and_sequences_stay_with_onnxruntime(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), helper.make_node("ConcatFromSequence", ["s"], ["c"], axis=0),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    with caplog.at_level("DEBUG", "partita.onnxruntime"), provider() as name:
        running = session(model(nodes, {"x": ["n", 8]}, ["y"]), name)
        assert assigned(running, name) == [["Neg"]]
        assert np.array_equal(running.run(None, {"x": X})[0], -np.concatenate([X, X]))
        del running
    assert "'s' is not a tensor" in caplog.text


def branch(op: str, name: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x"], [name], name=f"{name}_{op}")], name, [], [out])


def test_bodies_that_capture_values_run_in_parts() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Cast", ["sum"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Neg", "a"), else_branch=branch("Abs", "b")),
    ]
    with provider() as name:
        running = session(model(nodes, {"x": ["n", 8]}, ["y"]), name)
        assert sorted(map(sorted, assigned(running, name))) == [["Abs"], ["Cast", "ReduceSum"], ["Neg"]]
        assert np.array_equal(running.run(None, {"x": X + 1})[0], -X - 1)
        zeros = np.zeros_like(X)
        assert np.array_equal(running.run(None, {"x": zeros})[0], zeros)
        del running


def test_a_loop_without_captures_is_taken_whole() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Mul", ["v", "two"], ["w"]), helper.make_node("Identity", ["c_in"], ["c_out"])], "body",
        [value("i", TensorProto.INT64, []), value("c_in", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, None)],
        [value("c_out", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, None)],
    )
    constants = {"times": np.array(3), "two": np.array(2, np.float32)}
    content = model([helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)], {"x": ["n", 8]}, ["y"], constants)
    with provider() as name:
        running = session(content, name)
        assert assigned(running, name) == [["Loop"]]
        assert np.array_equal(running.run(None, {"x": X})[0], 8 * X)
        del running


def test_functions_of_the_model_are_inlined_and_taken() -> None:
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    proto = onnx.ModelProto.FromString(model([helper.make_node("Twice", ["x"], ["y"], domain="mine")], {"x": ["n", 8]}, ["y"]))
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with provider() as name:
        running = session(proto.SerializeToString(), name)
        assert assigned(running, name) == [["Add"]]
        assert np.array_equal(running.run(None, {"x": X})[0], 2 * X)
        del running


def test_inputs_with_a_default_are_inputs() -> None:
    add = helper.make_node("Add", ["x", "d"], ["y"])
    proto = onnx.ModelProto.FromString(model([add], {"x": [2]}, ["y"], {"d": np.ones(2, np.float32)}))
    proto.graph.input.append(helper.make_tensor_value_info("d", TensorProto.FLOAT, [2]))
    with provider() as name:
        running = session(proto.SerializeToString(), name)
        x = np.zeros(2, np.float32)
        assert running.run(None, {"x": x})[0].tolist() == [1, 1]
        assert running.run(None, {"x": x, "d": np.full(2, 5, np.float32)})[0].tolist() == [5, 5]
        del running


def test_bound_outputs() -> None:
    with provider() as name:
        running = session(chain("Neg"), name)
        binding, out = running.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((3, 8), np.float32))
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_output("y", out)
        running.run_with_iobinding(binding)
        assert np.array_equal(out.numpy(), -X)
        del running, binding


def test_session_options_choose_devices_and_configuration(without_relu: str) -> None:
    with provider() as name:
        running = session(chain("Relu", "Neg"), name, {"devices": f"HETERO:{without_relu}"})
        assert assigned(running, name) == [["Neg"]]
        running = session(chain("Relu"), name, {"devices": "HETERO:cpu,reference", "cpu.NUM_THREADS": "1"})
        assert running.run(None, {"x": X})[0].min() == 0
        for given, message in (
            ({"devices": "nowhere"}, "nowhere"), ({"cpu.NUM_THREAD": "1", "devices": "HETERO:cpu,reference"}, "NUM_THREADS"),
            ({"threads": "1"}, "there is no option 'threads'"), ({"config": "{"}, "config is not JSON"),
            ({"config": "[]"}, "config is not a dictionary"), ({"recompile": "yes"}, 'give "0" or "1"'),
        ):
            with pytest.raises(Exception, match=message):
                session(chain("Relu"), name, given)
        del running


# -- errors --------------------------------------------------------------------------------------------------


def failing(where: str, error: type[BaseException]) -> type[pt.Accelerator]:
    """A device that fails in a hook."""

    class Failing(pt.Accelerator):
        name = "failing"

        def supports(self, node, graph):
            if where == "supports":
                raise error("thirteen")
            return True

        def compile(self, graph, config):
            if where == "compile":
                raise error("thirteen")

            class Subgraph(pt.CompiledSubgraph):
                def run(self, inputs, out=None):
                    raise error("thirteen")

            return Subgraph()

    return Failing


@pytest.mark.parametrize("error", [ValueError, MemoryError, SystemExit])
def test_an_error_in_a_run_is_onnxruntimes_error(error: type[BaseException]) -> None:
    pt.register_accelerator(failing("run", error))
    try:
        with provider("failing") as name:
            running = session(chain("Relu"), name)
            with pytest.raises(Exception, match="thirteen"):
                running.run(None, {"x": X})
            del running
    finally:
        pt.unregister_accelerator("failing")


def test_an_error_in_compile_is_the_sessions_error() -> None:
    pt.register_accelerator(failing("compile", ValueError))
    try:
        with provider("failing") as name, pytest.raises(Exception, match="thirteen"):
            session(chain("Relu"), name)
    finally:
        pt.unregister_accelerator("failing")


def test_a_device_that_cannot_be_asked_takes_nothing() -> None:
    pt.register_accelerator(failing("supports", ValueError))
    try:
        with provider("failing") as name:
            running = session(chain("Relu"), name)
            assert assigned(running, name) == []
            assert running.run(None, {"x": X})[0].min() == 0
            del running
    finally:
        pt.unregister_accelerator("failing")


def test_an_interrupt_reaches_the_program() -> None:
    pt.register_accelerator(failing("run", KeyboardInterrupt))
    try:
        with provider("failing") as name:
            running = session(chain("Relu"), name)
            with pytest.raises(KeyboardInterrupt):
                for _ in range(1000):
                    try:
                        running.run(None, {"x": X})
                    except Exception:  # noqa: BLE001  the first is onnxruntime's error, then comes the interrupt
                        pass
            del running
    finally:
        pt.unregister_accelerator("failing")


# -- life ----------------------------------------------------------------------------------------------------


def test_sessions_release_all_that_they_hold() -> None:
    weights = np.ones((64, 64), np.float32)
    content = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 64]}, ["y"], {"w": weights})
    with provider() as name:
        gc.collect()  # sessions of other tests
        others, before = [*provider_module._objects.values()], len(provider_module._objects)
        running = session(content, name)
        made = [one for one in provider_module._objects.values() if all(one is not other for other in others)]
        (compute,) = [one for one in made if isinstance(one, provider_module.Compute)]
        del others, made
        model_of_it = weakref.ref(compute.model)
        assert len(provider_module._objects) == before + 2
        del running, compute
        gc.collect()
        assert len(provider_module._objects) == before and model_of_it() is None
    assert not [one for one in provider_module._objects.values() if isinstance(one, provider_module.Provider)]


def test_graphs_that_are_only_looked_at_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their large constants are views of memory that onnxruntime frees."""
    seen = []
    choose = provider_module.Provider._chosen

    def noting(self, read):
        seen.extend(weakref.ref(node.value) for node in read.graph.nodes if node.value is not None)
        return choose(self, read)

    monkeypatch.setattr(provider_module.Provider, "_chosen", noting)
    weights = np.ones((64, 64), np.float32)
    content = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 64]}, ["y"], {"w": weights})
    with provider("HETERO:cpu,reference") as name:
        running = session(content, name)
        gc.collect()
        assert seen and all(one() is None for one in seen)
        del running


def test_registering_twice_is_an_error_and_unregistering_makes_room() -> None:
    with provider() as name, pytest.raises(pt.PartitaError, match=f"onnxruntime has a {name} already"):
        pt.register_with_onnxruntime("Tested", "reference")
    with provider() as name:
        assert devices_of(name)
    assert not devices_of(name)


def test_equal_arguments_give_one_library() -> None:
    first = pt.ort_plugin("reference", name="Same")
    assert pt.ort_plugin("reference", name="Same") == first != pt.ort_plugin("HETERO:cpu,reference", name="Same")
    for registration in ("one", "two"):
        onnxruntime.register_execution_provider_library(registration, first)
        onnxruntime.unregister_execution_provider_library(registration)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"devices": "nowhere"}, "nowhere"), ({"name": "a b"}, "not a name for a provider"),
    ({"devices": "cpu", "config": {"NUM_THREAD": 1}}, "NUM_THREADS"),
])
def test_mistakes_of_the_caller(arguments: dict, message: str) -> None:
    with pytest.raises(pt.PartitaError, match=message):
        pt.ort_plugin(**arguments)


def test_an_old_onnxruntime_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    with pytest.raises(pt.PartitaError, match=r"onnxruntime 1\.23\.2 takes no provider.*\n.*1\.24 or newer"):
        pt.ort_plugin("reference")


def test_threads_share_a_session() -> None:
    wrong = []
    with provider("HETERO:cpu,reference") as name:
        running = session(chain("Abs", "Sqrt", "Neg"), name)

        def work(number: int, running=running) -> None:
            x = np.full((number % 5 + 1, 8), number, np.float32)
            for _ in range(20):
                if not np.allclose(running.run(None, {"x": x})[0], -np.sqrt(x)):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del running
    assert not wrong


def test_a_property_and_its_function_are_registered_once() -> None:
    squares = pt.PatternProperty(pt.ContainOpSelector({"Mul"}), name="squares")

    def square(subgraph: pt.Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[0] ** 2]

    path = pt.ort_plugin(squares, compute=square, name="Once")
    try:
        assert pt.ort_plugin(squares, compute=square, name="Once") == path
        with pytest.raises(pt.PartitaError, match="there is a device 'once' already\n  Give another name"):
            pt.ort_plugin(squares, compute=lambda subgraph, inputs: inputs, name="Once")
        for _ in range(2):
            name = pt.register_with_onnxruntime("Once", squares, compute=square)
            onnxruntime.unregister_execution_provider_library(name)
    finally:
        pt.unregister_accelerator("once")


def test_other_systems_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(pt.PartitaError, match="providers are written for Linux, and this is darwin"):
        pt.ort_plugin()
