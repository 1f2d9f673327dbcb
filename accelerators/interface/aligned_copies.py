"""Runs a compiled subgraph on arrays with the memory layout that its device needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.accelerators.arrays.layout import HOST, is_laid_out, laid_out
from partita.accelerators.interface.accelerator import CompiledSubgraph


def run_laid_out(compiled: CompiledSubgraph, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
    """Runs the subgraph; inputs with another layout or alignment are copied."""
    if compiled.memory == HOST:
        alignment = compiled.alignment
        for value in inputs:
            if type(value) is np.ndarray and not is_laid_out(value, alignment):
                inputs = [laid_out(value, alignment) for value in inputs]
                break
    return compiled.run(inputs, out)
