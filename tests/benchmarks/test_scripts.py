"""Each benchmark runs, in its tiny mode, with the peers that are installed here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import results

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def kept(folder: Path, name: str) -> results.Section:
    (path,) = folder.glob("*.json")
    return results.read(path)[name]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a run of two parts says, and the folder of its results."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("results")
    return run("__main__", "--tiny", "--parts", "partition", "latency", "--results", str(folder)), folder


@pytest.mark.slow
def test_a_run_of_parts_leaves_one_file(parts: tuple[str, Path]) -> None:
    _, folder = parts
    kept(folder, "partition"), kept(folder, "latency")
    assert not list((folder / "unfinished").iterdir())


@pytest.mark.slow
def test_partition(parts: tuple[str, Path]) -> None:
    said, folder = parts
    assert "| random 200" in said and "Measured 20" in said
    result = kept(folder, "partition")
    ours = {row.engine: row for row in result.rows if row.engine.startswith("partita")}
    assert list(ours) == ["partita largest", "partita walk", "partita waves"]
    assert all(row.is_sound and row.extra["groups"] > 0 for row in ours.values())
    assert ours["partita waves"].extra["groups"] <= ours["partita largest"].extra["groups"]
    assert {"processor", "cores", "versions", "commit", "date", "others_cores"} <= result.about.keys()


@pytest.mark.slow
def test_latency(parts: tuple[str, Path]) -> None:
    said, folder = parts
    assert "**batch 1, 1 thread**" in said and "geometric mean" in said
    rows = {row.engine: row for row in kept(folder, "latency").rows}
    assert list(rows) == ["partita", "onnxruntime", "openvino", "tvm"]
    for name in ("partita", "onnxruntime"):
        assert rows[name].is_sound, rows[name].note
        assert rows[name].error is not None and rows[name].error < 1e-4
    assert rows["onnxruntime"].ratio is not None and rows["onnxruntime"].ratio.value > 0


@pytest.mark.slow
def test_gpu_where_there_is_none() -> None:
    """The smallest model runs on an OpenCL driver, and its outputs are right."""
    from benchmarks.gpu import gpu_name, opencl_name
    from partita.accelerators.errors import AcceleratorUnavailable

    try:
        name = opencl_name()
    except AcceleratorUnavailable as unavailable:
        pytest.skip(f"no OpenCL here: {unavailable.cause}")
    if gpu_name() is not None or "Oclgrind" in name:
        pytest.skip(f"there is a GPU here, or only a simulator: {name}")
    said = run("gpu")
    row = next(line for line in said.splitlines() if line.startswith("| squeezenet"))
    assert name in said and "Nothing of it is kept" in said and "[" not in row and row.count("(") == 2


@pytest.mark.slow
def test_serving() -> None:
    pytest.importorskip("uvicorn")
    said = run("serving", "--clients", "20", "--seconds", "2")
    wrong, lost = said.splitlines()[-1].split("|")[4:6]
    assert int(wrong) == int(lost) == 0


@pytest.mark.slow
def test_torch_modules() -> None:
    pytest.importorskip("torchvision", exc_type=ImportError)
    pytest.importorskip("transformers")
    said = run("torch_modules", "bert", "--engines", "--seconds", "0.1")
    assert said.splitlines()[-1].replace(" ", "").startswith("|bert|yes|1|none|")


@pytest.mark.slow
def test_closeness() -> None:
    pytest.importorskip("onnxruntime.quantization")
    row = run("closeness", "--models", "squeezenet", "--seeds", "5").splitlines()[-1].split(" | ")
    assert row[0] == "| squeezenet"
    largest, mean = map(float, row[1].split(", "))
    assert largest <= 1 and 0 < mean <= 0.1


@pytest.mark.slow
def test_rounding() -> None:
    pytest.importorskip("onnxruntime.quantization")
    row = run("rounding", "--models", "squeezenet", "--layers", "4").splitlines()[-1].strip("| ").split(" | ")
    assert row[0] == "squeezenet"
    count, *off = (int(cell.replace(",", "")) for cell in row[1:])
    assert all(differing <= count * 1e-5 for differing in off)


def test_pipelining(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table:pipelining -->\n<!-- /table:pipelining -->\nafter\n")
    said = run("pipelining", "--tiny", "--into", str(page))
    assert "| 6 on onnxruntime, 6 on cpu |" in said
    text = page.read_text()
    assert said.strip() in text and text.startswith("before\n") and text.endswith("\nafter\n")


def test_recurrent() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    assert "| LSTM 2 x 8 both ways" in run("recurrent", "--tiny")


@pytest.mark.slow
def test_precision() -> None:
    """The tables of quantized models, and of those in bfloat16."""
    pytest.importorskip("onnxruntime.quantization")
    pytest.importorskip("openvino")
    said = run("precision", "--tiny")
    assert "**int8, 1 thread**" in said and "**bf16, 1 thread**" in said
    assert said.count("| squeezenet | ") == 2 and said.count("geometric mean") == 2
    said = run("precision", "--decode", "--tiny")
    row = next(line for line in said.splitlines() if line.startswith("| int4, blocks of 32 |"))
    assert float(row.split("|")[3]) <= 1.1  # the weights in memory, over those stored


@pytest.mark.slow
def test_where_a_compilation_spends_its_time() -> None:
    said = run("compiling", "--tiny", "--where")
    assert "**squeezenet**" in said and ", 0 of them generated twice" in said
    stages = dict(line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| "))
    assert {"types", "preparing", "writing kernels", "machine code", "linking", "the rest"} <= stages.keys()
    assert all(float(stages[name]) > 0 for name in ("types", "writing kernels", "machine code"))


@pytest.mark.slow
def test_first_answer() -> None:
    pytest.importorskip("onnxruntime")
    said = run("first_answer", "--tiny")
    row = next(line for line in said.splitlines() if line.startswith("| squeezenet |")).split("|")
    assert len(row[6].split()) == 3 and all(float(number) > 0 for column in row[2:10] for number in column.split())


@pytest.mark.slow
def test_decoding() -> None:
    """Conversations in which all engines say the same, and memory does not grow."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    said = run("decoding", "--tiny", "--threads", "2", "--weights", "f32")
    rows = [line.split("|")[1:-1] for line in said.splitlines() if line.startswith(("| gpt2", "| llama"))]
    assert [row[0].strip() for row in rows] == ["gpt2, f32", "llama, f32"]
    assert all(row[-1].strip() == "33 of 33" and float(row[-2]) < 8 for row in rows)


