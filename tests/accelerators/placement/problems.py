"""Random assignment problems, and the slow, obvious solution of small ones."""

from __future__ import annotations

import itertools

import numpy as np

from partita.accelerators.placement.assignment import AssignmentProblem


def problem(rng: np.random.Generator, nodes: int, devices: int, near: int = 3) -> AssignmentProblem:
    """Nodes read tensors of the few nodes before them, and of the host; some do not run on some devices. Costs are integers."""
    times = rng.integers(0, 20, (nodes, devices)).astype(float)
    times[rng.random((nodes, devices)) < 0.15] = np.inf
    times[np.arange(nodes), rng.integers(0, devices, nodes)] = rng.integers(0, 20, nodes)
    readers, tables = [], []
    for producer in range(-1, nodes - 1):
        reading = rng.integers(producer + 1, min(nodes, producer + 1 + near), rng.integers(1, 4))
        readers.append(tuple(sorted(set(reading.tolist()))))
        table = rng.integers(0, 15, (devices, devices)).astype(float)
        if producer < 0:
            table[:] = table[0]
        else:
            np.fill_diagonal(table, 0.0)
        tables.append(table)
    return AssignmentProblem(times, np.arange(-1, nodes - 1), readers, np.array(tables).reshape(-1, devices, devices))


def equal_layers(rng: np.random.Generator, nodes: int, devices: int) -> tuple[AssignmentProblem, np.ndarray]:
    """Layers of two kinds on a slow device and equal fast ones, with their bytes."""
    one, kinds = problem(rng, nodes, devices), rng.integers(0, 2, nodes)
    times = np.where(np.arange(devices) == 0, 10.0, 1.0) * np.array([3.0, 8.0])[kinds, np.newaxis]
    tables = (rng.integers(0, 4, len(one.readers)) * 2.0)[:, np.newaxis, np.newaxis] * (1 - np.eye(devices))
    tables[0] = tables[0, 0]
    return AssignmentProblem(times, one.producers, one.readers, tables), np.array([50.0, 90.0])[kinds]


def assignments(nodes: int, devices: int) -> np.ndarray:
    """All assignments."""
    return np.array(list(itertools.product(range(devices), repeat=nodes)), np.intp)
