"""What the shell completes."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from partita.cli.completion import SHELLS
from partita.cli.main import VERBS
from tests.cli.conftest import Command


def test_without_its_package(partita: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    done = partita("--completion bash")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "error: writing the completion for a shell needs the package 'shtab', which is not installed\n"
        "  Install it with: pip install 'partita[completion]'.\n"
    )


def test_a_shell_that_is_not_known(partita: Command) -> None:
    done = partita("--completion fish")
    assert done.status == 2
    assert "argument --completion: invalid choice: 'fish' (choose from 'bash', 'zsh', 'tcsh')" in done.err


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_is_completed(partita: Command, shell: str) -> None:
    pytest.importorskip("shtab")
    done = partita(f"--completion {shell}")
    assert done.status == 0
    assert [verb for verb in VERBS if verb not in done.out] == []


def test_tcsh_completes_files_folders_and_words(partita: Command) -> None:
    """It has no list of words beside files, and takes files."""
    pytest.importorskip("shtab")
    done = partita("--completion tcsh")
    rules = dict(line.strip("' \\").rsplit("/", 2)[:2] for line in done.out.splitlines() if line.startswith("        '"))
    expected = {
        "n/inspect": "f:*", "n/diff": "f", "c/--params=": "f", "n/--params": "f", "c/--folder=": "d",
        "c/--objective=": "(latency throughput)", "n/cache": "(ls explain clear path)",
    }
    assert {place: rules.get(place) for place in expected} == expected
    assert rules["n/--devices"].startswith("(cpu ") and rules["n/--devices"].endswith(" HETERO:cpu,reference)")
    assert not rules["n/--device"].endswith("HETERO:cpu,reference)")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_has_no_errors(partita: Command, shell: str) -> None:
    pytest.importorskip("shtab")
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = partita(f"--completion {shell}").out
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_verbs_options_files_and_values(partita: Command, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    (tmp_path / "partita.bash").write_text(partita("--completion bash").out)
    (tmp_path / "squeezenet.onnx").touch()
    (tmp_path / "parts").mkdir()

    def completed(*words: str) -> list[str]:
        """What bash offers for the last word."""
        asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        script = f'. ./partita.bash; {asked}; _shtab_partita; echo "${{COMPREPLY[@]}}"; echo "$COMP_WORDBREAKS" >&2'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
        assert ":" not in done.stderr
        return done.stdout.split()

    assert completed("partita", "ben") == ["bench"]
    assert completed("partita", "run", "--prof") == ["--profile"]
    assert completed("partita", "run", "squ") == ["squeezenet.onnx"]
    assert completed("partita", "run", "zoo:sq") == ["zoo:squeezenet"]
    assert completed("partita", "compare", "squeezenet.onnx", "zoo:sh") == ["zoo:shufflenet"]
    assert completed("partita", "run", "squeezenet.onnx", "--devices", "ref") == ["reference"]
    assert completed("partita", "run", "squeezenet.onnx", "--devices", "HET") == ["HETERO:cpu,reference"]
    assert completed("partita", "partition", "squeezenet.onnx", "--growth", "wa") == ["walk", "waves"]
    assert completed("partita", "run", "squeezenet.onnx", "--devices", "HETERO:cpu,re") == ["HETERO:cpu,reference"]
    assert "HETERO:cpu,cpu" not in completed("partita", "run", "squeezenet.onnx", "--devices", "HETERO:cpu,")
    assert completed("partita", "bench", "squeezenet.onnx", "--vs", "reference,cp") == ["reference,cpu"]
    assert completed("partita", "passes", "squeezenet.onnx", "--device", "HET") == []
    assert completed("partita", "bench", "squeezenet.onnx", "--fail-on", "ne") == ["never"]
    assert completed("partita", "bench", "squeezenet.onnx", "--fail-on", "refused,dif") == ["refused,difference"]
    assert completed("partita", "bench", "squeezenet.onnx", "--fail-on", "sl") == ["slower"]
    assert completed("partita", "compile", "squeezenet.onnx", "--arch", "neoverse-v") == ["neoverse-v1", "neoverse-v2"]
    assert completed("partita", "precision", "squeezenet.onnx", "--precisions", "int4") == ["int4-weights"]
    assert completed("partita", "map", "squeezenet.onnx", "--output", "p") == ["parts"]


SET_UP = {
    "bash": r""". ./_partita; bind 'set bell-style none'; bind -x '"\C-g": echo "<<$READLINE_LINE>>"'; PS1='re'ady""",
    "zsh": "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; unsetopt beep; "
    "show() { print -r -- \"<<$BUFFER>>\" }; zle -N show; bindkey '^G' show; PS1='re'ady",
}
"""What an interactive shell is told first: Ctrl-G prints the line typed so far, and the prompt becomes "ready"."""


@pytest.mark.parametrize("shell", SET_UP)
def test_the_tabulator_in_a_terminal(partita: Command, shell: str, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "_partita").write_text(partita(f"--completion {shell}").out)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "deep.onnx").touch()
    lines = {
        "ben": "bench",
        "run zoo:sq": "run zoo:squeezenet",
        "run mod": "run models/",
        "run models/d": "run models/deep.onnx",
        "run net.onnx --devices HET": "run net.onnx --devices HETERO:cpu,reference",
        "run net.onnx --devices HETERO:cpu,re": "run net.onnx --devices HETERO:cpu,reference",
        "bench net.onnx --fail-on refused,dif": "bench net.onnx --fail-on refused,difference",
        "partition net.onnx --growth wal": "partition net.onnx --growth walk",
        "compile net.onnx --arch sm_12": "compile net.onnx --arch sm_120",
    }
    assert _typed(shell, lines, tmp_path) == list(lines.values())


def _typed(shell: str, lines: Iterable[str], folder: Path) -> list[str]:
    """Each line after the tabulator key, in a terminal; in bash, a space follows a word that is whole."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        quiet = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[shell]
        os.execvpe(shell, [shell, *quiet, "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder)})
    typed = []
    try:
        os.write(terminal, f"{SET_UP[shell]}\n".encode())
        _printed(terminal, "ready")
        for line in lines:
            os.write(terminal, f"partita {line}\t\x07".encode())
            typed.append(_printed(terminal, ">>").rpartition("<<partita ")[2].partition(">>")[0].strip())
            os.write(terminal, b"\x15")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    return typed


def _printed(terminal: int, end: str) -> str:
    """The terminal's text, until `end` is printed."""
    text = ""
    while end not in text:
        readable, _, _ = select.select([terminal], [], [], 60)
        assert readable, text
        text += os.read(terminal, 1 << 16).decode()
    return text