@pytest.mark.slow
def test_any_size() -> None:
    """A model compiled once is right at all sizes, and none is compiled by itself."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    said = run("any_size", "--tiny")
    cells = next(line for line in said.splitlines() if line.startswith("| squeezenet |")).split("|")
    assert float(cells[6]) < 1e-4 and cells[7].strip() == "0"
    assert all("worst" in cell for cell in cells[3:6])


@pytest.mark.slow
def test_compile(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    said = run("compiling", "--tiny", "--results", str(tmp_path))
    assert "partita cold" in said and "export MiB" in said
    rows = {row.engine: row for row in kept(tmp_path, "compile").rows}
    cold, warm, again = (rows[f"partita {how}"].times for how in ("cold", "warm", "import"))
    assert cold and warm and again and min(cold.median, warm.median, again.median) > 0
    assert rows["partita import"].extra["MiB"] > 4.7  # the weights alone


@pytest.mark.slow
def test_layers() -> None:
    pytest.importorskip("onnxruntime")
    said = run("layers", "squeezenet", "--tiny")
    head, _, *lines = said.split("\n\n")[0].splitlines()
    assert [cell.strip() for cell in head.strip("| ").split("|")][:3] == ["first node", "ops", "kernel"]
    won = [int(line.rstrip("| ").split("|")[-1]) for line in lines]
    assert len(won) > 20 and won == sorted(won, reverse=True)
    assert "The machine's measured peak: " in said


@pytest.mark.parametrize(
    ("module", "words", "shown"),
    [
        ("graph_scale", ["--nodes", "1000"], "infer types"),
        ("partition_scale", ["--shape", "residual", "--nodes", "1000"], "residual"),
        ("publish", ["--help"], "renders the documentation anew"),
        ("compare", ["--help"], "what changed between two results files"),
        ("models", ["--help"], "the fifteen models"),
    ],
)
def test_the_others(module: str, words: list[str], shown: str) -> None:
    assert shown.lower() in " ".join(run(module, *words).lower().split())


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ["--engines", "partita walk", "--nodes", "300000", "--results", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.partition", *words],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    deadline = time.monotonic() + 300
    while not list(folder.glob("*/residual.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130 and "stopped; nothing of this benchmark was written" in errors
    assert "Traceback" not in errors
    assert not list(folder.iterdir()) and not list(tmp_path.glob("*.json"))


@pytest.mark.slow
def test_threads(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    pytest.importorskip("onnxruntime")
    said = run("threads", "--tiny", "--results", str(tmp_path))
    assert "Fresh processes (2 of each model)" in said and "of 2 slow)" in said
    result = kept(tmp_path, "threads")
    situations = ["alone", "beside a rival", "1 caller", "2 callers", "4 callers"]
    assert [(row.case["situation"], row.engine) for row in result.rows] == [
        (situation, engine) for situation in situations for engine in ("partita", "onnxruntime")
    ]
    assert all(row.times and len(row.times.processes) == 2 for row in result.rows)


@pytest.mark.slow
def test_placing() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    said = run("placing", "--tiny")
    row = next(line for line in said.splitlines() if line.startswith("| squeezenet")).split("|")
    assert min(float(row[i]) for i in range(2, 7)) > 0 and "±" in row[8]
    assert "slower than the best device by more than the spread in" in said
