"""Whole models with the provider in front of a session: onnxruntime's numbers, and the planned assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

import partita as pt  # noqa: E402
from partita.graph.readers.zoo import zoo_names  # noqa: E402
from partita.onnxruntime_plugin.provider import Provider  # noqa: E402
from partita.onnxruntime_plugin.read_graph import ReadGraph  # noqa: E402
from tests.mxnet.data import error, zoo, zoo_model  # noqa: E402
from tests.onnxruntime_plugin.models import CPU, provider, session  # noqa: E402

TORCH = Path(__file__).parents[1] / "data" / "torch"

SIZES = {"tokens": 7, "s70": 7, "s53": 12}
"""The sizes of inputs of exports by their symbols; others are 2. The decoders have seven new words after five."""

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}

HETERO = "HETERO:cpu,reference"


class EveryThird(pt.Accelerator):
    """Refuses about every third node, by its name."""

    name = "every_third"

    def query(self, graph: pt.Graph) -> dict[str, bool | str]:
        return {node.name: sum(node.name.encode()) % 3 > 0 or "it is a third" for node in graph.nodes if node.is_op}

    def compile(self, graph: pt.Graph, config: object) -> pt.CompiledSubgraph:
        return pt.accelerator("reference").compile(graph, {})


def feeds_for(running: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Random inputs; integers are small."""
    random = np.random.default_rng(0)
    feeds = {}
    for item in running.get_inputs():
        dtype = DTYPES[item.type]
        shape = [SIZES.get(size, 2) if isinstance(size, str) else size for size in item.shape]
        if item.name.startswith("past_key_values"):
            shape[2] = 5
        if dtype == np.float32:
            feeds[item.name] = random.standard_normal(shape).astype(dtype)
        else:
            feeds[item.name] = np.ones(shape, dtype) if "mask" in item.name else random.integers(0, 5, shape).astype(dtype)
    return feeds


def taken(graph: pt.Graph, devices: str) -> set[str]:
    """The nodes that these devices run; a node whose bodies read outer values stays, and the bodies run in parts."""
    placement = pt.query(graph, devices, partial=True)
    return {name for name in placement if not placement.is_refused(name) and not graph[name].captures}


@contextmanager
def planned() -> Iterator[list[set[frozenset[str]]]]:
    """The subgraphs of each graph that a provider plans inside. onnxruntime lists nodes in its own order, where other subgraphs
    than in the file's may be as large."""
    plans: list[set[frozenset[str]]] = []
    own = Provider._chosen

    def chosen(self: Provider, read: ReadGraph) -> list[tuple[str, ...]]:
        groups = own(self, read)
        plans.append(set(map(frozenset, groups)))
        return groups

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Provider, "_chosen", chosen)
        yield plans


def check(graph: pt.Graph, devices: str, path: Path) -> None:
    """The model's numbers and assignment in a session."""
    pt.save(pt.apply_pass(graph, "EliminateDead"), path)
    plain = onnxruntime.InferenceSession(str(path), providers=[CPU])
    feeds = feeds_for(plain)
    with provider(devices, "Whole") as name, planned() as plans:
        running = session(str(path), name)
        info = running.get_provider_graph_assignment_info()
        assigned = {frozenset(node.name for node in one.get_nodes()) for one in info if one.ep_name == name}
        assert assigned == set().union(*plans)
        saved = pt.load(path)
        assert {name for group in assigned for name in group if name in saved} == taken(saved, devices)
        for _ in range(2):
            for mine, true in zip(running.run(None, feeds), plain.run(None, feeds), strict=True):
                assert mine.dtype.kind != "f" or error(mine, true) < 1e-4
                assert mine.dtype.kind == "f" or np.array_equal(mine, true)
        del running


EXPORTS: dict[str, Callable[[], pt.Graph]] = {
    **{str(path.relative_to(TORCH)): lambda path=path: pt.load(path) for path in sorted(TORCH.rglob("*.onnx"))},
    **{f"mxnet {name}": lambda name=name: zoo_model(name, is_static=True)[0] for name in zoo()[0] if name[0] not in "av"},
}
"""Transformers and convolutional networks as their frameworks export them."""


def test_a_small_export_is_planned_and_equal(tmp_path: Path) -> None:
    check(EXPORTS["gate.onnx"](), HETERO, tmp_path / "model.onnx")


def test_a_planned_part_of_an_export(tmp_path: Path) -> None:
    pt.register_accelerator(EveryThird)
    try:
        check(EXPORTS["gpt2.onnx"](), "every_third", tmp_path / "model.onnx")
    finally:
        pt.unregister_accelerator("every_third")


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo_names())
def test_the_zoo_is_planned_and_equal(name: str, tmp_path: Path) -> None:
    check(pt.load(f"zoo:{name}"), HETERO, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_exports_are_planned_and_equal(name: str, tmp_path: Path) -> None:
    check(EXPORTS[name](), HETERO, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_parts_of_exports_are_planned_and_equal(name: str, tmp_path: Path) -> None:
    pt.register_accelerator(EveryThird)
    try:
        check(EXPORTS[name](), "every_third", tmp_path / "model.onnx")
    finally:
        pt.unregister_accelerator("every_third")
