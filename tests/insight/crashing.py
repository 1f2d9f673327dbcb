"""Devices whose process ends, or never returns, while it runs one op."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import partita as pt
from tests.insight.small_devices import Interpreted


def crash(node: pt.Node, inputs: Sequence[Any]) -> Sequence[Any]:
    os.abort()


class Crashing(pt.Accelerator):
    """Aborts at the average of a picture."""

    name = "crashing"

    def supports(self, node: pt.Node, graph: pt.Graph) -> bool:
        return True

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        return Interpreted(graph, "GlobalAveragePool", crash)


HANGS = "PARTITA_TEST_HANGS"
"""The variable of the environment that names the file which a device that hangs writes first."""


def hang(node: pt.Node, inputs: Sequence[Any]) -> Sequence[Any]:
    Path(os.environ[HANGS]).touch()
    time.sleep(1000)
    raise AssertionError


class Hanging(Crashing):
    """Never returns from the average of a picture."""

    name = "hanging"

    def compile(self, graph: pt.Graph, config: Mapping[str, Any]) -> pt.CompiledSubgraph:
        return Interpreted(graph, "GlobalAveragePool", hang)
