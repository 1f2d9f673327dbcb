"""Compile times of random functions around products: python -m tests.fuzz.functions --seeds 300

Each graph has 10 to 40 element-wise functions, some of which read earlier values again, before, between and behind a few
products or convolutions. Its processor time to compile on `cpu` is measured in a child process, which is ended after a limit."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np

import partita as pt
from partita.graph.node import Node
from partita.graph.types import numpy_dtype
from tests.fuzz.children import Child

LIMIT = 150.0
"""Seconds after which a compilation is ended."""

SLOWEST = 10
"""The number of graphs that are listed."""

UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu",
    "Celu",
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")

Values = list[Node]
"""Values of one shape, the latest one last."""


def graph_of(seed: int) -> pt.Graph:
    """The graph of a seed."""
    rng = random.Random(seed)
    dtype = rng.choices(("float32", "bfloat16", "float16"), (8, 2, 1))[0]
    image = rng.random() < 0.5
    shape = (1, 32, 14, 14) if image else (rng.choice((1, 7, 64)), 64)
    x = pt.variable("x", dtype, shape)
    functions, products = rng.randint(10, 40), rng.randint(1, 3)
    order = ["function"] * functions + ["product"] * products
    rng.shuffle(order)
    values = [x]
    for kind in order:
        if kind == "function":
            values.append(_function(rng, values, dtype))
        else:
            values = [(_convolution if image else _product)(rng, values[-1], dtype)]
    return pt.Graph([values[-1]], name=f"functions_{seed}")


def _function(rng: random.Random, values: Values, dtype: str) -> Node:
    """One more function of the values so far."""
    value = values[-1] if rng.random() < 0.8 else rng.choice(values)
    kind = rng.random()
    if kind < 0.25:
        return pt.op("Mul", value, pt.op("Sigmoid", value))
    if kind < 0.35:
        return _tanh_gelu(value, dtype)
    if kind < 0.6:
        return pt.op(rng.choice(BINARY), value, rng.choice(values))
    if kind < 0.65:
        return pt.op("Where", pt.op("Greater", value, _number(0.1, dtype)), value, pt.op("Tanh", value))
    if kind < 0.7:
        return pt.op(rng.choice(BINARY), value, _number(rng.uniform(0.5, 2), dtype))
    op = rng.choice(UNARY)
    if op == "Gelu":
        return pt.op(op, value, approximate=rng.choice(("none", "tanh")))
    return pt.op(op, value)


def _tanh_gelu(value: Node, dtype: str) -> Node:
    """Gelu by tanh, as exporters write it."""
    cube = pt.op("Pow", value, _number(3.0, dtype))
    inner = pt.op("Mul", pt.op("Add", value, pt.op("Mul", cube, _number(0.044715, dtype))), _number(0.79788, dtype))
    return pt.op("Mul", pt.op("Mul", value, _number(0.5, dtype)), pt.op("Add", pt.op("Tanh", inner), _number(1.0, dtype)))


def _product(rng: random.Random, value: Node, dtype: str) -> Node:
    """A product of rows by weights."""
    weights = _weights(rng, (64, 64), dtype)
    if rng.random() < 0.5:
        return pt.op("MatMul", value, weights)
    return pt.op("Gemm", value, weights, _weights(rng, (64,), dtype), transB=1)


def _convolution(rng: random.Random, value: Node, dtype: str) -> Node:
    """A pointwise or depthwise convolution, or one by 3 x 3 weights."""
    kind = rng.choice(("pointwise", "window", "depthwise"))
    size, group = (1 if kind == "pointwise" else 3), (32 if kind == "depthwise" else 1)
    weights = _weights(rng, (32, 32 // group, size, size), dtype)
    return pt.op("Conv", value, weights, _weights(rng, (32,), dtype), group=group, pads=[size // 2] * 4)


def _weights(rng: random.Random, shape: Sequence[int], dtype: str) -> Node:
    numbers = np.random.default_rng(rng.getrandbits(32)).normal(0, 0.1, shape)
    return pt.constant(numbers.astype(numpy_dtype(dtype)))


def _number(number: float, dtype: str) -> Node:
    return pt.constant(np.array(number, numpy_dtype(dtype)))


def seconds_of(seed: int) -> float:
    """The processor time that compiling the graph of the seed takes."""
    graph = graph_of(seed)
    start = time.process_time()
    pt.compile(graph, "cpu")
    return time.process_time() - start


def answer_questions() -> None:
    """Serve seeds until the input ends."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps({"seconds": seconds_of(json.loads(line)["seed"])}), file=answers)


def measured(seeds: Sequence[int], limit: float = LIMIT, tell: Callable[[str], None] = print) -> dict[int, float]:
    """The seconds of each seed; those of the limit where a compilation took longer, and infinity where the child crashed."""
    times: dict[int, float] = {}
    with Child("tests.fuzz.functions", "seconds", ["--child"], renewed_after=100) as child:
        for seed in seeds:
            answer = child.ask({"seed": seed}, limit)
            if answer.last is not None:
                times[seed] = answer.last["seconds"]
            else:
                times[seed] = limit if answer.end == "hung" else float("inf")
                tell(f"seed {seed} {answer.end}: {answer.printed[-300:]}")
    return times


def main() -> int:
    """Print the slowest; 1 if one took longer than the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.functions", description=__doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=300, help="how many graphs")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one compilation")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer_questions()
        return 0
    times = measured(range(options.start, options.start + options.seeds), options.limit)
    for seed, seconds in sorted(times.items(), key=lambda item: -item[1])[:SLOWEST]:
        print(f"seed {seed}: {seconds:.1f} s, {sum(node.is_op for node in graph_of(seed).nodes)} ops")
    print(f"{len(times)} graphs, {sum(times.values()) / max(len(times), 1):.2f} s on average")
    return int(max(times.values()) >= options.limit)


if __name__ == "__main__":
    sys.exit(main())
