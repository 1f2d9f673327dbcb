"""Kernels between guard pages, in a few seconds; `python -m tests.fuzz.guard` goes on for as long as one likes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.guard.__main__ import Campaign
from tests.fuzz.guard.pages import PAGE, guarded_copy
from tests.fuzz.guard.subjects import KINDS, RECIPES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def campaign():
    result = Campaign()
    yield result
    result.close()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.thinned(3)
def test_a_kind_of_kernel_stays_within_its_arrays(name: str, campaign: Campaign) -> None:
    before = campaign.tally.kernels
    assert {campaign.try_model(name, seed) for seed in range(3)} == {"ran"}
    assert campaign.tally.failures == []
    assert campaign.tally.kernels > before


def test_each_op_alone_stays_within_its_arrays(campaign: Campaign) -> None:
    before = campaign.tally.outcomes["ran"]
    for name in sorted(set(RECIPES) - {"Call", "QDQ"})[::5]:
        campaign.try_model(name, 0)
    assert campaign.tally.failures == []
    assert campaign.tally.outcomes["ran"] - before > 15


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (PAGE // 4,), (PAGE // 4 + 1,), (0, 3)])
def test_an_array_lies_at_an_end_of_its_pages(shape: tuple[int, ...], at_end: bool) -> None:
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    result = guarded_copy(array, at_end)
    np.testing.assert_array_equal(result, array)
    address = result.ctypes.data
    assert result.flags.writeable and ((address + result.nbytes) % PAGE == 0 if at_end else address % PAGE == 0)


TOUCHES = """
import faulthandler, sys
import numpy as np
from numpy.lib.stride_tricks import as_strided
from tests.fuzz.guard.pages import guarded_copy
at_end, reads = sys.argv[1] == "end", sys.argv[2] == "read"
array = guarded_copy(np.arange(9, dtype="float32"), at_end)
outside = as_strided(array, (10,), (4 if at_end else -4,))[9:] if at_end else np.frombuffer(
    (__import__("ctypes").c_float * 1).from_address(array.ctypes.data - 4), "float32")
print("begins", flush=True)
if reads:
    print(float(outside[0]))
else:
    outside[0] = 1
print("still here")
"""


@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize("end", ["end", "beginning"])
def test_one_element_outside_ends_the_process(end: str, way: str) -> None:
    assert _signal_of(TOUCHES, end, way) == signal.SIGSEGV


SHORT = """
import sys
import numpy as np
import partita as pt
import tests.fuzz.guard.kernels as kernels
from tests.fuzz.guard.pages import Guarded

def one_short(array, at_end, alignment=4):
    lies = Guarded(array.nbytes - array.itemsize, at_end, alignment).bytes
    copied = np.lib.stride_tricks.as_strided(lies, (array.nbytes,), (1,)).view(array.dtype).reshape(array.shape)
    copied.reshape(-1)[:-1] = array.reshape(-1)[:-1]
    return copied

sizes = {"input": (3, 9), "weight": (9, 5), "output": (3, 5)}
x = pt.variable("x", "float32", sizes["input"])
graph = pt.Graph([pt.op("MatMul", x, pt.constant(np.ones(sizes["weight"], "float32")))], name="g")
real = kernels.guarded_copy
def guarded(array, at_end, alignment=4):
    chosen = sys.argv[1] in sizes and array.size == np.prod(sizes[sys.argv[1]])
    return (one_short if chosen and armed else real)(array, at_end, alignment)
kernels.guarded_copy = guarded
kernels.GuardedRun._fill = staticmethod(lambda guarded, arrays: None)
armed = False
def begin(symbol):
    global armed
    armed = True
    print("begins", flush=True)
print(kernels.run_guarded(graph, [np.ones((3, 9), "float32")], begin))
print("still here")
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("which", ["input", "output"])
def test_a_kernel_that_touches_one_element_outside_ends_the_process(which: str) -> None:
    """An array that is one element too short stands for a kernel that goes one element too far."""
    assert _signal_of(SHORT, which) == signal.SIGSEGV


def test_a_kernel_that_does_not_is_let_through() -> None:
    assert _signal_of(SHORT, "none") is None


def _signal_of(code: str, *arguments: str) -> int | None:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.startswith("begins"), done.stderr[-2000:]
    if done.returncode == 0:
        assert done.stdout.rstrip().endswith("still here")
        return None
    assert done.returncode < 0, done.stderr[-2000:]
    return -done.returncode
