"""What the shell completes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from partita.cli.main import SHELLS, VERBS
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


def test_bash_completes_verbs_options_and_files(partita: Command, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    (tmp_path / "partita.bash").write_text(partita("--completion bash").out)
    (tmp_path / "squeezenet.onnx").touch()

    def completed(*words: str) -> list[str]:
        """What bash offers for the last word."""
        asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        script = f'. ./partita.bash; {asked}; _shtab_partita; echo "${{COMPREPLY[@]}}"'
        return subprocess.check_output(["bash", "-c", script], cwd=tmp_path, text=True, timeout=300).split()

    assert completed("partita", "ben") == ["bench"]
    assert completed("partita", "run", "--prof") == ["--profile"]
    assert completed("partita", "run", "squ") == ["squeezenet.onnx"]
