"""Subgraphs of `cuda` that are compiled once for any size, on a stand-in for NVIDIA's driver.

`tests/accelerators/tvm/test_cuda_runs.py` runs these in a process that finds the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.compiled.stepwise import KEPT
from partita.accelerators.tvm.sizes import sizing
from tests.accelerators.tvm.any_size import attention, numbers, specialized
from tests.accelerators.tvm.cuda_standin.runs import PLAIN, driver, notes, nothing_is_left
from tests.accelerators.tvm.test_gpu_images_of_any_size import NETS

__all__ = ["nothing_is_left"]

ONCE = ("cuda_0: compiled once for any size",)


@pytest.fixture(scope="module", autouse=True)
def any_rows() -> Iterator[None]:
    """Few rows are computed by the kernels for any number of them too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "FEW_ROWS", 0)
        yield


def embedding() -> pt.Graph:
    """A Gather whose indices are looked at, a product of any rows, a norm, and a softmax over any number of columns."""
    ids = pt.variable("ids", "int64", ("N", "S"))
    product = pt.op("Relu", pt.op("MatMul", pt.op("Gather", pt.constant(numbers(40, 24)), ids), pt.constant(numbers(24, 50))))
    norm = pt.op("LayerNormalization", product, pt.constant(numbers(50)), pt.constant(numbers(50)))
    return pt.Graph([pt.op("Softmax", pt.op("Transpose", norm, perm=[0, 2, 1]), axis=-1)], name="embedding")


def ids(count: int, length: int) -> np.ndarray[Any, Any]:
    return (np.arange(count * length) * 7 % 80 - 40).reshape(count, length)


def agrees(model: pt.CompiledModel, reference: pt.CompiledModel, *given: np.ndarray[Any, Any]) -> None:
    """Also where the run is recorded, and replayed; without another compilation."""
    (wanted,) = reference(*given)
    for _ in range(3):
        np.testing.assert_allclose(model(*given)[0], wanted, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))
    assert specialized(model).sizes == ()


def test_layers_of_any_size() -> None:
    """Each size has its recording, the weights are there once, and what was kept of sizes that came long ago is free."""
    graph = embedding()
    model, reference = pt.compile(graph, "cuda", config=PLAIN), pt.compile(graph, "reference")
    assert model.report.notes == ONCE
    agrees(model, reference, ids(1, 1))
    weights = sum("pageable" in line for line in notes())
    for length in range(1, KEPT + 1):
        agrees(model, reference, ids(1, 2 * length))
    held = driver().held
    agrees(model, reference, ids(1, 4))
    listed = notes()
    assert weights and not any("pageable" in line for line in listed) and sum("record" in line for line in listed) == KEPT
    agrees(model, reference, ids(1, 1))
    assert driver().held < held, "the largest sizes came last, and a small one takes the place of the smallest"
    model.close()
    assert driver().held == 0


def test_attention_of_any_length() -> None:
    graph = attention(mask=False)
    model, reference = pt.compile(graph, "cuda", config=PLAIN), pt.compile(graph, "reference")
    assert model.report.notes == ONCE and "gpu_attention" in [kernel.schedule for kernel in model.kernels()]
    for count, length in ((1, 1), (2, 17), (1, 70)):
        agrees(model, reference, numbers(count, length, 32))


@pytest.mark.parametrize("name", NETS)
def test_images_of_any_size(name: str) -> None:
    """What a kernel reads around an image is not outside of its memory, where nobody may read."""
    graph = pt.Graph([NETS[name](pt.variable("x", "float32", ("N", 3, "H", "W")))], name="net")
    model, reference = pt.compile(graph, "cuda", config=PLAIN), pt.compile(graph, "reference")
    assert model.report.notes == ONCE
    for shape in ((2, 3, 4, 6), (1, 3, 18, 14)):
        agrees(model, reference, numbers(*shape))


def test_an_index_outside_is_an_error_and_the_next_run_is_right() -> None:
    graph = embedding()
    model, reference = pt.compile(graph, "cuda", config=PLAIN), pt.compile(graph, "reference")
    agrees(model, reference, ids(2, 3))
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 40"):
        model(np.full((2, 3), 40))
    agrees(model, reference, ids(2, 3))


def test_an_exported_model_takes_any_size(tmp_path: Path) -> None:
    graph = embedding()
    pt.compile(graph, "cuda", config=PLAIN).export(tmp_path / "model.partita")
    model = pt.import_model(tmp_path / "model.partita")
    for count, length in ((1, 2), (2, 33)):
        agrees(model, pt.compile(graph, "reference"), ids(count, length))


def test_sizes_that_were_kept_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that would fit alone fits, whatever sizes came before."""
    graph = embedding()
    model, reference = pt.compile(graph, "cuda", config=PLAIN), pt.compile(graph, "reference")
    agrees(model, reference, ids(4, 60))
    monkeypatch.setattr(type(driver()), "free", property(lambda self: 300_000 - self.held))
    for length in (61, 62, 63):
        agrees(model, reference, ids(4, length))
    with pytest.raises(pt.RunError, match="its values and weights take"):
        model(ids(4, 600))
    agrees(model, reference, ids(1, 2))
