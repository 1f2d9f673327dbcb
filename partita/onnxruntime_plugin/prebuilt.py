"""Libraries in a package, which are written when it is built: the provider's own, and compute.c."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

from partita.accelerators.tvm.code.linking import has_ziglang, tools
from partita.onnxruntime_plugin import machine_code
from partita.onnxruntime_plugin.library import library_file
from partita.onnxruntime_plugin.register import plugin_path
from partita.passes.python_child import module_command

GLIBC = "2.17"
"""The oldest version that the compiled library runs with."""


def plugin(folder: Path) -> str:
    """The path of the provider's library with the default devices. Of this package's files those of this version are loaded."""
    native = folder / _native(platform.machine())
    if native.exists():
        machine_code.prebuilt = native
    return plugin_path(file=folder / _provider(platform.machine()))


def write(folder: Path, processor: str) -> Iterator[Path]:
    """Writes the libraries for a processor, and yields their paths. For compute.c that takes the package ziglang, or this
    machine's compiler if the processor is its own."""
    provider = folder / _provider(processor)
    provider.write_bytes(library_file(processor).content)
    yield provider
    programs = tools()
    if has_ziglang():
        compiler = *module_command("ziglang"), "cc", "-target", f"{processor}-linux-gnu.{GLIBC}"
    elif processor == platform.machine() and programs is not None and programs.compile:
        compiler = programs.compile
    else:
        return
    native = folder / _native(processor)
    if machine_code.build(native, *compiler):
        yield native


def _provider(processor: str) -> str:
    return f"libonnxruntime_providers_partita-{processor}.so"


def _native(processor: str) -> str:
    """The name of compute.c's library, which differs where the source does."""
    return f"compute-{hashlib.sha256(machine_code.SOURCE.read_bytes()).hexdigest()[:16]}-{processor}.so"
