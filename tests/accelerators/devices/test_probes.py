"""The values of which an engine also returns the sizes: those that may be empty where a result is computed nevertheless."""

from __future__ import annotations

import itertools
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

    found = [probes_in(pt.Graph([node(dim)]), PROBED) for dim in range(rank)]
    assert all([(probe.op, probe.rank) for probe in probes] in ([], [(1, rank)]) for probes in found)
    return [dim for dim, probes in enumerate(found) if probes]


def has_a_window(span: int, padding: int) -> bool:
    """True if a window fits into padding alone."""
    try:
        return len(np.lib.stride_tricks.sliding_window_view(np.zeros(padding), span)) > 0
    except ValueError:
        return False


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "Conv"])
def test_windows_are_probed_that_may_cover_only_padding(op: str) -> None:
    for rank, size, gap in itertools.product((1, 2, 3), (1, 2, 3), (1, 2)):
        sizes = [size + d % 2 for d in range(rank)]
        gaps = [gap] * rank if op != "AveragePool" else [1] * rank
        spans = [(tap - 1) * step + 1 for tap, step in zip(sizes, gaps, strict=True)]
        weights = (pt.constant(np.ones((5, 5, *sizes), np.float32)),) if op == "Conv" else ()
        for pads in itertools.islice(itertools.product((0, 1, 2), repeat=2 * rank), 0, None, 3 ** (rank - 1)):
            around = [pads[d] + pads[rank + d] for d in range(rank)]
            wanted = [2 + d for d in range(rank) if has_a_window(spans[d], around[d])]
            more = {} if gap == 1 or op == "AveragePool" else {"dilations": gaps}
            more |= {} if op == "Conv" else {"kernel_shape": sizes}
            assert probed_dims(op, 2 + rank, *weights, pads=list(pads), **more) == wanted, (sizes, gaps, pads)


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
