"""The device `opencl` at any size: compiled once, right at every size, also in another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from benchmarks.models.any_size import Sizes, bert, gpt2
from partita.accelerators.tvm.sizes import sizing
from tests.accelerators.tvm.any_size import attention, numbers, random, specialized
from tests.accelerators.tvm.opencl_nets import ROOT
from tests.close import assert_close

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")

SMALL = Sizes(width=32, heads=2, layers=2, hidden=64, words=50, longest=64)
CONFIG = {"CACHE_DIR": ""}


@pytest.fixture(scope="module", autouse=True)
def any_rows() -> Iterator[None]:
    """Few rows are computed by the kernels for any number of them too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "FEW_ROWS", 0)
        yield


def agrees(model: Any, reference: Any, feed: dict[str, np.ndarray[Any, Any]], tolerance: float = 1e-5) -> None:
    """The model computes what the reference does, and compiles nothing for it."""
    for ours, wanted in zip(model(feed), reference(feed), strict=True):
        assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
        np.testing.assert_allclose(ours, wanted, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(wanted).max())))
    assert specialized(model).sizes == (), "no size was compiled by itself"


def layers() -> pt.Graph:
    """A product of any rows with what follows it, norms, a transpose, and a softmax over any number of columns."""
    x = pt.variable("x", "float32", ("N", "M", 24))
    product = pt.op("Relu", pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(24, 50))), pt.constant(numbers(50))))
    norm = pt.op("LayerNormalization", product, pt.constant(numbers(50)), pt.constant(numbers(50)))
    turned, scale, bias = pt.op("Transpose", norm, perm=[0, 2, 1]), pt.constant(numbers(50)), pt.constant(numbers(50))
    return pt.Graph([pt.op("Softmax", pt.op("InstanceNormalization", turned, scale, bias), axis=-1)])


@pytest.fixture(scope="module")
def compiled() -> tuple[Any, Any]:
    graph = layers()
    model = pt.compile(graph, "opencl", config=CONFIG)
    assert model.report.notes == ("opencl_0: compiled once for any size",)
    return model, pt.compile(graph, "reference")


@settings(max_examples=12, deadline=None, phases=[Phase.generate])
@given(st.integers(1, 3), st.integers(1, 70))
def test_products_rows_and_moves_of_any_size(compiled: tuple[Any, Any], count: int, length: int) -> None:
    agrees(*compiled, {"x": numbers(count, length, 24)})


def test_rows_longer_than_a_block_has_threads(compiled: tuple[Any, Any]) -> None:
    agrees(*compiled, {"x": numbers(1, 700, 24)})


def test_threads_with_sizes_of_their_own(compiled: tuple[Any, Any]) -> None:
    model, reference = compiled
    given = [numbers(1 + i % 3, 3 + 5 * i, 24) for i in range(12)]
    with ThreadPoolExecutor(3) as threads:
        for _ in range(2):
            for ours, data in zip(threads.map(model, given), given, strict=True):
                assert_close(ours[0], reference(data)[0], rtol=1e-4)
    assert specialized(model).sizes == ()


def test_arrays_of_the_caller(compiled: tuple[Any, Any]) -> None:
    """Inputs on the device, outputs that stay there, and outputs in an array of the caller's."""
    model, reference = compiled
    for length in (4, 9):
        data = numbers(2, length, 24)
        (wanted,) = reference(data)
        (there,) = model(pt.to_device(data, "opencl"), out="device")
        assert_close(np.asarray(there), wanted, rtol=1e-4)
        into = np.empty_like(wanted)
        model(data, out=[into])
        assert_close(into, wanted, rtol=1e-4)
    assert specialized(model).sizes == ()


def test_attention_of_any_length() -> None:
    graph = attention(mask=True)
    model, reference = pt.compile(graph, "opencl", config=CONFIG), pt.compile(graph, "reference")
    assert "gpu_attention" in [kernel.schedule for kernel in model.kernels()]
    for n, s in [(1, 1), (2, 5), (1, 16), (3, 17), (2, 33), (1, 70)]:
        mask = np.where(np.arange(s) < max(1, s - 2), 0, -1e9).astype(np.float32)
        agrees(model, reference, {"x": numbers(n, s, 32), "mask": np.broadcast_to(mask, (n, 1, 1, s)).copy()})


@pytest.mark.parametrize("graph", [bert(SMALL), gpt2(SMALL)], ids=["bert", "gpt2"])
@pytest.mark.thinned(2)
def test_a_transformer_is_compiled_once(graph: pt.Graph) -> None:
    model, reference = pt.compile(graph, "opencl", config=CONFIG), pt.compile(graph, "reference")
    for n, s in [(1, 1), (2, 5), (3, 17), (1, 64)]:
        feed = {node.name: np.ones((n, s), np.int64) if "mask" in node.name else random.integers(0, 2, (n, s))
                for node in graph.inputs}
        agrees(model, reference, feed)


