"""Imports openvino without its telemetry."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from accelerators.process.forking import Guard

_guard = Guard()


def import_openvino() -> Any:
    """The package openvino.

    Its import would report itself over the network; with the reporting package hidden it uses its own stub.
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
