"""Transformers stored in two bytes run on the device `cpu` alone, in the type that they are stored in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from benchmarks.models.any_size import Sizes, bert
from benchmarks.models.decoder import Decoder
from partita.graph.interpret import interpret
from tests.accelerators.tvm.halves import KINDS, casts_alone, narrowed
from tests.accelerators.tvm.running import compiled, error

pytest.importorskip("tvm")

SMALL = {"gpt2": Decoder(width=32, heads=2, layers=1, words=64, past=17), "bert": Sizes(32, 2, 1, 64, 64, 32)}
WHOLE = {"gpt2": Decoder(), "bert": Sizes()}

BOUND = {"bfloat16": 0.03, "float16": 0.004}
"""How far an answer may be from that of float32, as a part of its largest number."""


def transformer(sizes: Any) -> tuple[pt.Graph, list[Any]]:
    """The model in float32, and what it is given: a token and those before it, or a text of which two words are not there."""
    draw: Any = np.random.default_rng(5)
    if isinstance(sizes, Decoder):
        graph = sizes.graph()
        past = [node.output_types[0].shape for node in graph.inputs[2:]]  # type: ignore[union-attr]
        return graph, [np.full((1, 1), 7), np.full((1, 1), sizes.past), *(draw.standard_normal(s).astype("f") for s in past)]
    shapes = dict.fromkeys(("input_ids", "mask_ids", "type_ids"), (1, 18))
    graph = pt.apply_pass(bert(sizes), "InferShape", shapes=shapes)
    return graph, [draw.integers(0, 64, (1, 18)), (np.arange(18) < 16).astype("int64")[None], draw.integers(0, 2, (1, 18))]


def check_stored(sizes: Any, dtype: str) -> None:
    """The model stored in the type, against the same in float32: all of it on `cpu`, its weights in memory once."""
    graph, arrays = transformer(sizes)
    stored = narrowed(graph, dtype)
    assert set(pt.query(stored, "HETERO:cpu,reference").values()) == {"cpu"}
    model = compiled(stored)
    outputs = model.run([x.astype(KINDS[dtype]) if x.dtype == np.float32 else x for x in arrays])
    assert outputs[0].dtype == KINDS[dtype]
    assert max(map(error, outputs, compiled(graph).run(arrays))) <= BOUND[dtype]
    assert not casts_alone(model)
    weights = sum(node.value.nbytes for node in stored.nodes if node.value is not None)
    assert sum(array.nbytes for array in model.export_weights()) <= 1.02 * weights


@pytest.mark.slow
@pytest.mark.parametrize("model", SMALL)
def test_a_transformer_stored_in_bfloat16_runs_in_it(model: str) -> None:
    check_stored(SMALL[model], "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("model", WHOLE)
def test_a_whole_transformer_stored_narrow(model: str, dtype: str) -> None:
    check_stored(WHOLE[model], dtype)


MOVED = {
    "normalize": """n = ReduceL2(x, last) {keepdims=1}
          c = Clip(n, least)
          e = Expand(c, shape)
          y = Div(x, e)""",
    "tile": """n = ReduceMax(x, last) {keepdims=1}
          y = Tile(n, times)""",
    "first": "y = ArgMax(x) {axis=2}",
    "hard": "y = Hardmax(x)",
}
"""Ops that put one bfloat16 into each lane of a vector, or compare it: SwiftFormer's `F.normalize` is the first."""


@pytest.mark.parametrize("kind", MOVED)
def test_one_bfloat16_in_all_lanes(kind: str) -> None:
    graph = pt.parse(f"""
        opset 20
        graph net(x: bfloat16[1, 49, 64]) -> (y) {{
          last = const int64[1] [-1]
          shape = const int64[3] [1, 49, 64]
          times = const int64[3] [1, 1, 64]
          least = const bfloat16[] 1.0e-12
          {MOVED[kind]}
        }}
    """)
    given = np.random.default_rng(0).standard_normal((1, 49, 64)).astype(KINDS["bfloat16"])
    (result,), (wanted,) = compiled(graph).run([given]), interpret(graph, [given])
    np.testing.assert_allclose(result.astype("float32"), wanted.astype("float32"), rtol=0.01)
