"""The package openvino, imported without telemetry, and its Core."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from partita.accelerators.process.forking import Guard

_guard = Guard()


def import_openvino() -> Any:
    """The package openvino.

    Its import would report itself over the network; with the telemetry package hidden it uses its own stub.
    """
    with _guard.lock:
        if "openvino" in sys.modules:
            return sys.modules["openvino"]
        hidden: dict[str, ModuleType | None] = {"openvino_telemetry": sys.modules.get("openvino_telemetry")}
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        try:
            import openvino

            return openvino
        finally:
            for name, module in hidden.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module


def load_core(engine: Any) -> Any:
    """A Core with its plugins loaded, by a thread that ends after that.

    The CPU plugin gives the thread that loads it a signal stack, and unmaps that when the last user of the
    plugin releases it (in openvino 2026): on a thread that lives on, the next signal would run on memory of others.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_load, engine).result()


def _load(engine: Any) -> Any:
    core = engine.Core()
    core.available_devices  # noqa: B018
    return core
