"""What holds for every verb: help, exit status, where things are printed, what bad input leads to."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import partita as pt
from partita.cli import exits
from partita.cli.main import VERBS, make_parser
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "partita"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_version(partita: Command) -> None:
    assert partita("--version").out == f"partita {pt.__version__}\n"


def test_the_version_is_known_without_the_rest() -> None:
    code = (
        "import sys; from partita.cli.main import main; main(['--version']); "
        "print([name for name in ('numpy', 'partita.graph', 'rich') if name in sys.modules])"
    )
    completed = subprocess.check_output([sys.executable, "-c", code], env=environment(), text=True, timeout=300)
    assert completed == f"partita {pt.__version__}\n[]\n"


def test_nothing_asked(partita: Command) -> None:
    done = partita("")
    assert (done.status, done.out) == (exits.USAGE, "")
    assert "partita inspect zoo:resnet50" in done.err


def test_the_list_of_verbs_has_the_first_line_of_each(partita: Command) -> None:
    printed = " ".join(partita("--help").out.split())
    for verb in VERBS:
        about = importlib.import_module(f"partita.cli.{verb}").__doc__ or ""
        assert f" {verb} {' '.join(about.strip().partition(chr(10))[0].split())} " in printed, verb


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(partita: Command, verb: str) -> None:
    done = partita(f"{verb} --help")
    assert done.status == 0
    assert f"example:\n  partita {verb}" in done.out
    assert "--json" in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_are_well_formed(verb: str) -> None:
    for line in importlib.import_module(f"partita.cli.{verb}").EXAMPLE.strip().splitlines():
        make_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--debug", "a verb comes first, not '--debug'\n  See partita --help."),
        ("frobnicate", "there is no verb 'frobnicate'\n  There are devices, inspect, "),
        ("inpsect m", "there is no verb 'inpsect'\n  Did you mean 'inspect'?"),
        ("inspect", "the following arguments are required: MODEL"),
        ("inspect m --shape x", "'x' is not a shape: write NAME=1,3,224,224"),
        ("run m --config x", "'x' is not a setting"),
        ("run m --devcies cpu", "there is no option '--devcies'\n  Did you mean '--devices'?"),
        ("run m --chekc", "there is no option '--chekc'\n  Did you mean '--check'"),
        ("run m n", "'n' is one argument too many\n  See partita run --help."),
        ("cache list", "invalid choice: 'list'"),
        ("run m --devices cpu --devices cuda", "argument --devices: it is given twice, and takes one value\n  See"),
        ("run m -o a.npz --output b.npz", "argument -o/--output: it is given twice, and takes one value"),
        ("run m --fail-on slow", "'slow' is not a condition for --fail-on: there are difference, moved, fallback"),
        ("run m --fail-on move", "'move' is not a condition for --fail-on: Did you mean 'moved'?"),
        ("bench m --fail-on slower=abc", "argument --fail-on: 'abc' is not a number: write slower=1.1"),
        ("bench m --fail-on refused=2", "argument --fail-on: 'refused' takes no number"),
        ("bench m --fail-on slower=-1", "argument --fail-on: -1 is not a positive number"),
        ("bench m --fail-on slower", "--fail-on slower compares with others, and there are none"),
        ("bench m --seconds -1", "-1 is not a positive number"),
        ("partition m --select A --backend b", "not allowed with argument"),
    ],
)
def test_usage(partita: Command, line: str, message: str) -> None:
    done = partita(line)
    assert (done.status, done.out) == (exits.USAGE, "")
    assert message in done.err


def test_usage_as_json(partita: Command) -> None:
    done = partita("run m --chekc --json")
    assert done.status == exits.USAGE
    assert done.json["error"]["cause"] == "there is no option '--chekc'"


@pytest.mark.parametrize("verb", ["inspect", "partition", "run", "bench", "compile", "tune"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.onnx", "none.onnx: there is no such file"),
        (".", ".: it is a directory"),
        ("cut.onnx", "cut.onnx: "),
        ("text.onnx", "text.onnx: this is not an ONNX model"),
        ("zoo:resnet5", "Did you mean 'resnet50'?"),
        ("zoo:", "It has bvlc_alexnet, densenet121"),
        ("cut.json", "cut.json: "),
    ],
)
def test_bad_models(partita: Command, model: str, verb: str, name: str, message: str) -> None:
    Path("cut.onnx").write_bytes(Path(model).read_bytes()[:-20])
    Path("text.onnx").write_text("hello\n")
    Path("cut.json").write_text('{"nodes": [')
    done = partita(f"{verb} {name}" + (" -o out.partita" if verb == "compile" else ""))
    assert (done.status, done.out) == (exits.NO, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert not Path("out.partita").exists()


def test_errors_as_data(partita: Command) -> None:
    done = partita("inspect zoo:resnet5 --json")
    assert done.status == exits.NO
    assert done.json["error"] == {
        "kind": "ReadError",
        "cause": "there is no model 'resnet5' in the zoo",
        "where": "zoo:resnet5",
        "remedy": "Did you mean 'resnet50'?",
    }


@pytest.mark.parametrize("verb", ["partition", "run", "bench", "compile", "explain"])
def test_a_wrong_device(partita: Command, model: str, verb: str) -> None:
    more = {"explain": "relu1", "compile": "-o o.partita"}.get(verb, "")
    done = partita(f"{verb} {model} {more} --devices HETERO:cpy,reference")
    assert done.status == exits.NO
    assert done.err.endswith("error: there is no device 'cpy'\n  Did you mean 'cpu'?\n")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/out.onnx", "nowhere/out.onnx: there is no folder 'nowhere'\n  Make it first."),
        (".", ".: it is a directory\n  Name a file."),
        ("small.onnx", "small.onnx: this would overwrite the model itself"),
    ],
)
@pytest.mark.parametrize("option", ["-o", "--dot", "--svg", "--plan", "--report"])
def test_where_nothing_can_be_written(
    partita: Command, model: str, option: str, path: str, message: str
) -> None:
    before = Path(model).read_bytes()
    done = partita(f"partition {model} --select Conv {option} {path}")
    assert (done.status, done.out) == (exits.NO, "")
    assert message in done.err
    assert Path(model).read_bytes() == before


def test_debug_shows_where_an_error_came_from(partita: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in partita("inspect none.onnx --debug").err
    monkeypatch.setenv("PARTITA_DEBUG", "1")
    assert "Traceback" in partita("inspect none.onnx").err


def test_a_fault_of_ours(partita: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.cli.inspect.count_flops", lambda graph: 1 // 0)
    done = partita(f"inspect {model}")
    assert done.status == exits.FAULT
    assert "Traceback" in done.err
    assert "This is a fault in Partita" in done.err


def test_hostile_names(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No control character of a model's names reaches the terminal; JSON keeps them, escaped."""
    monkeypatch.chdir(tmp_path)
    evil = "\x1b]0;owned\x07\x1b[2J[red]\u202e<script>"
    x = pt.variable("x", "float32", (2,))
    pt.save(pt.Graph([pt.op("Relu", x, name=evil)], name=evil), "evil.onnx")
    for line in (
        "inspect evil.onnx --nodes",
        "partition evil.onnx --select Relu",
        f"explain evil.onnx {shlex.quote(evil)} --select Exp",
        f"explain evil.onnx {shlex.quote(evil + '?')}",
        "run evil.onnx --devices reference --check",
    ):
        done = partita(line)
        assert not {"\x1b", "\x07", "\u202e"} & set(done.out + done.err), line
        assert "[red]" in done.out + done.err
    assert partita("inspect evil.onnx --nodes --json").json["nodes"][0]["node"] == evil


