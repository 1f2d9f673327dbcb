"""Models called at sizes that contradict them, in a few seconds; `python -m tests.fuzz.sizes` goes on at will."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

import partita as pt
from tests.fuzz.models.builder import Case
from tests.fuzz.sizes import newer_networks
from tests.fuzz.sizes.__main__ import Campaign, models
from tests.fuzz.sizes.judge import Oracle, contradicts, judged
from tests.fuzz.sizes.misfits import MISFITS
from tests.fuzz.sizes.networks import CALLS, FEWEST, KINDS, MOST_OPS, Network
from tests.fuzz.sizes.opened import WAYS, Opened, calls, fitted, opened
from tests.fuzz.sizes.subjects import chain_names, microsoft_names, misfit_names, model_of, network_names, newer_names, op_names

BOTH = "HETERO:cpu,reference"
ENGINES = "HETERO:cpu,onnxruntime,reference"


@pytest.fixture(scope="module")
def campaign() -> Iterator[Campaign]:
    result = Campaign(calls=5)
    yield result
    result.close()


SOME_MISFITS = (
    "Add rows", "Where part 1", "Clip min of N", "CumSum axis beyond", "Gather rows", "GatherND middle", "ScatterND beyond",
    "GroupNormalization", "BatchNormalization", "MatMul depth", "table of positions", "If",
)


@pytest.mark.parametrize("name", SOME_MISFITS)
def test_a_size_that_contradicts_a_constant_is_an_error(name: str, campaign: Campaign) -> None:
    before = len(campaign.tally.failures)
    campaign.try_model(f"misfit {name}", 0, "as it is")
    assert campaign.tally.failures[before:] == []
    verdicts = campaign.tally.verdicts[f"misfit {name}"]
    assert verdicts["held"], verdicts


@pytest.mark.parametrize("kind", [*KINDS, "cached", "bits", "lengths"])
@pytest.mark.thinned(2)
def test_networks_of_any_size_answer_as_onnxruntime_or_refuse(kind: str, campaign: Campaign) -> None:
    before = len(campaign.tally.failures)
    campaign.try_model(f"network {kind}", 7, "as it is")
    assert campaign.tally.failures[before:] == []
    assert sum(campaign.tally.verdicts[f"network {kind}"].values()) == CALLS


@pytest.mark.parametrize("seed", [0, 16, 30])
def test_chains_of_ops_answer_as_onnxruntime_or_refuse(seed: int, campaign: Campaign) -> None:
    before = len(campaign.tally.failures)
    campaign.try_model("chain", seed, "as it is")
    assert campaign.tally.failures[before:] == [] and campaign.tally.verdicts["chain"]["right"]


@pytest.mark.parametrize("name", ["Concat", "Slice", "LayerNormalization", "ScatterElements", "QLinearMatMul"])
def test_ops_with_sizes_left_open(name: str, campaign: Campaign) -> None:
    before = len(campaign.tally.failures)
    campaign.try_model(name, 1, "constant")
    assert campaign.tally.failures[before:] == []


def _swept(names: list[str], seeds: range, where: str = BOTH) -> Campaign:
    campaign = Campaign(where, loud=True)
    try:
        for model in models(names, seeds, WAYS):
            campaign.try_model(*model)
    finally:
        campaign.close()
    print(dict(campaign.tally.total))
    return campaign


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_op_accepts_sizes_that_do_not_fit(part: int) -> None:
    names = [*misfit_names(), *op_names(), *microsoft_names()][part::8]
    assert _swept(names, range(3)).tally.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("where", [BOTH, ENGINES])
@pytest.mark.parametrize("part", range(15))
def test_many_networks_of_any_size(part: int, where: str) -> None:
    """1,500 networks, a hundred at a time."""
    seeds = range(part * 1500 // 15 // len(KINDS), (part + 1) * 1500 // 15 // len(KINDS) + 1)
    assert _swept(network_names(), seeds, where).tally.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("where", [BOTH, ENGINES])
@pytest.mark.parametrize("part", range(4))
def test_many_chains(part: int, where: str) -> None:
    assert _swept(chain_names(), range(part * 100, part * 100 + 100), where).tally.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("where", [BOTH, ENGINES])
@pytest.mark.parametrize("part", range(4))
def test_many_networks_of_newer_structures(part: int, where: str) -> None:
    """304 networks, 80 or fewer at a time."""
    assert _swept(newer_names(), range(part * 10, min(38, part * 10 + 10)), where).tally.failures == []


def test_an_answer_where_both_oracles_refuse_is_found() -> None:
    """A graph that adds up to six rows stands for one that the device answers, and another for the oracles."""
    x = pt.variable("x", "float32", ("N", 2))
    strict = Opened(pt.Graph([pt.op("Add", x, pt.constant(np.ones((3, 2), np.float32)))]), (np.ones((3, 2), np.float32),))
    lax = Opened(pt.Graph([pt.op("Neg", x)]), strict.feeds)
    rows = list(judged(lax, [((3, 2),), ((6, 2),)], "reference", True, lambda stage: None, Oracle(strict)))
    assert [row.verdict for row in rows] == ["wrong", "accepted"]
    assert "[6, 2] where the reference says" in rows[1].detail
    rows = list(judged(strict, [((3, 2),), ((6, 2),)], "reference", True, lambda stage: None, Oracle(strict)))
    assert [row.verdict for row in rows] == ["right", "held"]
    rows = list(judged(strict, [((6, 2),)], "reference", True, lambda stage: None, Oracle(lax)))
    assert [row.verdict for row in rows] == ["refused"]


def test_sizes_stay_as_declared_and_most_contradict_something() -> None:
    model = model_of("misfit ScatterND updates", 0, "as it is")
    assert model is not None
    listed = list(calls(model, random.Random(1), 8))
    assert len(listed) == len(set(listed)) > 4
    for shapes in listed:
        for dims, shape in zip(model.dims, shapes, strict=True):
            assert all(dim == size or isinstance(dim, str) for dim, size in zip(dims, shape, strict=True))


def one_add() -> Case:
    x, y = (pt.variable(name, "float32", (2, 3)) for name in "xy")
    feeds = [np.arange(6, dtype=np.float32).reshape(2, 3) for _ in range(2)]
    return Case(pt.Graph([pt.op("Add", x, y)], [x, y], name="add"), feeds)


@pytest.mark.parametrize(("way", "symbols"), [("each", 4), ("constant", 2), ("shared", 2), ("one", 1)])
def test_sizes_are_left_open(way: str, symbols: int) -> None:
    model = opened(one_add(), way, random.Random(3))
    assert model is not None
    assert len({dim for dims in model.dims for dim in dims if isinstance(dim, str)}) == symbols
    assert len(model.graph.inputs) == (1 if way == "constant" else 2)
    if way == "shared":
        assert contradicts(model, ((2, 3), (3, 3))) and not contradicts(model, ((4, 3), (4, 3)))


def test_arrays_are_repeated_or_cut() -> None:
    array = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(fitted(array, (3, 2)), [[0, 1], [3, 4], [0, 1]])
    assert fitted(array, (0, 3)).shape == (0, 3) and fitted(array[:0], (1, 3)).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("kind", [*KINDS, *newer_networks.KINDS])
def test_a_network_is_the_same_for_the_same_seed(kind: str) -> None:
    most = MOST_OPS if kind in KINDS else newer_networks.MOST_OPS
    for seed in range(3):
        first, second = (model_of(f"network {kind}", seed, "as it is") for _ in range(2))
        assert isinstance(first, Network) and isinstance(second, Network)
        assert str(first.graph) == str(second.graph) and first.sizes == second.sizes and len(first.sizes) == CALLS
        assert FEWEST <= sum(node.is_op for node in first.graph.nodes) <= most
        for a, b in zip(first.fitted(first.sizes[0]), second.fitted(first.sizes[0]), strict=True):
            np.testing.assert_array_equal(a, b)


def test_every_misfit_can_be_called() -> None:
    fits = 0
    for name in MISFITS:
        model = model_of(f"misfit {name}", 0, "as it is")
        assert model is not None
        fits += all(isinstance(answer, list) for answer in Oracle(model).answers(model.base))
    assert fits > 0.94 * len(MISFITS)
