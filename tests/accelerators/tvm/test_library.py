"""TVM is imported without what only GPUs need of it, which comes when a GPU is compiled for; its names are listed once."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.tvm.machine import library
from partita.accelerators.tvm.machine.library import HOOKS, short_import

pytest.importorskip("tvm")

IMPORTING = """
import os
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.accelerators.tvm.machine.library import HOOKS
loaded, reference = tvm().backend.is_loaded, tvm().runtime.disco.DRef
print(loaded("cuda"), os.environ.get(HOOKS), "__tvm_ffi_type_info__" in vars(reference))
print(gpu_machine("sm_80").target.kind.name, loaded("cuda"))
"""
"""A type that TVM does not know is an error while it is imported, and the first error takes it a third of a second."""


@pytest.mark.parametrize(("said", "printed"), [(None, "False None"), ("1", "True 1")], ids=["by default", "asked for"])
def test_the_hooks_for_gpus(said: str | None, printed: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != HOOKS} | ({HOOKS: said} if said else {})
    done = subprocess.run([sys.executable, "-c", IMPORTING], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == ([f"{printed} True", "cuda True"], 0), done.stderr


BESIDE_TORCH = """
import importlib, sys
from concurrent.futures import ThreadPoolExecutor
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.run.runtime import without_torch
part("relax"), part("script.ir_builder")
print("torch" in sys.modules)
with without_torch(), ThreadPoolExecutor(1) as other:
    try:
        import torch
    except ImportError:
        print(other.submit(importlib.import_module, "torch").result().__name__)
"""


def test_torch_is_not_imported_with_it(tmp_path: Path) -> None:
    """It would be wherever it is installed, for two seconds or more. Other threads find it."""
    (tmp_path / "torch.py").write_text("")
    paths = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", BESIDE_TORCH], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "False\ntorch\n", done.stderr


AT_ONCE = """
import importlib, threading, time
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.library import gpu_hooks
tvm()
cuda, begun = importlib.import_module("tvm.backend.cuda"), threading.Event()
register = cuda.register_backend
def slowly():
    begun.set()
    time.sleep(0.3)
    register()
cuda.register_backend = slowly
threading.Thread(target=gpu_hooks, args=("cuda",)).start()
begun.wait()
gpu_hooks("cuda")
header = importlib.import_module("tvm_ffi").get_global_func("tirx.intrinsics.cuda.header_generator", allow_missing=True)
print(header is not None)
"""


def test_a_second_thread_waits_until_the_hooks_are_there() -> None:
    """Else it makes code without them, which TVM refuses."""
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_names_are_listed_anew_only_where_there_are_more() -> None:
    registry: Any = importlib.import_module("tvm_ffi.registry")
    listed = registry.list_global_func_names
    with short_import():
        before = registry.list_global_func_names()
        assert before == listed() and registry.list_global_func_names() is before
        registry.register_global_func("partita.short_import", lambda: None)
        assert "partita.short_import" in registry.list_global_func_names()
    registry.remove_global_func("partita.short_import")
    assert registry.list_global_func_names is listed


def test_two_threads_import_at_once() -> None:
    registry: Any = importlib.import_module("tvm_ffi.registry")
    listed, inside, go_on = registry.list_global_func_names, threading.Event(), threading.Event()

    def other() -> None:
        with short_import():
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=other)
    with short_import():
        thread.start()
        assert not inside.wait(0.05)
    go_on.set()
    thread.join()
    assert inside.is_set() and registry.list_global_func_names is listed and HOOKS not in os.environ


@pytest.mark.parametrize(("version", "is_old"), [("0.26.9", True), ("0.27.0", False), ("0.27.dev0", False), ("1.2", False)])
def test_a_version_that_is_too_old_is_an_error(version: str, is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(__version__=version)
    imported = SimpleNamespace(import_module=lambda name: module if name == "tvm" else importlib.import_module(name))
    monkeypatch.setattr(library, "importlib", imported)
    monkeypatch.setattr(library, "OLDEST", (0, 27))
    if is_old:
        with pytest.raises(AcceleratorUnavailable, match=r"TVM 0.26.9 is too old[\s\S]*pip install 'apache-tvm[^']*>=0.27'"):
            library.tvm.__wrapped__()
    else:
        assert library.tvm.__wrapped__() is module
