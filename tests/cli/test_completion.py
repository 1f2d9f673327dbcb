"""What the shell completes."""

from __future__ import annotations

import shutil
import subprocess
import sys
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
    assert completed("partita", "bench", "squeezenet.onnx", "--fail-on", "ne") == ["never"]
    assert completed("partita", "precision", "squeezenet.onnx", "--precisions", "int4") == ["int4-weights"]
    assert completed("partita", "map", "squeezenet.onnx", "--output", "p") == ["parts"]