def test_progress_and_results_go_separate_ways(partita: Command, model: str) -> None:
    done = partita(f"run {model} --devices reference --json")
    json.loads(done.out)
    assert done.err.splitlines() == ["reading small.onnx", "compiling for reference", "running", "measuring"]
    assert partita(f"run {model} --devices reference --quiet").err == ""


@pytest.mark.parametrize(
    ("effort", "said"), [("--iterations 2", "measuring 2 runs of each"), ("--seconds 0.05", "measuring for about 0.05 s")]
)
def test_how_long_is_measured_is_said_before(partita: Command, model: str, effort: str, said: str) -> None:
    assert partita(f"bench {model} --devices reference {effort}").err.splitlines()[-1] == said


def test_colours_only_on_a_terminal() -> None:
    import pty

    def shown(**more: str) -> bytes:
        ours, theirs = pty.openpty()
        subprocess.run(
            [*COMMAND, "devices", "x"],
            stderr=theirs,
            env=environment(TERM="xterm-256color", **more),
            check=False,
        )
        os.close(theirs)
        text = os.read(ours, 10_000)
        os.close(ours)
        return text

    assert b"\x1b[31merror:" in shown()
    assert b"\x1b[3" not in shown(NO_COLOR="1")


def test_a_reader_that_goes_away() -> None:
    child = subprocess.Popen(
        [*COMMAND, "devices"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert (child.stderr.read(), child.wait()) == ("", exits.BROKEN_PIPE)
    child.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_disk_that_is_full() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "devices"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
            check=False,
        )
    assert (done.stderr, done.returncode) == (
        "error: the output cannot be written: No space left on device\n",
        exits.NO,
    )


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_process_whose_streams_are_closed(model: str, closed: str) -> None:
    command = f"{shlex.join(COMMAND)} inspect {model} {closed}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, env=environment(), text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_output_in_ascii(model: str) -> None:
    done = subprocess.run(
        [*COMMAND, "inspect", model],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_ctrl_c(model: str) -> None:
    command = [*COMMAND, "bench", model, "--devices", "reference", "--seconds", "60"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    assert child.stderr is not None
    while "measuring" not in (line := child.stderr.readline()):
        assert line, "it ended by itself"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert (out, err, child.returncode) == ("", "error: interrupted\n", exits.INTERRUPTED)


def test_a_table_that_is_too_wide_goes_without_its_frame(partita: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "┃ layer_type ┃" in partita(f"run {model} --devices reference").out
    monkeypatch.setenv("COLUMNS", "90")
    narrow = partita(f"run {model} --devices reference").out.partition("(the inputs given)")[2]
    assert "EXECUTED" in narrow and "│" not in narrow
    assert max(map(len, narrow.splitlines())) <= 90
