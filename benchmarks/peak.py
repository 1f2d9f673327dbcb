"""What the machine can do at most, as far as programs that exist show it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import attrs
import numpy as np

from benchmarks.timing import clocked


@attrs.frozen
class Peak:
    """Measured with so many threads."""

    gflops: float
    """Billions of floating-point operations a second, in a large product of matrices by onnxruntime."""
    gigabytes: float
    """Billions of bytes a second, read and written, in copying arrays that no cache holds."""


@cache
def peak(threads: int, size: int = 1536, megabytes: int = 256) -> Peak:
    """Measure it; the best of several tries."""
    return Peak(_product(threads, size), _copy(threads, megabytes))


def _product(threads: int, size: int) -> float:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weight = numpy_helper.from_array(random.standard_normal((size, size), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weight])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    array = random.standard_normal((size, size), np.float32)
    return 2 * size**3 / min(clocked(lambda: session.run(None, {"x": array}))(12)) / 1e9


def _copy(threads: int, megabytes: int) -> float:
    source = np.ones(megabytes * 2**20 // 4, np.float32)
    target = np.empty_like(source)
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    with ThreadPoolExecutor(threads) as pool:
        seconds = min(clocked(lambda: list(pool.map(lambda piece: np.copyto(*piece), pieces)))(6))
    return 2 * source.nbytes / seconds / 1e9


def describe(found: Peak) -> str:
    """One sentence."""
    return f"The machine's measured peak: {found.gflops:.0f} GFLOP/s, {found.gigabytes:.1f} GB/s."
