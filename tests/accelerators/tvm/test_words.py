"""Small things that are told or named: progress at a terminal, a compiler's complaint, names in TVM's text, lists of names."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tvm")

from partita.accelerators.tvm import bodies_to_kernels
from partita.accelerators.tvm.bodies_to_kernels import _Progress
from partita.accelerators.tvm.code import nvcc
from partita.accelerators.tvm.compiled.assembling import plain_name
from partita.accelerators.tvm.layouts.narrowing import listed
from partita.accelerators.tvm.run.runtime import has_backend


@pytest.mark.parametrize(
    ("total", "has_callback", "is_terminal", "texts"),
    [
        (2, False, True, ["\rcpu: kernel 1 of 2: first\033[K", "\rcpu: kernel 2 of 2: second\033[K", "\r\033[K"]),
        (1, False, True, []), (2, False, False, []), (2, True, True, []),
    ],
)
def test_progress_is_shown_at_a_terminal(
    total: int, has_callback: bool, is_terminal: bool, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of a single kernel, not in a pipe, and not where a callback is told."""
    shown, told = list[str](), list[tuple[int, int, str]]()
    monkeypatch.setattr(bodies_to_kernels, "at_a_terminal", lambda: is_terminal)
    monkeypatch.setattr(bodies_to_kernels, "show_progress", lambda text, end: shown.append(text + end))
    with _Progress("cpu", total, (lambda *args: told.append(args)) if has_callback else None) as progress:
        for key, name in [("a", "first"), ("b", "second"), ("a", "again")][: total + 1]:
            progress.step(key, name)
    assert shown == texts
    assert told == ([(0, 2, "first"), (1, 2, "second")] if has_callback else [])


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("nvcc warning: old\nkernel.cu(3): error: no such thing\nanother error", "kernel.cu(3): error: no such thing"),
        ("note\nnvcc fatal   : Value 'sm_1' is not defined", "nvcc fatal   : Value 'sm_1' is not defined"),
        ("  it went wrong  ", "it went wrong"), ("x" * 300, "x" * 200),
    ],
)
def test_the_first_error_of_a_compiler_is_told(said: str, complaint: str) -> None:
    error = nvcc._refusal("nvcc", said, "sm_1")
    assert error.cause == f"nvcc refuses the generated code: {complaint}"
    assert error.remedy == "Is sm_1 an architecture that this nvcc knows?"


def test_cuda_s_compiler_is_found_on_the_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then in the folders of CUDA_HOME and CUDA_PATH, then as a library."""
    beside = tmp_path / "bin" / "nvcc"
    beside.parent.mkdir()
    found: list[str | None] = ["/programs/nvcc", None, None, None]
    monkeypatch.setattr(nvcc, "find_program", lambda name: found.pop(0))
    monkeypatch.setattr(nvcc, "_has_nvrtc", lambda: len(found) > 0)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "absent"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    ask = nvcc.compiler.__wrapped__
    beside.write_text("")
    assert ask() == "/programs/nvcc"
    assert ask() == str(beside)
    beside.unlink()
    assert ask() == nvcc.NVRTC or Path("/usr/local/cuda/bin/nvcc").exists()
    assert ask() is None or Path("/usr/local/cuda/bin/nvcc").exists()


@pytest.mark.parametrize(
    ("name", "plain"),
    [("relu_1", "relu_1"), ("1st", "v1st"), ("a.b/c", "a_b_c"), ("", "v"), ("é9", "_9"), ("_", "_"), ("²", "_")],
)
def test_names_in_tvm_s_text(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@pytest.mark.parametrize(("count", "more"), [(1, ""), (8, ""), (9, " and 1 more"), (20, " and 12 more")])
def test_the_first_names_are_listed_once_each(count: int, more: str) -> None:
    names = [f"op{i}" for i in range(count)]
    assert listed([*names, "op0"]) == ", ".join(names[:8]) + more


def test_a_library_of_tvm_s_that_is_missing_is_no_error() -> None:
    assert has_backend("no_such_library") is False
