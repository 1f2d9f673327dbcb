"""Every converter against MXNet's own outputs: MXNet's symbol in, the same numbers out."""

from __future__ import annotations

import pytest

from partita.graph import PartitaError, TensorType
from partita.graph.readers.mxnet import load_mxnet
from partita.graph.readers.mxnet.ops.table import _table
from partita.graph.verify import verify
from tests.mxnet.data import cases, error, run

pytest.importorskip("onnxruntime")

NEED_SIZES = frozenset(
    "deconv2d_target pool_sum_full adaptive_avg div_sqrt_dim softmax_length squeeze squeeze_everything split_v2 crop_centre "
    "upsampling_concat upsampling_sum resize_scale resize_scale_size resize_to_even_down resize_to_even_up "
    "resize_to_odd_down resize_to_odd_up".split()
)
"""What cannot be said without the sizes of the inputs."""


@pytest.mark.parametrize("name", cases())
def test_as_mxnet_computes_it(name):
    case = cases()[name]
    graph = load_mxnet(case.symbol, case.params, case.shapes)
    verify(graph)
    outputs = run(graph, case.data)
    for value, expected, entry in zip(outputs, case.outputs, graph.outputs, strict=True):
        assert error(value, expected) < 1e-5
        assert entry.type == TensorType(expected.dtype, expected.shape)


@pytest.mark.parametrize("name", cases())
def test_as_mxnet_computes_it_whatever_the_sizes(name):
    case = cases()[name]
    unknown = {key: (None,) * len(shape) for key, shape in case.shapes.items()}
    if name in NEED_SIZES:
        with pytest.raises(PartitaError, match="must be known to read this op"):
            load_mxnet(case.symbol, case.params, unknown)
        return
    outputs = run(load_mxnet(case.symbol, case.params, unknown), case.data)
    assert all(error(value, expected) < 1e-5 for value, expected in zip(outputs, case.outputs, strict=True))


@pytest.mark.parametrize("name", cases())
def test_without_shapes_right_or_refused(name):
    case = cases()[name]
    try:
        graph = load_mxnet(case.symbol, case.params)
    except PartitaError as refused:
        assert "must be known to read this op" in str(refused)
        assert 'shapes={"data": (1, 3, 224, 224)}' in str(refused)
        return
    assert all(error(a, b) < 1e-5 for a, b in zip(run(graph, case.data), case.outputs, strict=True))


def test_every_op_has_a_case():
    """Other spellings of an op share its row; these rows alone have no case."""
    met = {node["op"] for case in cases().values() for node in case.symbol["nodes"]}
    rows = {}
    for op, row in _table.items():
        rows.setdefault(row.convert, []).append(op)
    missed = {ops[0] for ops in rows.values() if not met & set(ops)}
    assert missed == set()


@pytest.mark.parametrize("last, first, axes", [("NHWC", "NCHW", (0, 2, 3, 1)), ("NWC", "NCW", (0, 2, 1))])
def test_channels_last_is_channels_first_between_transposes(last, first, axes):
    """MXNet's CPU kernels do not take these layouts, so they are held against their own transposes."""
    import numpy as np

    random = np.random.RandomState(0)
    space = len(axes) - 2
    kernel = str((3, 2)[:space] if space > 1 else (3,))
    data = random.randn(2, *(7, 6)[:space], 4).astype(np.float32)
    weight = random.randn(5, *(3, 2)[:space], 4).astype(np.float32)
    to_first = (0, space + 1, *range(1, space + 1))

    def network(layout):
        window = {"kernel": kernel, "layout": layout}
        return {
            "nodes": [
                {"op": "null", "name": "data", "inputs": []},
                {"op": "null", "name": "w", "inputs": []},
                {
                    "op": "Convolution",
                    "name": "c",
                    "attrs": {**window, "num_filter": "5", "no_bias": "True"},
                    "inputs": [[0, 0], [1, 0]],
                },
                {"op": "Pooling", "name": "p", "attrs": {**window, "pool_type": "avg"}, "inputs": [[2, 0]]},
                {
                    "op": "Pooling",
                    "name": "g",
                    "attrs": {**window, "global_pool": "1", "pool_type": "sum"},
                    "inputs": [[2, 0]],
                },
            ],
            "heads": [[3, 0], [4, 0]],
        }

    outputs = run(load_mxnet(network(last), {"w": weight}, {"data": data.shape}), {"data": data})
    data, weight = data.transpose(to_first), weight.transpose(to_first)
    expected = run(load_mxnet(network(first), {"w": weight}, {"data": data.shape}), {"data": data})
    for a, b in zip(outputs, expected, strict=True):
        assert error(a, b.transpose(axes)) < 1e-5
