"""ONNX's version converter in a child process: the same models, and a crash or a hang of ONNX ends nothing but one conversion."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from partita.graph import PassError
from partita.passes import apply_pass, settings, version_converter

from .before_after import text


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    settings.isolate_inference = True
    yield
    settings.isolate_inference = False


CONVERTED = (
    ("graph net(x: float32[2, 3]) -> (y) { y = Softmax(x) {axis=1} }", 12),
    ("graph net(x: float32[2, 3]) -> (y) { y = ReduceMean(x) {axes=[1]} }", 18),
    ("func f(a) -> (b) { b = Relu(a) }\n graph g(x: float32[3]) -> (y) { y = call f(x) }", 13),
    ("graph net(x: float32[2, 3]) -> (y) { y = GridSample(x, x) }", 11),
)


@pytest.mark.parametrize(("net", "opset"), CONVERTED)
def test_opsets_are_converted_in_the_child_as_here(net: str, opset: int) -> None:
    def converted() -> str:
        try:
            return str(apply_pass(text(net, "16" if opset == 18 else "21"), "ConvertOpset", opset=opset, verify=False))
        except PassError as error:
            return str(error)

    there = converted()
    settings.isolate_inference = False
    assert there == converted()


SOFTMAX = "graph net(x: float32[2, 3]) -> (y) { y = Softmax(x) {axis=1} }"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", r"ONNX's version converter ended its process \(signal 6\)"),
        ("raise SystemExit(9)", r"ONNX's version converter ended its process \(exit status 9\)"),
        ("import time; time.sleep(60)", r"ONNX's version converter took more than 0.5 s and was stopped"),
    ],
)
def test_a_crash_of_the_converter_is_an_error(monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    monkeypatch.setattr(version_converter, "COMMAND", [sys.executable, "-c", code])
    if "sleep" in code:
        monkeypatch.setattr(version_converter, "LONGEST", 0.5)
    with pytest.raises(PassError, match=said):
        apply_pass(text(SOFTMAX, "21"), "ConvertOpset", opset=15)


def test_the_command_line_isolates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.cli import devices
    from partita.cli.main import main

    seen: list[bool] = []
    monkeypatch.setattr(devices, "run", lambda arguments, screen: seen.append(settings.isolate_inference) or 0)
    settings.isolate_inference = False
    assert main(["devices"]) == 0 and seen == [True]
    assert not settings.isolate_inference, "what a program has set stays"
