"""Graphs of the sizes that networks have, where the costs of cuts, tiles and threads decide."""

from __future__ import annotations

import random
from collections.abc import Iterator

IMAGES = [(3, 224), (16, 112), (24, 56), (32, 112), (40, 28), (64, 56), (80, 14), (96, 27), (128, 28), (160, 7), (192, 13), (256, 14), (320, 7), (512, 7)]
"""Channels and sizes of images."""

LAYERS = [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 2), (7, 2, 3), (1, 2, 0), (3, 1, 0), (2, 2, 0), (3, 1, 2)]
"""Windows, strides and padding of convolutions."""


def nets() -> Iterator[tuple[str, str]]:
    """Each graph with its name; the same in each run."""
    draw = random.Random(2217)
    for number in range(90):
        channels, size = IMAGES[number % len(IMAGES)]
        window, stride, pad = LAYERS[draw.randrange(len(LAYERS))]
        batch, groups = draw.choice((1, 1, 1, 2, 8)), draw.choice((1, 1, 1, channels, 4)) if channels % 4 == 0 else 1
        outs = channels if groups == channels else draw.choice((channels, 2 * channels, 64, 100))
        outs -= outs % groups
        sizes = f"{outs},{channels // groups},{window},{window}"
        attributes = f"group = {groups}, strides = [{stride},{stride}], pads = [{pad},{pad},{pad},{pad}]"
        after = draw.choice(("y = Relu (c)", "y = Add (c, c)", "y = Clip (c)"))
        name = f"convolution {number}, {batch}x{channels}x{size} by {sizes}, {stride}"
        given = f"float[{batch},{channels},{size},{size}] x, float[{sizes}] w, float[{outs}] w1"
        yield name, f"({given}) => (float[] y) {{ c = Conv <{attributes}> (x, w, w1) {after} }}"
    for number in range(50):
        batch, heads = draw.choice((1, 1, 2, 8)), draw.choice((1, 3, 8, 12, 16, 32))
        rows, keys, size = draw.choice((1, 4, 49, 128, 197, 384, 512)), draw.choice((16, 49, 128, 197, 512)), draw.choice((16, 32, 64, 80, 128))
        kind = draw.choice(("float", "float", "bfloat16", "float16"))
        given = f"{kind}[{batch},{heads},{rows},{size}] q, {kind}[{batch},{heads},{size},{keys}] k, {kind}[{batch},{heads},{keys},{size}] v"
        middle = draw.choice(("p = Softmax (s)", "m = Add (s, b) p = Softmax (m)"))
        given += f", {kind}[1,1,{rows},{keys}] b" if "Add" in middle else ""
        name = f"scores {number}, {kind} {batch}x{heads}x{rows}x{keys}x{size}"
        yield name, f"({given}) => ({kind}[] y) {{ s = MatMul (q, k) {middle} y = MatMul (p, v) }}"
    for number in range(50):
        m, k, n = draw.choice((1, 2, 5, 16, 49, 77, 128, 197, 512)), draw.choice((64, 96, 320, 768, 1024)), draw.choice((64, 200, 768, 1000, 3072))
        kind = draw.choice(("float", "float", "bfloat16"))
        after = draw.choice(("y = Add (p, w1)", "b = Add (p, w1) y = Gelu (b)", "b = Add (p, w1) y = Relu (b)"))
        given = f"{kind}[{m},{k}] x, {kind}[{k},{n}] w, {kind}[{n}] w1"
        yield f"product {number}, {kind} {m}x{k}x{n}", f"({given}) => ({kind}[] y) {{ p = MatMul (x, w) {after} }}"
    for number in range(30):
        channels, size = draw.choice(IMAGES[1:])
        window, stride, pad = draw.choice(LAYERS[1:4])
        outs, sign = draw.choice((channels, 2 * channels)), draw.choice(("uint8", "int8"))
        given = f"{sign}[1,{channels},{size},{size}] x, int8[{outs},{channels},{window},{window}] w"
        shape = f"strides = [{stride},{stride}], pads = [{pad},{pad},{pad},{pad}]"
        scales = f"s = Constant <value_float = 0.02> () t = Constant <value_float = 0.05> () z = Constant <value = {sign} {{7}}> ()"
        parts = (
            "n = Constant <value = int8 {0}> () a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, t, n) "
            f"c = Conv <{shape}> (a, b) r = Relu (c) y = QuantizeLinear (r, t, z)"
        )
        yield f"quantized {number}, {channels}x{size} by {outs}x{window}", f"({given}) => ({sign}[] y) {{ {scales} {parts} }}"
    for number in range(40):
        high, wide = draw.choice(((9, 3), (1, 7), (7, 1), (11, 2), (3, 9), (5, 3), (2, 2), (1, 33), (25, 1)))
        down, across = draw.choice(((1, 1), (2, 1), (1, 3)))
        channels, outs, groups = draw.choice(((1, 1, 1), (3, 7, 1), (5, 5, 5), (6, 4, 2), (13, 9, 1), (16, 16, 16), (32, 8, 1)))
        kind = draw.choice(("float", "float", "double", "bfloat16"))
        attributes = f"group = {groups}, strides = [{down},{across}], pads = [{high // 2},{wide // 2},0,{wide // 2}]"
        given = f"{kind}[{draw.choice((1, 3))},{channels},30,41] x, {kind}[{outs},{channels // groups},{high},{wide}] w"
        after = draw.choice(("y = Relu (c)", "y = Tanh (c)", "y = Mul (c, c)"))
        name = f"window {number}, {kind} {channels} to {outs} by {high}x{wide}, {down}x{across}"
        yield name, f"({given}) => ({kind}[] y) {{ c = Conv <{attributes}> (x, w) {after} }}"
