"""Limits on bytes: never broken, and close to the best."""

from __future__ import annotations

import numpy as np
import pytest

from partita.accelerators.placement.fitting import Fitted, Fitting
from tests.accelerators.placement.problems import assignments, equal_layers, problem


def fitted(seed: int, most: int) -> tuple[Fitted, float, bool]:
    """The result for a random problem with limits, the least cost within them (NaN if that is too slow to find), and whether
    the limits hold."""
    rng = np.random.default_rng(seed)
    nodes, devices = int(rng.integers(2, most)), int(rng.integers(2, 5))
    one, shares = problem(rng, nodes, devices), rng.integers(0, 100, nodes).astype(float)
    limits = np.where(rng.random(devices) < 0.7, rng.integers(20, max(25, 120 * nodes // devices), devices), np.inf)
    found = Fitting(one, shares, limits, lambda chosen: np.bincount(chosen, shares, devices)).search()
    least = np.nan
    if devices**nodes <= 4096:
        costs = [one.cost(c) for c in assignments(nodes, devices) if (np.bincount(c, shares, devices) <= limits).all()]
        least = min(costs, default=np.inf)
    holds = found.chosen is None or bool((np.bincount(found.chosen, shares, devices) <= limits).all())
    assert found.chosen is None or one.cost(found.chosen) == pytest.approx(found.cost)
    return found, least, holds


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_small_problems_are_solved_exactly_within_limits(start: int) -> None:
    for seed in range(start, start + 50):
        found, least, holds = fitted(seed, 7)
        assert holds
        assert found.cost == pytest.approx(least), seed
        assert found.bound <= least * (1 + 1e-9), seed


@pytest.mark.parametrize("seed", range(30))
def test_equal_layers_on_equal_devices_are_placed_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, devices = int(rng.integers(3, 8)), int(rng.integers(3, 5))
    one, shares = equal_layers(rng, nodes, devices)
    limits = np.where(np.arange(devices) == 0, np.inf, rng.integers(60, 300))
    found = Fitting(one, shares, limits, lambda chosen: np.bincount(chosen, shares, devices)).search()
    least = min(one.cost(c) for c in assignments(nodes, devices) if (np.bincount(c, shares, devices) <= limits).all())
    assert found.cost == pytest.approx(least) and found.bound == pytest.approx(least)


@pytest.mark.slow
def test_limits_of_thousands_of_problems_are_kept() -> None:
    for seed in range(5000):
        found, _, holds = fitted(seed, 20)
        assert holds, seed
        assert found.cost == found.bound == np.inf or found.cost - found.bound <= 0.03 * found.cost, seed


@pytest.mark.slow
def test_all_of_hundreds_of_nodes_are_within_three_percent_of_the_bound() -> None:
    for seed in range(100):
        found, _, holds = fitted(seed, 300)
        assert holds, seed
        assert found.chosen is None or found.cost - found.bound <= 0.03 * found.cost, seed


def test_full_devices_are_placed_by_branching_and_exchanges() -> None:
    for seed in (1096, 489):  # one of 19 nodes, and one for which nothing fits
        found, _, holds = fitted(seed, 20)
        assert holds and found.bound == pytest.approx(found.cost)


def test_hundreds_of_nodes_are_within_three_percent_of_the_bound() -> None:
    results = [fitted(seed, 300) for seed in range(4)]
    found = [one for one, _, holds in results if one.chosen is not None and holds]
    assert len(found) >= 3
    assert all(one.cost - one.bound <= 0.03 * one.cost for one in found)


def tallest_and_sums(seed: int) -> None:
    """Compares with all assignments, where a device takes its sum of shares and its greatest floor."""
    rng = np.random.default_rng(seed)
    nodes, devices = int(rng.integers(2, 7)), int(rng.integers(2, 4))
    one, shares, floors = problem(rng, nodes, devices), rng.integers(0, 40, nodes), rng.integers(0, 100, nodes)
    limits = np.where(rng.random(devices) < 0.7, rng.integers(60, 200, devices), np.inf)

    def used(chosen: np.ndarray) -> np.ndarray:
        tallest = np.zeros(devices)
        np.maximum.at(tallest, chosen, floors)
        return np.bincount(chosen, shares, devices) + tallest

    found = Fitting(one, shares.astype(float), limits, used, floors=floors.astype(float)).search()
    costs = [one.cost(chosen) for chosen in assignments(nodes, devices) if (used(chosen) <= limits).all()]
    assert found.cost == pytest.approx(min(costs, default=np.inf)), seed
    assert found.bound == pytest.approx(found.cost), seed


def test_largest_values_count_beside_sums() -> None:
    for seed in range(40):
        tallest_and_sums(seed)