def test_one_hot_and_constants_of_a_few_integers() -> None:
    """Classes last and in between; a constant of some integers that is spread over a value is read from memory."""
    ids, few = pt.variable("ids", "int64", ("N", "S")), np.array([3, -1, 7], np.int64)
    hot = [
        pt.op("OneHot", ids, pt.constant(np.array(5)), pt.constant(np.array([-1, 2], dtype)), axis=axis)
        for dtype, axis in (("float32", -1), ("int64", 1))
    ]
    added = pt.op("Add", pt.op("Unsqueeze", ids, pt.constant(np.array([2]))), pt.constant(few))
    graph = pt.Graph([*hot, added], [ids])
    model, reference = pt.compile(graph, "opencl", config=CONFIG), pt.compile(graph, "reference")
    for i, shape in enumerate([(1, 1), (3, 9), (7, 1), (2, 300)]):
        agrees(model, reference, {"ids": np.random.default_rng(i).integers(-6, 7, shape)}, 0)


def test_one_hot_where_each_size_is_compiled(recwarn: pytest.WarningsRecorder) -> None:
    """Nothing of it runs elsewhere, of which a warning would tell."""
    ids = pt.variable("ids", "int64", ("N",))
    hot = pt.op("OneHot", ids, pt.constant(np.array(5)), pt.constant(np.array([0, 1], "float32")))
    graph = pt.Graph([pt.op("TopK", hot, pt.constant(np.array([2])), n_outputs=2)[0], hot], [ids])
    model, data = pt.compile(graph, "opencl", config=CONFIG), np.array([3, -1, 7, 0])
    for ours, wanted in zip(model(data), pt.compile(graph, "reference")(data), strict=True):
        np.testing.assert_array_equal(ours, wanted)
    assert not [warning for warning in recwarn if "runs otherwise" in str(warning.message)]


def test_an_index_outside_is_an_error() -> None:
    ids = pt.variable("ids", "int64", ("N",))
    model = pt.compile(pt.Graph([pt.op("Gather", pt.constant(numbers(40, 8)), ids)]), "opencl", config=CONFIG)
    assert model(np.arange(-40, 40))[0].shape == (80, 8)
    with pytest.raises(pt.RunError, match="an index is outside of a dimension of 40"):
        model(np.full(300, 40))
    assert specialized(model).sizes == ()


def test_an_exported_model_runs_other_sizes_in_another_process(tmp_path: Path) -> None:
    graph = layers()
    model, x = pt.compile(graph, "opencl", config=CONFIG), numbers(2, 9, 24)
    model.export(tmp_path / "model.partita")
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np, partita as pt\n"
        "model = pt.import_model(sys.argv[1] + '/model.partita')\n"
        "np.save(sys.argv[1] + '/y.npy', model(np.load(sys.argv[1] + '/x.npy'))[0])\n"
        "assert model.units[0].compiled.sizes == ()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=ROOT)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x)[0], rtol=1e-6)


def test_a_kernel_without_such_a_form_is_named() -> None:
    graph = pt.Graph([pt.op("TopK", pt.variable("x", "float32", ("N", 40)), pt.constant(np.array([3])), n_outputs=2)])
    model = pt.compile(graph, "opencl", config=CONFIG)
    assert model.report.notes == ("opencl_0: compiled for each size: no kernel of a GPU for any size takes TopK",)


def test_products_of_few_rows_are_compiled_for_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of one row beside them changes nothing, since most of the work is in the others."""
    monkeypatch.setattr(sizing, "FEW_ROWS", 8)
    x = pt.variable("x", "float32", ("N", 24))
    row = pt.op("Slice", x, *[pt.constant(np.array([i])) for i in (0, 1, 0)])
    products = [pt.op("MatMul", x, pt.constant(numbers(24, 50))), pt.op("MatMul", row, pt.constant(numbers(24, 3)))]
    graph = pt.Graph(products)
    model, reference = pt.compile(graph, "opencl", config=CONFIG), pt.compile(graph, "reference")
    agrees(model, reference, {"x": numbers(8, 24)})
    data = numbers(7, 24)
    for ours, wanted in zip(model(data), reference(data), strict=True):
        assert_close(ours, wanted, rtol=1e-4)
    assert specialized(model).sizes == (((7, 24),),)


def test_transposed_convolutions_of_few_pixels_are_compiled_for_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are the pixels that it reads: four of each image."""
    monkeypatch.setattr(sizing, "FEW_ROWS", 8)
    x = pt.variable("x", "float32", ("N", 3, 2, 2))
    graph = pt.Graph([pt.op("ConvTranspose", x, pt.constant(numbers(3, 5, 3, 3)), strides=[2, 2])])
    model, reference = pt.compile(graph, "opencl", config=CONFIG), pt.compile(graph, "reference")
    agrees(model, reference, {"x": numbers(2, 3, 2, 2)})
    data = numbers(1, 3, 2, 2)
    assert_close(model(data)[0], reference(data)[0], rtol=1e-4)
    assert specialized(model).sizes == (((1, 3, 2, 2),),)


def test_each_size_is_compiled_by_itself_where_that_is_asked_for() -> None:
    model = pt.compile(layers(), "opencl", config={**CONFIG, "ANY_SIZE": False})
    model(numbers(1, 3, 24))
    assert len(specialized(model).sizes) == 1
