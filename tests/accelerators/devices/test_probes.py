"""The values of which an engine also returns the sizes: those that may be empty where a result is computed nevertheless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.probing import PROBED, probes_in


def numbers(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def probed_dims(op: str, rank: int, *inputs: Any, **attributes: Any) -> list[int]:
    """The dimensions of the first input of which an op is probed, if only this one may be zero."""

    def node(dim: int) -> pt.Node:
        x = pt.variable("x", "float32", tuple("n" if d == dim else 5 for d in range(rank)))
        return pt.op(op, pt.op("Slice", x, numbers(1), numbers(2**62), numbers(dim)), *inputs, **attributes)

    graphs = [pt.apply_pass(pt.Graph([node(dim)]), "InferShape", strict=False) for dim in range(rank)]
    found = [probes_in(graph, PROBED) for graph in graphs]
    assert all([(probe.op, probe.rank) for probe in probes] in ([], [(1, rank)]) for probes in found)
    return [dim for dim, probes in enumerate(found) if probes]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv"])
@pytest.mark.parametrize(
    ("sizes", "gaps", "pads", "dims"),
    [
        ([1], [1], [0, 0], []),
        ([1], [1], [0, 1], [2]),
        ([3], [1], [1, 1], []),
        ([3], [1], [1, 2], [2]),
        ([3], [2], [2, 2], []),
        ([2], [2], [1, 2], [2]),
        ([3, 2], [1, 1], [1, 1, 1, 1], [3]),
        ([3, 2], [1, 2], [1, 1, 2, 1], [2]),
        ([2, 1, 3], [1, 1, 1], [1, 1, 1, 1, 0, 2], [2, 3, 4]),
    ],
)
def test_windows_are_probed_that_may_cover_only_padding(op: str, sizes: Any, gaps: Any, pads: Any, dims: list[int]) -> None:
    weights = (pt.constant(np.ones((5, 5, *sizes), np.float32)),) if op == "Conv" else ()
    more = {} if op == "Conv" else {"kernel_shape": sizes}
    assert probed_dims(op, 2 + len(sizes), *weights, dilations=gaps, pads=pads, **more) == dims


@pytest.mark.parametrize(
    ("op", "rank", "inputs", "attributes", "dims"),
    [
        ("ArgMax", 3, (), {"axis": 1}, [1]),
        ("ArgMin", 3, (), {"axis": -1}, [2]),
        ("ArgMax", 3, (), {}, [0]),
        ("ReduceMean", 3, (numbers(0, -1),), {}, [0, 2]),
        ("ReduceMax", 3, (), {}, [0, 1, 2]),
        ("ReduceMin", 2, (pt.variable("axes", "int64", (1,)),), {}, [0, 1]),
        ("ReduceSum", 2, (), {}, []),
        ("GlobalMaxPool", 4, (), {}, [2, 3]),
        ("GlobalAveragePool", 3, (), {}, [2]),
        ("MaxPool", 4, (), {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}, [2, 3]),
        ("Gather", 3, (numbers(0),), {"axis": 1}, [1]),
        ("Gather", 3, (numbers(0),), {"axis": -1}, [2]),
        ("Gather", 3, (numbers(0),), {}, [0]),
        ("Resize", 4, (None, None, numbers(5, 5, 7, 7)), {}, [0, 1, 2, 3]),
        ("Relu", 3, (), {}, []),
    ],
)
def test_dimensions_that_must_not_be_zero(op: str, rank: int, inputs: Any, attributes: Any, dims: list[int]) -> None:
    assert probed_dims(op, rank, *inputs, **attributes) == dims
