"""Products of quantized values by tensor cores that are written once for any size: run in numpy at sizes of all kinds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.accelerators.tvm.sizes.sizing import sized
from partita.graph.types import Array
from tests.accelerators.tvm.kernels.test_quantized_pairs import Pair
from tests.accelerators.tvm.kernels.test_tensor_pairs import EXAMPLES, TENSOR_CORES
from tests.accelerators.tvm.lockstep import run
from tests.accelerators.tvm.quantizing import Layer, dequantized, quantized

pytest.importorskip("tvm")


def emulated(graph: pt.Graph, schedule: str, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """What the only kernel of this name makes of the inputs at these sizes, warp by warp; an image is given by its channels."""
    device = accelerator("cuda")
    ready = sized(device.transform(pt.apply_pass(graph, "InferShape"))).graph
    fused = device.fused(ready, gpu_machine("sm_80"))  # type: ignore[attr-defined]
    for call in [node for node in fused.nodes if node.is_call]:
        body = make_body(call.subgraph)
        draft = draft_kernel(body, gpu_machine("sm_80"))
        if draft is not None and draft.schedule == schedule:
            names = [entry.node.name if entry.node.name in inputs else "x" for entry in call.reads]
            held = [*(inputs[name] for name in names), *body.weights]
            assert draft.kernel is not None
            (result,) = run(draft.kernel, [draft.packs[i](a) if i in draft.packs else a for i, a in enumerate(held)], sizes)
            return result
    raise AssertionError(f"no kernel is {schedule}")


@settings(EXAMPLES, max_examples=3)
@given(st.integers(1, 2), st.integers(1, 40), st.integers(1, 70), st.integers(1, 40), st.booleans())
def test_products_of_two_values(batch: int, rows: int, depth: int, columns: int, turned: bool) -> None:
    pair = Pair((batch,), rows, depth, columns, ("uint8", "int8"), (7, -3), turned)
    a, b = pt.variable("a", "uint8", ("N", "R", "D")), pt.variable("b", "int8", ("N", "C", "D") if turned else ("N", "D", "C"))
    right = dequantized(b, pair.factor, -3, dtype="int8")
    right = pt.op("Transpose", right, perm=[0, 2, 1]) if turned else right
    product = pt.op("MatMul", dequantized(a, pair.factor, 7, dtype="uint8"), right)
    graph = pt.Graph([quantized(product, float(pair.result), 5)], [a, b])
    result = emulated(
        graph, TENSOR_CORES, dict(zip("ab", pair.inputs, strict=True)), {"s0": batch, "s1": rows, "s2": depth, "s3": columns}
    )
    np.testing.assert_array_equal(result, pair.expected().ravel())


@settings(EXAMPLES, max_examples=3)
@given(st.integers(1, 2), st.integers(3, 9), st.integers(3, 9), st.sampled_from([5, 16]))
def test_convolutions(batch: int, high: int, wide: int, channels: int) -> None:
    layer = Layer(channels, 17, (high, wide), (3, 3), pads=(1, 1, 1, 1), batch=batch, relu=True)
    graph = pt.Graph([layer.node(pt.variable("x", "uint8", ("N", channels, "H", "W")))])
    image = np.ascontiguousarray(layer.given().transpose(0, 2, 3, 1))
    result = emulated(graph, "gpu_quantized_product_on_tensor_cores", {"x": image}, {"s0": batch, "s1": high, "s2": wide})
    wanted = layer.expected(layer.given())
    np.testing.assert_array_equal(result.reshape(batch, *wanted.shape[2:], 17).transpose(0, 3, 1, 2), wanted)
