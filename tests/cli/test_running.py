"""The verbs that run models: run, bench, compile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.keys import Key, one_of
from partita.cli.arguments import config_of, setting
from tests.accelerators.hetero.small_devices import device
from tests.cli.conftest import Command, small_graph

ARRAY = np.random.default_rng(1).standard_normal((1, 3, 8, 8), np.float32)


def test_run(partita: Command, model: str) -> None:
    done = partita(f"run {model} --devices HETERO:onnxruntime,reference --check -o out.npz --trace trace.json")
    assert done.status == 0
    assert "check y: error" in done.out
    assert "of the logarithms, at most 0.001: ok" in done.out
    assert "layer_type" in done.out
    assert np.load("out.npz")["y"].shape == (1, 4, 6, 6)
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


def test_calls_that_run_at_once(partita: Command, model: str) -> None:
    done = partita(f"run {model} --devices HETERO:onnxruntime,reference --calls 3 --report page.html")
    assert done.status == 0 and ": 3 requests in " in done.out
    assert '"laps":{"request":[' in Path("page.html").read_text()
    laps = partita(f"run {model} --devices reference --calls 2 --json").json["timeline"]["laps"]
    assert {lap["request"] for lap in laps} == {1, 2}


def test_compile_says_why(partita: Command, model: str) -> None:
    done = partita(f"compile {model} --devices cpu --config CACHE_DIR=off -o net.partita --why")
    assert done.status == 0 and "cpu_0 on cpu: compiled in " in done.out and "because there is no cache" in done.out
    assert "cpu_0: " in done.out and " kernels" in done.out
    data = partita(f"compile {model} --devices cpu -o other.partita --why --json").json
    assert data["fusions"]["cpu_0"]["kernels"] and data["subgraphs"][0]["story"]["kernels"]


def test_run_tells_the_same_as_data(partita: Command, model: str) -> None:
    result = partita(f"run {model} --devices reference --check --json").json
    assert result["check"]["ok"]
    assert result["check"]["outputs"][0]["worst"] == 0
    assert result["outputs"][0]["shape"] == [1, 4, 6, 6]
    assert result["profile"]["rows"][0]["node"] == "conv1"
    assert result["report"]["subgraphs"][0]["device"] == "reference"


def test_a_check_that_fails(partita: Command, model: str) -> None:
    class Wrong(pt.Accelerator):
        name = "wrong"

        def supports(self, node, graph):
            return True

        def compile(self, graph, config):
            result = pt.accelerator("reference").compile(graph, {"PERF_COUNT": False})
            result.run_right = result.run
            result.run = lambda inputs, out=None: [np.roll(a, 1) for a in result.run_right(inputs)]
            return result

    pt.register_accelerator(Wrong)
    try:
        done = partita(f"run {model} --devices wrong --check")
    finally:
        pt.unregister_accelerator("wrong")
    assert done.status == 1
    assert "WRONG, worst at [0," in done.out


class Offering(pt.Accelerator):
    """The reference, under another name: it offers PRECISION and keeps what it was asked for."""

    name = "offering"
    config_keys = {"PRECISION": Key("f32", one_of("f32", "f16", "bf16"))}
    asked: list[str] = []

    def metrics(self):
        return {**super().metrics(), "OPTIMIZATION_CAPABILITIES": ["FP32", "FP16", "BF16"]}

    def supports(self, node, graph):
        return True

    def compile(self, graph, config):
        self.asked.append(config["PRECISION"])
        return pt.accelerator("reference").compile(graph, {"PERF_COUNT": False})


@pytest.fixture
def offering() -> Iterator[list[str]]:
    pt.register_accelerator(Offering)
    Offering.asked.clear()
    yield Offering.asked
    pt.unregister_accelerator("offering")


def test_precision_goes_to_the_devices_that_offer_it(partita: Command, model: str, offering: list[str]) -> None:
    done = partita(f"run {model} --devices HETERO:offering,reference --precision bf16 --check --json --profile 0")
    assert (done.status, set(offering)) == (0, {"bf16"})
    assert done.json["check"]["outputs"][0]["tolerance"] == 0.05
    offering.clear()
    assert partita(f"bench {model} --devices reference --vs offering --precision f16 --seconds 0.1").status == 0
    assert set(offering) == {"f16"}


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_a_precision_that_nobody_offers(partita: Command, model: str, verb: str) -> None:
    done = partita(f"{verb} {model} --devices reference --precision bf16")
    assert done.status == 2
    assert "error: none of the devices offers a PRECISION: reference\n  `partita devices NAME` lists" in done.err


@pytest.mark.parametrize("verb", ["run", "bench"])
def test_a_device_that_only_compiles_here_is_refused_at_once(partita: Command, model: str, verb: str) -> None:
    """A GPU that is elsewhere: compiling for it took half a minute before the run said so."""
    compiled: list[object] = []

    def compile_(self: object, graph: object, config: object) -> None:
        compiled.append(graph)

    with device("card", why_not_here=lambda self, config: "there is no card here", compile=compile_):
        done = partita(f"{verb} {model} --devices card")
    assert done.status == 1 and not compiled
    said = "error: device 'card': card cannot run here: there is no card here\n  `partita compile` compiles for a machine"
    assert said in done.err


def test_fail_on(partita: Command, model: str) -> None:
    devices = "HETERO:onnxruntime,reference --forbid Relu=onnxruntime --profile 0"
    assert partita(f"run {model} --devices {devices}").status == 0
    done = partita(f"run {model} --devices {devices} --fail-on moved,fallback --json")
    assert (done.status, done.json["failed"]) == (1, ["fallback"])
    assert "warning: failed on fallback: an op is not on the first device" in done.err
    done = partita(f"run {model} --devices onnxruntime --check --tolerance 1e-30 --fail-on never --json --profile 0")
    assert (done.status, done.json["failed"], done.json["check"]["ok"]) == (0, [], False)
    assert partita(f"run {model} --devices onnxruntime --check --tolerance 1e-30 --profile 0").status == 1


def test_a_torch_file(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("zip.pt", b"PK\x03\x04rest"), ("old.pth", b"\x80\x02rest")):
        Path(name).write_bytes(content)
        for verb in ("run", "inspect", "bench"):
            done = partita(f"{verb} {name}")
            assert done.status == 1
            assert f"{name}: this is a file of PyTorch's, which holds no graph" in done.err
            assert "pt.from_torch(module, example_inputs)" in done.err
    pt.save(small_graph(), "really.pt")
    assert partita("inspect really.pt").status == 0
    assert "none.pt" in partita("run none.pt").err and "PyTorch" not in partita("run none.pt").err


MEANT = {"gpu": "'cuda'", "GPU": "'cuda'", "ort": "'onnxruntime'", "tvm": "'cpu' or 'cuda'"}


@pytest.mark.parametrize(("given", "meant"), MEANT.items())
def test_names_that_other_programs_use(partita: Command, model: str, given: str, meant: str) -> None:
    done = partita(f"run {model} --devices {given}")
    assert done.status == 1
    assert f"error: there is no device {given!r}\n  Did you mean {meant}" in done.err


def test_inputs_from_files(partita: Command, model: str) -> None:
    expected = pt.compile(pt.load(model), "reference")(ARRAY)[0]
    np.save("x.npy", ARRAY)
    np.savez("x.npz", x=ARRAY)
    np.save("one.npy", ARRAY[0].astype(np.float64))
    np.savez("other.npz", other=ARRAY)
    for given in ("x.npy", "x=x.npy", "x.npz", "x=x.npz", "other.npz", "one.npy"):
        assert partita(f"run {model} --devices reference --input {given} -o y.npz --profile 0").status == 0
        assert np.array_equal(np.load("y.npz")["y"], expected), given


def test_outputs_that_are_text_or_no_tensors(
    partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = pt.variable("x", "float32", (2,))
    pt.save(pt.Graph([pt.op("Cast", x, to=8)], output_names=["file"]), "text.onnx")
    np.save("x.npy", np.array([1, 2], np.float32))
    assert partita("run text.onnx --devices reference --input x.npy -o y.npz").status == 0
    assert np.load("y.npz", allow_pickle=False)["file"].dtype.kind == "U"
    pt.save(pt.Graph([pt.op("SequenceConstruct", x, x)], output_names=["y"]), "two.onnx")
    done = partita("run two.onnx --devices reference -o z.npz")
    assert (done.status, Path("z.npz").exists()) == (1, False)
    assert "z.npz: output 'y' is not a tensor" in done.err


def test_an_image(partita: Command, model: str) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 10), (255, 0, 128)).save("red.png")
    pixel = (np.array([255, 0, 128], np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    array = np.broadcast_to(pixel.astype(np.float32)[None, :, None, None], (1, 3, 8, 8)).copy()
    expected = pt.compile(pt.load(model), "reference")(array)[0]
    assert partita(f"run {model} --devices reference --input red.png -o y.npz").status == 0
    assert np.allclose(np.load("y.npz")["y"], expected, atol=1e-6)


def test_an_image_without_pillow(partita: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    Path("red.png").write_bytes(b"")
    done = partita(f"run {model} --input red.png --devices reference")
    assert done.status == 1
    assert "reading the image 'red.png' needs the package 'pillow', which is not installed" in done.err
    assert "pip install 'partita[image]'" in done.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none.npy", "none.npy: there is no such file"),
        (".", ".: it is a directory"),
        ("bad.npy", "bad.npy: no array can be read from it"),
        ("bad.npz", "bad.npz: no array can be read from it"),
        ("pickled.npy", "pickled.npy: no array can be read from it: the array holds object, not numbers"),
        (
            "wrong.npz",
            "wrong.npz: it holds 'a', and there is no such input\n  Its inputs are x: float32[1, 3, 8, 8].",
        ),
        ("x=wrong.npz", "wrong.npz: it holds 2 arrays, and one is wanted for 'x'"),
        ("small.npy", "input 'x': it has 4 dimensions"),
        ("bad.png", "bad.png: no image can be read from it"),
    ],
)
def test_bad_inputs(partita: Command, model: str, given: str, message: str) -> None:
    for name in ("bad.npy", "bad.npz", "bad.png"):
        Path(name).write_bytes(b"not what it says")
    np.save("pickled.npy", np.array([{}], object), allow_pickle=True)
    np.savez("wrong.npz", a=ARRAY, b=ARRAY)
    np.save("small.npy", np.zeros(3, np.float32))
    done = partita(f"run {model} --devices reference --input {given}")
    assert done.status == 1
    assert message in done.err


def test_wrong_sizes_are_said_before_anything_is_compiled(partita: Command, model: str) -> None:
    np.save("wide.npy", np.zeros((1, 3, 8, 9), np.float32))
    done = partita(f"run {model} --devices reference --input wide.npy")
    assert done.status == 1
    assert "input 'x': dimension 3 is 8 (float32[1, 3, 8, 8]), and that of the array given 9" in done.err
    assert "compiling" not in done.err


def test_dynamic_sizes(partita: Command, dynamic: str) -> None:
    np.save("x.npy", np.concatenate([ARRAY, ARRAY]))
    result = partita(f"run {dynamic} --devices reference --input x.npy --json").json
    assert result["outputs"][0]["shape"] == [2, 4, 6, 6]
    done = partita(f"run {dynamic} --devices reference --profile 0")
    assert "warning: sizes that are not fixed are taken for 1: fix them, like --shape x=1,3,8,8\n" in done.err
    result = partita(f"run {dynamic} --devices reference --shape x=5,3,8,8 --json").json
    assert result["outputs"][0]["shape"] == [5, 4, 6, 6]


def test_compile_and_run_the_file(partita: Command, model: str) -> None:
    Path("secret").write_bytes(b"a secret")
    done = partita(f"compile {model} --devices onnxruntime -o small.partita --key secret")
    assert done.status == 0
    assert "wrote small.partita" in done.out
    done = partita(f"run small.partita --against {model} --key secret")
    assert (done.status, "ok" in done.out) == (0, True)
    assert partita("inspect small.partita --json").json["devices"] == ["onnxruntime"]
    assert partita("explain small.partita conv1").out == "conv1 is on onnxruntime\n"
    assert partita("run small.partita --check --json").json["check"]["ok"]
    Path("other").write_bytes(b"another")
    assert "signed with another key" in partita("run small.partita --key other").err
    assert "this is a compiled model" in partita("partition small.partita").err


def test_the_name_of_a_compiled_file_is_free(partita: Command, model: str) -> None:
    assert partita(f"compile {model} --devices reference -o small.bin").status == 0
    done = partita("run small.bin --devices onnxruntime --profile 0")
    assert (done.status, "imported, 1 subgraph" in done.out) == (0, True)
    assert "warning: all of it fits here and stays on reference" in done.err
    done = partita("explain small.bin relu2")
    assert done.err == "error: model 'small': there is no op node 'relu2'\n  Did you mean 'relu1'?\n"
    assert "the model is compiled: --inline comes too late" in partita("run small.bin --inline").err


def test_what_was_partitioned_before(partita: Command, model: str) -> None:
    assert partita(f"partition {model} --devices onnxruntime -o placed.onnx").status == 0
    done = partita("run placed.onnx --devices onnxruntime --check --profile 0")
    assert (done.status, "ok" in done.out) == (0, True)
    assert "they are reference" in partita("run placed.onnx --devices reference").err.lower()
    assert partita("run placed.onnx --devices reference --inline --profile 0").status == 0
    done = partita("partition placed.onnx --select Conv,Relu --inline --json --quiet")
    assert [row["nodes"] for row in done.json["groups"]] == [["conv1", "relu1"]]


def test_bench_of_what_was_placed_or_compiled(partita: Command, model: str) -> None:
    partita(f"partition {model} --devices onnxruntime -o placed.onnx")
    partita(f"compile {model} --devices onnxruntime -o small.partita")
    for given in ("placed.onnx", "small.partita"):
        own = "--devices onnxruntime" if given.endswith(".onnx") else ""
        done = partita(f"bench {given} {own} --vs reference --seconds 0.1 --json")
        assert [row["devices"] for row in done.json["contenders"]] == ["onnxruntime", "reference"]


def test_bench_of_machine_code_alone(partita: Command, model: str) -> None:
    pt.compile(pt.load(model), "openvino").export("bare.partita", bodies=False)
    done = partita("bench bare.partita --vs reference --seconds 0.1 --json")
    assert done.json["refused"] == {
        "reference": "it holds machine code alone, and not what that computes\n  Give the model itself."
    }


def test_bench(partita: Command, model: str) -> None:
    done = partita(f"bench {model} --devices reference --vs onnxruntime --threads 1 --seconds 0.2 --json")
    rows = done.json["contenders"]
    assert done.status == 0
    assert [row["devices"] for row in rows] == ["reference", "onnxruntime"]
    assert rows[0]["ratio"] == 1
    assert rows[1]["difference"] < 1e-5
    assert min(row["runs"] for row in rows) >= 3
    assert rows[1]["outputs"][0]["output"] == "y" and rows[1]["outputs"][0]["ok"]
    assert all(row["min_ms"] <= row["median_ms"] <= row["p90_ms"] <= row["p99_ms"] for row in rows)
    assert "median" in partita(f"bench {model} --devices reference --seconds 0.1").out


def test_bench_with_streams_iterations_and_a_batch(partita: Command, dynamic: str) -> None:
    options = "--streams 2 --iterations 5 --warmup 0 --batch 3 --profile 1"
    done = partita(f"bench {dynamic} --devices reference {options} --json")
    assert (done.status, done.json["batch"], done.json["streams"]) == (0, 3, 2)
    (row,) = done.json["contenders"]
    assert row["runs"] == 5 and row["throughput"] > 0
    assert done.json["profile"]["rows"][0]["node"] == "conv1"
    done = partita(f"bench {dynamic} --devices reference {options}")
    assert "throughput in items per second, 2 calls at once" in done.out and "layer_type" in done.out


def test_bench_fails_on_what_it_is_told_to(partita: Command, model: str) -> None:
    def status(fail_on: str, vs: str = "") -> tuple[int, list[str]]:
        done = partita(f"bench {model} --devices reference {vs} --iterations 2 --fail-on {fail_on} --json")
        return done.status, done.json["failed"]

    assert status("slower=1000", "--vs onnxruntime") == (0, [])
    assert status("slower=0.001,difference", "--vs onnxruntime") == (1, ["slower"])
    assert status("refused", "--vs nonesuch") == (1, ["refused"])
    assert status("never", "--vs nonesuch") == (0, [])


def test_bench_against_a_device_that_does_not_run_it(partita: Command, model: str) -> None:
    done = partita(f"bench {model} --devices reference --vs nonesuch --seconds 0.1")
    assert done.status == 1
    assert "warning: nonesuch does not run it: there is no device 'nonesuch'" in done.err


def test_settings(partita: Command, model: str) -> None:
    assert partita(f"run {model} --devices onnxruntime --config NUM_THREADS=1").status == 0
    done = partita(f"run {model} --devices onnxruntime --config NUM_THREAD=1")
    assert done.status == 2
    assert "no such setting as 'NUM_THREAD'\n  Did you mean 'NUM_THREADS'" in done.err


def test_a_setting_that_nobody_has(partita: Command, model: str) -> None:
    done = partita(f"run {model} --devices reference --config FOO=1")
    assert done.err.splitlines()[-2] == "error: reference: no such setting as 'FOO'"
    assert "There are CACHE_DIR, CAPSULES, DEVICE_ID, HETERO_DUMP_GRAPH_DOT" in done.err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("run MODEL --devices cpu --config INFERENCE_PRECISION_HINT=bf16", "Did you mean 'PRECISION'?"),
        ("run MODEL -d CPU", "Did you mean '--devices'?"),
        ("bench MODEL --devices cpu -niter 3", "Did you mean '--iterations'?"),
        ("run -m MODEL", "The model is the first argument: partita run MODEL"),
    ],
)
def test_options_of_other_tools(partita: Command, model: str, words: str, remedy: str) -> None:
    done = partita(words.replace("MODEL", model))
    assert done.status == 2 and remedy in done.err


def test_a_setting_goes_to_the_devices_that_have_it() -> None:
    devices = "HETERO:onnxruntime,reference"
    result = config_of([setting("NUM_THREADS=1"), setting("PARALLEL=true"), setting("reference.PERF_COUNT=false")], devices)
    assert result == {"onnxruntime": {"NUM_THREADS": 1}, "PARALLEL": True, "reference": {"PERF_COUNT": False}}


def test_parameters_without_a_symbol(partita: Command, model: str) -> None:
    done = partita(f"run {model} --params some.params")
    assert (done.status, done.out) == (2, "")
    assert "--params goes with an MXNet symbol" in done.err


def test_tune(partita: Command, model: str) -> None:
    done = partita(f"tune {model} --devices cpu --config CACHE_DIR=kept --seconds 1 --json --quiet")
    kernels = done.json["kernels"]
    assert done.status == 0
    assert all(kernel["after_us"] <= kernel["before_us"] for kernel in kernels)


@pytest.mark.parametrize("verb", ["run", "bench", "inspect", "explain"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.partita", "none.partita: the package cannot be read: No such file or directory"),
        ("text.partita", "text.partita: this is not a package of Partita's"),
        ("cut.partita", "cut.partita: this is not a package of Partita's, or it was cut short"),
        ("other.partita", "other.partita: "),
    ],
)
def test_bad_packages(partita: Command, model: str, verb: str, name: str, message: str) -> None:
    from partita.accelerators.runtime.package.container import writing

    pt.compile(pt.load(model), "reference").export("cut.partita")
    Path("cut.partita").write_bytes(Path("cut.partita").read_bytes()[:-9])
    Path("text.partita").write_text("hello")
    with writing("other.partita") as package:
        package.add("report.json", b"[]")
        package.finish({"units": 1}, None)
    done = partita(f"{verb} {name}" + (" relu1" if verb == "explain" else ""))
    assert (done.status, done.out) == (1, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_roofline_has_a_row_for_each_kernel(partita: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.measuring.roofline.ELEMENTS", 1 << 10)
    done = partita(f"run {model} --devices reference --profile 0 --roofline 1 --json").json
    assert [(row["op"], row["flops"], row["bytes"]) for row in done["roofline"]["kernels"]] == [
        ("Conv", 7776, 768 + 432 + 576), ("Relu", 144, 1152), ("Softmax", 144, 1152),
    ]
    shown = partita(f"run {model} --devices reference --profile 0 --roofline 1").out
    assert "small: roofline" in shown and "limited by" in shown and "GB/s" in shown
