"""The device `cpu`: second level, kernels, zero copies, constants, custom ops, errors."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import BadConfig, CompileError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.code.codegen import ALIGNMENT
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, as_tensor
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.processor import KNOWN_FEATURES, UNSTATED
from partita.accelerators.tvm.query import isolated_trials
from tests.accelerators.tvm.running import check, compiled, error, normals, schedules

pytest.importorskip("tvm")

RNG = np.random.default_rng(3)
normal = normals(RNG)


def block(x: pt.Node, channels: int = 8) -> pt.Node:
    """A residual block."""
    weights = [pt.constant(normal(channels, channels, 3, 3) * 0.1) for _ in range(2)]
    first = pt.op("Relu", pt.op("Conv", x, weights[0], pt.constant(normal(channels)), pads=[1, 1, 1, 1]))
    second = pt.op("Conv", first, weights[1], pt.constant(normal(channels)), pads=[1, 1, 1, 1])
    return pt.op("Relu", pt.op("Add", second, x))


def image_net() -> pt.Graph:
    x = pt.variable("x", "float32", (1, 3, 10, 10))
    stem = pt.op("Conv", x, pt.constant(normal(8, 3, 1, 1)))
    y = pt.op("Flatten", pt.op("GlobalAveragePool", block(block(stem))))
    return pt.Graph([pt.op("Softmax", pt.op("Gemm", y, pt.constant(normal(8, 5)), pt.constant(normal(5))))], inputs=[x])


def layers(subgraph: CompiledTvm) -> list[str]:
    """The ops of each kernel in order."""
    return ["+".join(str(n.op) for n in k.body.nodes if n.is_op) for k in subgraph.kernels()]


CONVOLUTIONS = ["Conv"] + ["Conv+Relu", "Conv+Add+Relu"] * 2


def test_convolutions_take_what_follows_them(avx2: Machine) -> None:
    result = check(image_net(), [normal(1, 3, 10, 10)], 1e-5)
    assert layers(result) == [*CONVOLUTIONS, "GlobalAveragePool", "Gemm", "Softmax"]


def test_vectors_that_the_channels_do_not_fill(avx512: Machine) -> None:
    result = check(image_net(), [normal(1, 3, 10, 10)], 1e-5)
    assert layers(result) == [*CONVOLUTIONS, "GlobalAveragePool", "FromBlocked", "Gemm", "Softmax"]


def test_equal_bodies_are_one_kernel(avx2: Machine) -> None:
    kernels = compiled(image_net()).kernels()
    assert kernels[1].symbol == kernels[3].symbol and kernels[2].symbol == kernels[4].symbol
    assert kernels[1].symbol.startswith("conv_relu_")


def test_no_kernel_is_left_unscheduled(avx2: Machine) -> None:
    assert not {"as written"} & set(schedules(compiled(image_net())))


def test_kernels_show_body_loops_and_machine_code(avx2: Machine) -> None:
    kernel = compiled(image_net()).kernels()[1]
    assert "Relu" in str(kernel.body)
    assert "T.prim_func" in kernel.tir or "def " in kernel.tir
    assert kernel.symbol in kernel.assembly


def test_vectors_as_wide_as_the_processor_has() -> None:
    from partita.accelerators.tvm.machine.machine import host_machine
    from partita.accelerators.tvm.machine.processor import host_features

    x = pt.variable("x", "float32", (64, 256))
    text = compiled(pt.Graph([pt.op("Add", pt.op("Mul", x, x), pt.op("Exp", x))], inputs=[x])).kernels()[0].assembly
    features, lanes = host_features(), host_machine(1).lanes
    if lanes == 16:
        assert "%zmm" in text
    elif lanes == 8:
        assert "%ymm" in text and "%zmm" not in text
    if "fma" in features or "avx512f" in features:
        assert "vfmadd" in text


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("znver4", {"avx512f", "avx512bw", "gfni"}), ("znver4", {"avx512vnni"}), ("znver4", set()), ("diamondrapids", UNSTATED)],
)
def test_what_a_virtual_machine_hides_is_not_used(name: str, hidden: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm.target.codegen import llvm_cpu_has_features

    from partita.accelerators.tvm.machine import machine

    if platform.machine() != "x86_64":
        pytest.skip("names x86 processors")
    monkeypatch.setattr(machine, "host_cpu", lambda: name)
    monkeypatch.setattr(machine, "usable_features", lambda: KNOWN_FEATURES - hidden)
    monkeypatch.setattr(machine, "hidden_features", machine.hidden_features.__wrapped__)
    host = machine.host_machine.__wrapped__(1)
    assert {*host.hidden} == hidden and host.lanes == (8 if "avx512f" in hidden else 16)
    for target in (machine._target.__wrapped__(host), machine._target.__wrapped__(machine.gpu_machine("sm_80")).host):
        assert not any(llvm_cpu_has_features(name, target) for name in hidden)
        assert all(llvm_cpu_has_features(name, target) for name in ("sse2", "avx2", "fma"))
        assert llvm_cpu_has_features("avx512f", target) == ("avx512f" not in hidden)


def test_arrays_are_not_copied_and_results_are_the_callers() -> None:
    x = pt.variable("x", "float32", (32, 32))
    result = compiled(pt.Graph([pt.op("Exp", x)], inputs=[x]))
    given = np.zeros(32 * 32 + 1, "float32")[1:].reshape(32, 32)
    assert given.ctypes.data % 8 == ALIGNMENT and np.shares_memory(np.from_dlpack(as_tensor(given)), given)
    (first,) = result.run([given])
    assert first.flags.writeable and (first == 1).all()
    (second,) = result.run([given + 1])
    assert (first == 1).all() and not np.shares_memory(first, second)


@pytest.mark.parametrize("shift", range(1, 16))
def test_arrays_at_any_address_of_their_element(shift: int) -> None:
    x, w = pt.variable("x", "float32", (9, 64)), pt.constant(normal(64, 64))
    product = pt.op("MatMul", x, w)
    outputs = [pt.op("Softmax", pt.op("Relu", product)), pt.op("ReduceSum", x), pt.op("Transpose", x)]
    result = compiled(pt.Graph(outputs, inputs=[x]))
    values = normal(9 * 64 + shift)[shift:].reshape(9, 64)
    for seen, expected in zip(result.run([values]), result.run([values.copy()]), strict=True):
        assert (seen == expected).all()


def test_misaligned_strided_and_read_only_arrays() -> None:
    x = pt.variable("x", "float32", (5, 7))
    result = compiled(pt.Graph([pt.op("Neg", x)], inputs=[x]))
    whole = normal(7, 11)
    strided = whole[:, 2:7].T
    frozen = np.frombuffer(b"\0" + normal(5, 7).tobytes(), "uint8")[1:].view("float32").reshape(5, 7)
    for given in (strided, frozen):
        assert (result.run([given])[0] == -given).all()


def test_results_that_are_inputs_or_constants() -> None:
    x = pt.variable("x", "float32", (3,))
    three = pt.op("Add", pt.constant(np.float32(1)), pt.constant(np.float32(2)))
    result = compiled(pt.Graph([x, pt.constant(np.arange(4)), three], inputs=[x]))
    given = normal(3)
    outcome = result.run([given])
    assert outcome[0].tolist() == given.tolist() and outcome[1].tolist() == [0, 1, 2, 3] and outcome[2] == 3
    assert not np.shares_memory(outcome[0], given)


def test_several_threads_may_call() -> None:
    result, given = compiled(image_net()), normal(1, 3, 10, 10)
    wanted = result.run([given])[0]
    wrong: list[float] = []
    threads = [threading.Thread(target=lambda: wrong.append(error(result.run([given])[0], wanted))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0.0] * 4


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float16", "float64", "bool"])
def test_other_element_types(dtype: str) -> None:
    x = pt.variable("x", dtype, (4, 9))
    g = pt.Graph([pt.op("Transpose", x, perm=[1, 0])], inputs=[x])
    given = RNG.integers(0, 2, (4, 9)).astype(dtype)
    (output,) = compiled(g).run([given])
    assert output.dtype == given.dtype and (output == given.T).all()


def test_shapes_computed_in_the_graph_fold_away() -> None:
    x = pt.variable("x", "float32", (2, 3, 4))
    size = pt.op("Slice", pt.op("Shape", x), pt.constant(np.array([0])), pt.constant(np.array([1])))
    g = pt.Graph([pt.op("Relu", pt.op("Reshape", x, pt.op("Concat", size, pt.constant(np.array([-1])), axis=0)))], inputs=[x])
    assert len(check(g, [normal(2, 3, 4)]).kernels()) == 1


def test_an_op_that_tvm_lacks_is_taken_apart() -> None:
    x = pt.variable("x", "float32", (3, 8))
    g = pt.Graph([pt.op("Celu", x, alpha=2.0, name="celu")], inputs=[x])
    assert accelerator("cpu").query(g) == {"celu": True}
    check(g, [normal(3, 8)])


def test_query_says_why_not() -> None:
    x = pt.variable("x", "float32", (3, 4))
    nodes = [pt.op("NonZero", x, name="nonzero"), pt.op("RandomNormalLike", x, name="random"), pt.op("Relu", x, name="relu")]
    answers = accelerator("cpu").query(pt.Graph(nodes, inputs=[x]))
    assert answers["relu"] is True
    assert answers["random"] == "random numbers differ from run to run, and TVM has no generator for ONNX's"
    assert answers["nonzero"] == "the sizes of 'nonzero' depend on values"


def test_query_refuses_what_is_known_to_be_wrong() -> None:
    x = pt.variable("x", "float32", (3,))
    graph = pt.Graph([pt.op("Mod", x, x, fmod=0, name="mod")], inputs=[x])
    wrong = "TVM's floor_mod of floats is NaN where an operand is infinite"
    assert accelerator("cpu").query(graph) == {"mod": wrong}


def test_progress_counts_distinct_kernels(avx2: Machine) -> None:
    seen: list[tuple[int, int, str]] = []
    compiled(image_net(), PROGRESS=lambda *args: seen.append(args))
    assert [row[:2] for row in seen] == [(i, 6) for i in range(6)]


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("NUM_THREADS", "many", "Give a number up to 1024; 0 means: as the engine likes"),
        ("ISOLATE", "maybe", "Give True or False"),
        ("ISOLATE_SECONDS", 0, "Give a number of seconds"),
        ("ISOLATE_SECONDS", "soon", "Give a number of seconds"),
        ("PROGRESS", 5, "Give a function, or None"),
        ("DEVICE_ID", "second", "It can be 0"),
    ],
)
def test_a_value_that_a_key_cannot_have(key: str, value: object, remedy: str) -> None:
    x = pt.variable("x", "float32", (3,))
    with pytest.raises(BadConfig, match=rf"device 'cpu': {key} cannot be {value!r}\n  {remedy}"):
        pt.compile(pt.Graph([pt.op("Relu", x)]), "HETERO:cpu,reference", config={"cpu": {key: value}})


def test_a_profile_has_a_row_for_each_kernel(avx2: Machine) -> None:
    result = compiled(image_net(), PERF_COUNT=True)
    kernels = [(launch.nodes[0], launch.layer_type, launch.runs, launch.types) for launch in result.launches]
    for _ in range(2):
        result.run([normal(1, 3, 10, 10)])
        rows = result.profile_rows()
        assert [(row.node, row.layer_type, row.exec_type, row.types) for row in rows] == kernels
    assert [row.layer_type for row in rows[1:3]] == ["Conv+Relu", "Conv+Add+Relu"] and len(rows) == 8
    assert all(row.status == "EXECUTED" and row.real_us > 0 for row in rows)


Fake = Callable[[str], isolated_trials.TrialProcess]
"""Puts a child in place of the one that tries bodies."""


def fresh() -> pt.Graph:
    """A graph whose kernel nobody has compiled."""
    x = pt.variable("x", "float32", (3, int(RNG.integers(10**4, 10**6))))
    return pt.Graph([pt.op("Relu", pt.op("Cos", x, name="cosine"))], inputs=[x])


def test_a_compiler_that_hangs_is_survived(fake_trials: Fake) -> None:
    fake_trials("answer = lambda request: request and time.sleep(60)")
    with pytest.raises(CompileError, match=r"'cosine' \(Cos\).* on device 'cpu': TVM's compiler took more than 0.3 s"):
        compiled(fresh(), ISOLATE=True, ISOLATE_SECONDS=0.3)


def test_a_compiler_that_crashes_is_survived(fake_trials: Fake) -> None:
    fake_trials("answer = lambda request: request and os.abort()")
    with pytest.raises(CompileError, match="TVM's compiler died"):
        compiled(fresh(), ISOLATE=True)


def test_the_time_that_the_child_takes_to_start_does_not_count(fake_trials: Fake) -> None:
    fake_trials("answer = lambda request: None if request else time.sleep(3)")
    assert compiled(fresh(), ISOLATE=True, ISOLATE_SECONDS=2).kernels()


def test_a_child_that_does_not_start(fake_trials: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_trials("answer = lambda request: time.sleep(60)")
    monkeypatch.setattr(isolated_trials, "STARTING", 0.3)
    with pytest.raises(CompileError, match="TVM's compiler took more than 0.3 s to start"):
        compiled(fresh(), ISOLATE=True)


def test_isolated_compilation() -> None:
    x = pt.variable("x", "float32", (3, 1234))
    assert schedules(check(pt.Graph([pt.op("Relu", pt.op("Cos", x))], inputs=[x]), [normal(3, 1234)], ISOLATE=True))


def test_isolated_compilation_of_weights_that_are_laid_out_anew() -> None:
    """The child knows which inputs of a body are weights."""
    x, weight, bias = pt.variable("x", "float32", (1, 32, 13, 13)), normal(20, 32, 1, 1), normal(20)
    graph = pt.Graph([pt.op("Relu", pt.op("Conv", x, pt.constant(weight), pt.constant(bias)))], inputs=[x])
    assert schedules(check(graph, [normal(1, 32, 13, 13)], ISOLATE=True))


def test_a_profile_has_a_row_for_each_launch_of_kernels_that_are_equal() -> None:
    random = np.random.default_rng(0)
    x = pt.variable("x", "float32", (1, 40, 8, 8))
    early, late = pt.op("MaxPool", x, name="early", kernel_shape=[1, 1]), pt.op("GlobalMaxPool", x, name="late")
    late = pt.op("Expand", late, pt.constant(np.array([1, 40, 8, 8])), name="wide")
    listed = []
    for i, (image, residual) in enumerate([(early, late), (late, early)]):
        weight = pt.constant(random.standard_normal((40, 40, 1, 1), np.float32), f"w{i}")
        total = pt.op("Add", pt.op("Conv", image, weight, name=f"conv{i}"), residual, name=f"add{i}")
        listed.append(pt.op("Relu", total, name=f"relu{i}"))
    model = pt.compile(pt.Graph(listed), "cpu")
    rows = model.profile(random.standard_normal((1, 40, 8, 8), np.float32)).rows
    executed = [row.node for row in rows if row.status == "EXECUTED"]
    assert {"conv0", "conv1"} <= set(executed)
    assert len({row.exec_type for row in rows if row.node in ("conv0", "conv1") and row.layer_type != "ToBlocked"}) == 1


def test_a_model_shows_its_kernels() -> None:
    x = pt.variable("x", "float32", (4, 8))
    kernels = pt.compile(pt.Graph([pt.op("Mish", x, name="y")], opsets={"": 22}), "cpu").kernels()
    assert [kernel.nodes for kernel in kernels] == [("y",)]
    assert "def" in kernels[0].tir and "Mish" in str(kernels[0].body)


@pytest.mark.parametrize("op", ["Mish", "Softplus"])
def test_small_values_keep_their_digits(op: str) -> None:
    x = np.concatenate([np.linspace(-80, 80, 321, dtype=np.float32), np.array([np.inf, np.nan], np.float32)])
    model = pt.compile(pt.Graph([pt.op(op, pt.variable("x", "float32", x.shape), opset=22)], opsets={"": 22}), "cpu")
    wide = x.astype(np.float64)
    softplus = np.where(np.isnan(wide), np.nan, np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))))
    expected = softplus if op == "Softplus" else wide * np.tanh(softplus)
    np.testing.assert_allclose(model(x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("does", "seconds", "said"),
    [("time.sleep(60)", 0.3, "took more than 0.3 s"), ("os.abort()", 60, "died")],
    ids=["hangs", "crashes"],
)
def test_what_kills_the_compiler_goes_to_the_next_device(fake_trials: Fake, does: str, seconds: float, said: str) -> None:
    graph = fresh()
    assert pt.query(graph, "cpu")["cosine"] == "cpu", "what a query tries is known now: kernels alone are left to the child"
    fake_trials(f"answer = lambda request: request and {does}")
    model = pt.compile(graph, "HETERO:cpu,reference", config={"cpu": {"ISOLATE": True, "ISOLATE_SECONDS": seconds}})
    report: Any = model.report
    (move,) = report.moves
    assert "cosine" in move.nodes and move.device == "cpu" and set(move.to.values()) == {"reference"}
    assert f"TVM's compiler {said}" in move.reason and move.reason in report.placement.why("cosine")
    result = graph.inputs[0][0].type
    assert isinstance(result, pt.TensorType)
    assert (model(np.zeros(result.shape, np.float32))[0] == 1).all()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "node",
    [
        pt.op("Trilu", pt.variable("x", "float32", (64, 64))),
        pt.op("Resize", pt.variable("x", "float32", (1, 3, 16, 16)), None, pt.constant(np.array([1, 1, 2, 2], "float32"))),
    ],
    ids=lambda node: node.op,
)
def test_loops_that_compute_with_places_are_left_plain(node: pt.Node) -> None:
    (kernel,) = pt.compile(pt.Graph([node]), "cpu").kernels()
    assert kernel.schedule == "generic" and "T.vectorized" not in kernel.tir


@pytest.mark.parametrize(
    ("does", "seconds", "said"),
    [("time.sleep(60)", 0.3, "took more than 0.3 s"), ("os.abort()", 60, "died")],
    ids=["hangs", "crashes"],
)
def test_what_kills_the_compiler_in_a_query_is_refused(fake_trials: Fake, does: str, seconds: float, said: str) -> None:
    """A query tries ops: with ISOLATE it does so in a child process too, and remembers no crash for others."""
    from partita.accelerators.tvm.cpu import CpuAccelerator
    from partita.accelerators.tvm.query import support

    x = pt.variable("x", "float32", (1, 1, 5, 6))
    graph = pt.Graph([pt.op("Resize", x, None, pt.constant(np.float32([1, 1, 2, 1])), mode="cubic", name="tried")], inputs=[x])
    support.forget()
    device = CpuAccelerator()
    device.set_config({"ISOLATE": True, "ISOLATE_SECONDS": seconds})
    fake_trials(f"answer = lambda request: request and {does}")
    answer = device.query(graph)["tried"]
    assert f"TVM's compiler {said}" in str(answer) and not support.trials
    support.forget()


def test_an_isolated_query_answers_as_another_does() -> None:
    from partita.accelerators.tvm.cpu import CpuAccelerator
    from partita.accelerators.tvm.query import support

    x = pt.variable("x", "float32", (1, 1, 5, 6))
    scales = pt.constant(np.float32([1, 1, 2, 1]), name="scales")
    ops = [pt.op("Resize", x, None, scales, mode=mode, name=mode) for mode in ("cubic", "linear", "nearest")]
    graph = pt.Graph([*ops, pt.op("Det", x, name="det"), pt.op("Cos", x, name="cos")], inputs=[x])
    plain, isolated = CpuAccelerator(), CpuAccelerator()
    isolated.set_config({"ISOLATE": True})
    support.forget()
    answers = isolated.query(graph)
    support.forget()
    assert answers == plain.query(graph)
