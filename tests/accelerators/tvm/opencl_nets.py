"""What the tests of `opencl` share: small graphs, and code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.tvm.compiled.launched import CompiledOpenCl

Value = Any

ROOT = Path(__file__).parents[3]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def x(*shape: int, dtype: str = "float32") -> Value:
    return pt.variable("x", dtype, shape)


def net() -> pt.Graph:
    hidden = pt.op("Relu", pt.op("MatMul", x(4, 8), pt.constant(numbers(8, 16)), name="first"), name="relu")
    last = pt.op("Softmax", pt.op("MatMul", hidden, pt.constant(numbers(16, 3)), name="second"), name="last")
    return pt.Graph([last], name="net")


def unit(model: pt.CompiledModel) -> CompiledOpenCl:
    compiled = model.units[0].compiled
    assert isinstance(compiled, CompiledOpenCl)
    return compiled


def alone(code: str) -> str:
    """What the code prints in a process of its own."""
    environment, command = {**os.environ, "PYTHONPATH": str(ROOT)}, [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment, check=True)
    return done.stdout
