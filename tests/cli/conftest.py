"""A small model on disk, and the command line as a function."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from partita.cli.main import main


@attrs.frozen
class Done:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[[str], Done]


@pytest.fixture
def partita(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "140")

    def command(line: str) -> Done:
        """What one types after `partita`."""
        status = main(shlex.split(line))
        return Done(status, *capsys.readouterr())

    return command


def small_graph(batch: int | str = 1) -> pt.Graph:
    x = pt.variable("x", "float32", (batch, 3, 8, 8))
    w = pt.constant(np.random.default_rng(0).standard_normal((4, 3, 3, 3), np.float32), name="w")
    conv = pt.op("Conv", x, w, name="conv1", kernel_shape=[3, 3])
    relu = pt.op("Relu", conv, name="relu1")
    return pt.Graph([pt.op("Softmax", relu, name="softmax1", axis=1)], name="small", output_names=["y"])


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    pt.save(small_graph(), "small.onnx")
    return "small.onnx"


@pytest.fixture
def dynamic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    pt.save(small_graph("N"), "dynamic.onnx")
    return "dynamic.onnx"
