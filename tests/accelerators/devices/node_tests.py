"""ONNX's node tests, run by ONNX's own runner on devices of Partita."""

from __future__ import annotations

import re
import unittest
import warnings
from pathlib import Path

import attrs

DATA = Path(__file__).resolve().parents[2] / "data" / "onnx_backend"

_SUFFIX = "_cpu"


@attrs.frozen
class Outcome:
    """What became of the cases."""

    passed: tuple[str, ...]
    failed: dict[str, str]
    """The last line of what went wrong in each case."""


def case_names(device: str) -> list[str]:
    """All cases, in the runner's order."""
    return [name.removesuffix(_SUFFIX) for name in vars(_cases(device)) if name.startswith("test_") and name.endswith(_SUFFIX)]


def run_cases(device: str, names: list[str]) -> Outcome:
    """These cases on the device."""
    kind = _cases(device)
    passed, failed = [], {}
    for name in names:
        result = unittest.TestResult()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind(name + _SUFFIX).run(result)
        trouble = [*result.errors, *result.failures, *result.skipped]
        if trouble:
            failed[name] = " ".join(re.sub(r"(?s).*\n(?=\S)", "", trouble[0][1].strip()).split())[:200]
        else:
            passed.append(name)
    return Outcome(tuple(passed), failed)


def exceptions(file: str) -> dict[str, str]:
    """The cases that are known to fail, with reasons: lines "case: reason"."""
    lines = (DATA / file).read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def _cases(device: str) -> type[unittest.TestCase]:
    if device not in _made:
        from onnx.backend.test import BackendTest

        from partita.accelerators.onnx_backend import backend_for

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _made[device] = BackendTest(backend_for(device), __name__).test_cases["OnnxBackendNodeModelTest"]
    return _made[device]


_made: dict[str, type[unittest.TestCase]] = {}
