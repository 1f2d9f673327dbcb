"""Each test has a cache folder of its own."""

from __future__ import annotations

import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "partita"


@pytest.fixture
def cpu():
    try:
        return accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def compiles(cpu, monkeypatch):
    """The subgraphs that were really compiled."""
    seen = []
    kind = type(cpu)
    real = kind.compile

    def counted(self, graph, config):
        seen.append(graph.name)
        return real(self, graph, config)

    monkeypatch.setattr(kind, "compile", counted)
    return seen
