"""Recipes: products, convolutions, pools, norms, attention, recurrent layers, images."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.node import NodeEntry
from partita.graph.types import Array
from tests.fuzz.models.builder import Builder, Skip
from tests.fuzz.models.elementwise import broadcastable
from tests.fuzz.models.recipes import recipe

FLOATING = ("float32", "float16", "float64")


@recipe("MatMul")
def matmul(b: Builder, op: str) -> None:
    """Vectors, matrices, and batches that are broadcast."""
    dtype = b.dtype(op)
    m, k, n = (b.choice(1, 2, 3, 5, 8, 16, 17, 33) for _ in range(3))
    lead = b.random.shape(b.choice(0, 0, 1, 2)) if m * n < 100 else ()
    left = (*lead, m, k) if lead or b.chance(0.85) else (k,)
    right = (*broadcastable(b, lead), k, n) if b.chance(0.85) else (k,)
    b.add(op, b.tensor(dtype, left), b.tensor(dtype, right))


@recipe("Gemm")
def gemm(b: Builder, op: str) -> None:
    """Gemm, with either operand transposed, and a bias that is broadcast."""
    dtype = b.dtype(op)
    m, k, n = (b.choice(1, 2, 3, 5, 8, 17, 32) for _ in range(3))
    flip_a, flip_b = b.choice(None, 0, 1), b.choice(None, 0, 1)
    given = [b.tensor(dtype, (k, m) if flip_a else (m, k)), b.tensor(dtype, (n, k) if flip_b else (k, n))]
    if b.opset < 11 or b.chance(0.7):
        given.append(b.tensor(dtype, b.choice((m, n), (n,), (1, n), (m, 1), (1,), ())))
    whole = "int" in dtype
    b.add(
        op,
        *given,
        transA=flip_a,
        transB=flip_b,
        alpha=None if whole else b.choice(None, 0.5),
        beta=None if whole else b.choice(None, 0.0, 2.0),
    )


@recipe("Einsum")
def einsum(b: Builder, op: str) -> None:
    """Products and sums by letters."""
    equation = b.choice(
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ij->i",
        "bhid,bhjd->bhij",
        "i,j->ij",
        "ii->i",
        "...ij,...jk->...ik",
        "ij,ij->",
    )
    sizes = {letter: b.choice(1, 2, 3, 5, 8) for letter in "bhijkd"}
    dtype = b.dtype(op, only=FLOATING + ("int32", "int64"))
    terms = equation.split("->")[0].split(",")
    b.add(
        op,
        *[b.tensor(dtype, tuple(sizes[letter] for letter in term.replace("...", "b"))) for term in terms],
        equation=equation,
    )


@recipe("Det")
def det(b: Builder, op: str) -> None:
    """Determinants of small matrices."""
    n = b.choice(1, 2, 3, 4)
    b.add(op, b.tensor(b.dtype(op, only=FLOATING), (*b.random.shape(b.choice(0, 1, 2)), n, n)))


class Window:
    """A window that slides over an image, with sizes that fit."""

    def __init__(self, b: Builder, rank: int, dilated: bool = True) -> None:
        self.rank = rank
        self.kernel = [b.choice(1, 2, 3, 3, 5) if rank < 3 else b.choice(1, 2, 3) for _ in range(rank)]
        self.strides = [b.choice(1, 1, 2, 3) for _ in range(rank)]
        self.dilations = [b.choice(1, 1, 1, 2) if dilated else 1 for _ in range(rank)]
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations)]
        self.sizes = tuple(n + b.choice(0, 1, 2, 4, 7 if rank < 3 else 1) for n in reach)
        most = [min(k - 1, 2) for k in self.kernel]
        self.pads = [b.rng.randint(0, n) for n in (*most, *most)]
        self.auto = b.choice("SAME_UPPER", "SAME_LOWER", "VALID") if b.chance(0.2) else None

    def attributes(self, b: Builder) -> dict[str, object]:
        """The attributes as the op takes them; a default may be left out."""
        plain = [1] * self.rank
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides if self.strides != plain or b.chance(0.5) else None,
            "dilations": self.dilations if self.dilations != plain or b.chance(0.3) else None,
            "pads": None if self.auto else self.pads if any(self.pads) or b.chance(0.5) else None,
            "auto_pad": self.auto,
        }


@recipe("Conv ConvTranspose ConvInteger QLinearConv DeformConv")
def convolution(b: Builder, op: str) -> None:
    """A convolution of one to three dimensions, with groups, also depthwise."""
    rank = 2 if op == "DeformConv" else b.choice(1, 2, 2, 2, 3)
    window = Window(b, rank)
    group = b.choice(1, 1, 1, 2, 3, 4)
    per_in, per_out = b.choice(1, 1, 2, 3, 4, 8), b.choice(1, 1, 2, 3, 8)
    batch = b.choice(1, 1, 2)
    shape = (batch, group * per_in, *window.sizes)
    weights = (group * per_out, per_in, *window.kernel)
    attributes = {**window.attributes(b), "group": group if group > 1 else b.choice(None, 1)}
    if op == "ConvTranspose":
        transposed_convolution(
            b, op, window, shape, (group * per_in, per_out, *window.kernel), group * per_out, attributes
        )
    elif op == "ConvInteger":
        dtypes = b.choice("uint8", "int8"), b.choice("uint8", "int8")
        x, w = b.tensor(dtypes[0], shape), b.tensor(dtypes[1], weights)
        points = [b.number(b.choice(0, 1, 3), dtype) for dtype in dtypes][: b.choice(0, 1, 2)]
        b.add(op, x, w, *points, **attributes)
    elif op == "QLinearConv":
        quantized_convolution(b, op, shape, weights, attributes)
    elif op == "DeformConv":
        deformed_convolution(b, op, window, shape, weights, attributes)
    else:
        dtype = b.dtype(op, only=FLOATING)
        bias = (b.tensor(dtype, (group * per_out,)),) if b.chance(0.5) else ()
        b.add(op, b.tensor(dtype, shape), b.tensor(dtype, weights, rest=0.1), *bias, **attributes)


def transposed_convolution(
    b: Builder,
    op: str,
    window: Window,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    channels: int,
    attributes: dict,
) -> None:
    """The way back, with sizes that no forward convolution leaves open."""
    dtype = b.dtype(op, only=FLOATING)
    extra = [
        b.rng.randint(0, max(stride, dilation) - 1)
        for stride, dilation in zip(window.strides, window.dilations)
    ]
    bias = (b.tensor(dtype, (channels,)),) if b.chance(0.5) else ()
    sizes = tuple(min(n, 6) for n in shape[2:])
    x = b.tensor(dtype, (*shape[:2], *sizes))
    if b.chance(0.15):
        full = [
            s * (n - 1) + (k - 1) * d + 1
            for s, n, k, d in zip(window.strides, sizes, window.kernel, window.dilations)
        ]
        attributes = {
            **attributes,
            "output_shape": [max(1, n - b.choice(0, 1)) for n in full],
            "pads": None,
            "auto_pad": b.choice(None, "SAME_UPPER", "SAME_LOWER"),
        }
    b.add(
        op,
        x,
        b.tensor(dtype, weights, rest=0.1),
        *bias,
        **attributes,
        output_padding=extra if b.chance(0.5) else None,
    )


def quantized_convolution(
    b: Builder, op: str, shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict
) -> None:
    """Integers all the way, with a scale for each channel perhaps."""
    kind = b.choice("uint8", "int8")
    per = (weights[0],) if b.chance(0.4) else ()
    given: list[NodeEntry] = [
        b.tensor(kind, shape),
        b.number(0.0625, "float32"),
        b.number(b.choice(0, 3), kind),
        b.tensor("int8", weights, rest=0.1),
        b.constant(b.random.uniform("float32", per, 0.01, 0.2)),
        b.constant(np.zeros(per, "int8")),
        b.number(0.5, "float32"),
        b.number(b.choice(0, 7), kind),
    ]
    if b.chance(0.5):
        given.append(b.tensor("int32", (weights[0],)))
    b.add(op, *given, **attributes)


def deformed_convolution(
    b: Builder, op: str, window: Window, shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict
) -> None:
    """Every place of the window is moved by an offset of its own."""
    spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations)]
    out = [
        (n + p + q - s) // t + 1
        for n, p, q, s, t in zip(window.sizes, window.pads[:2], window.pads[2:], spans, window.strides)
    ]
    places = window.kernel[0] * window.kernel[1]
    dtype = b.dtype(op, only=("float32",))
    offsets = b.given(b.random.uniform(dtype, (shape[0], 2 * places, *out), -1.5, 1.5))
    attributes = {
        **attributes,
        "pads": window.pads,
        "auto_pad": None,
        "strides": window.strides,
        "dilations": window.dilations,
    }
    b.add(op, b.tensor(dtype, shape), b.tensor(dtype, weights), offsets, **attributes)


@recipe("AveragePool MaxPool LpPool")
def pool(b: Builder, op: str) -> None:
    """A pool of one to three dimensions, whose sizes are rounded up or down."""
    window = Window(b, b.choice(1, 2, 2, 2, 3), dilated=op == "MaxPool" or b.opset >= 19)
    dtype = b.dtype(op, only=(*FLOATING, "int8", "uint8"))
    given = b.tensor(
        dtype,
        (b.choice(1, 2), b.choice(1, 3, 8, 16), *window.sizes),
        when=lambda array: not np.isnan(array.astype("d")).any(),
    )
    two = op == "MaxPool" and b.chance(0.3)
    b.add(
        op, given, n_outputs=2 if two else 1, **window.attributes(b), ceil_mode=b.choice(None, 0, 1),
        count_include_pad=b.choice(None, 0, 1), p=b.choice(None, 1, 2, 3),
        storage_order=b.choice(None, None, 0, 1) if two else None,
    )


@recipe("MaxUnpool")
def unpool(b: Builder, op: str) -> None:
    """Behind a MaxPool without overlaps, so that every place is met once."""
    size = b.choice(2, 3)
    given = b.tensor("float32", (1, b.choice(1, 2), size * b.choice(1, 2, 3), size * b.choice(1, 2)))
    pooled = b.add("MaxPool", given, n_outputs=2, kernel_shape=[size, size], strides=[size, size])
    b.add(op, pooled[0], pooled[1], kernel_shape=[size, size], strides=[size, size])


@recipe("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def global_pool(b: Builder, op: str) -> None:
    """Over a whole image."""
    shape = (b.choice(1, 2), b.choice(1, 3, 8), *b.random.shape(b.choice(1, 2, 3)))
    b.add(
        op,
        b.tensor(b.dtype(op, only=FLOATING), shape, when=lambda array: not np.isnan(array.astype("d")).any()),
        p=b.choice(None, 1, 3),
    )


def image(b: Builder, dtype: str, channels: int) -> NodeEntry:
    """[N, C, ...]"""
    return b.tensor(dtype, (b.choice(1, 2), channels, *b.random.shape(b.choice(1, 2, 2, 3))))


@recipe("BatchNormalization")
def batch_norm(b: Builder, op: str) -> None:
    """BatchNormalization as in inference."""
    dtype, channels = b.dtype(op, only=FLOATING), b.choice(1, 2, 3, 8, 17)
    vectors = [b.tensor(dtype, (channels,)) for _ in range(3)]
    b.add(
        op,
        image(b, dtype, channels),
        *vectors,
        b.given(b.random.uniform(dtype, (channels,), 0.1, 2)),
        epsilon=b.choice(None, 1e-3),
    )


@recipe("InstanceNormalization")
def instance_norm(b: Builder, op: str) -> None:
    """InstanceNormalization, over each channel of each image alone."""
    dtype, channels = b.dtype(op, only=FLOATING), b.choice(1, 2, 3, 8)
    b.add(
        op,
        image(b, dtype, channels),
        b.tensor(dtype, (channels,)),
        b.tensor(dtype, (channels,)),
        epsilon=b.choice(None, 1e-3),
    )


@recipe("GroupNormalization")
def group_norm(b: Builder, op: str) -> None:
    """GroupNormalization, over groups of channels."""
    dtype, groups, per = b.dtype(op, only=FLOATING), b.choice(1, 2, 3), b.choice(1, 2, 4)
    size = groups * per if b.opset >= 21 else groups
    b.add(
        op,
        image(b, dtype, groups * per),
        b.tensor(dtype, (size,)),
        b.tensor(dtype, (size,)),
        num_groups=groups,
        epsilon=b.choice(None, 1e-2),
    )


@recipe("LayerNormalization RMSNormalization")
def layer_norm(b: Builder, op: str) -> None:
    """Over the last axes."""
    dtype = b.dtype(op, only=FLOATING)
    given = b.tensor(dtype, when=lambda array: array.ndim > 0 and bool(array.size))
    axis = b.axis(b.array(given).ndim)
    shape = b.shape(given)[axis:]
    bias = (b.tensor(dtype, shape),) if op[0] == "L" and b.chance(0.7) else ()
    b.add(
        op,
        given,
        b.tensor(dtype, shape),
        *bias,
        axis=axis,
        epsilon=b.choice(None, 1e-3),
        n_outputs=b.choice(1, 1, 3) if op[0] == "L" else 1,
    )


@recipe("LRN")
def lrn(b: Builder, op: str) -> None:
    """Over neighbouring channels."""
    b.add(
        op,
        image(b, b.dtype(op, only=FLOATING), b.choice(1, 2, 5, 9)),
        size=b.choice(1, 3, 5),
        alpha=b.choice(None, 0.1),
        beta=b.choice(None, 0.5),
        bias=b.choice(None, 1.0, 2.0),
    )


@recipe("Attention")
def attention(b: Builder, op: str) -> None:
    """Heads apart or in one axis, shared keys, masks."""
    dtype = b.dtype(op, only=FLOATING)
    kv, times = b.choice(1, 2, 3), b.choice(1, 1, 2)
    batch, queries, keys, size, wide = (
        b.choice(1, 2),
        b.choice(1, 3, 8, 17),
        b.choice(1, 4, 9, 16),
        b.choice(2, 4, 8),
        b.choice(2, 4, 5),
    )
    flat = b.chance(0.4)
    shapes = [(kv * times, queries, size), (kv, keys, size), (kv, keys, wide)]
    given: list[NodeEntry | None] = [
        b.tensor(dtype, (batch, n, h * d) if flat else (batch, h, n, d)) for h, n, d in shapes
    ]
    if b.chance(0.4):
        given.append(
            b.tensor(
                b.choice("bool", dtype),
                b.choice((queries, keys), (1, 1, queries, keys)),
                when=lambda array: array.dtype != bool or bool(array.any(-1).all()),
            )
        )
    heads = {"q_num_heads": kv * times, "kv_num_heads": kv} if flat else {}
    b.add(
        op,
        *given,
        **heads,
        is_causal=b.choice(None, None, 0, 1),
        scale=b.choice(None, 0.5),
        softcap=b.choice(None, 2.0),
    )


@recipe("RotaryEmbedding")
def rotary(b: Builder, op: str) -> None:
    """Pairs turned by their places."""
    dtype = b.dtype(op, only=("float32", "float16"))
    batch, heads, length, size = b.choice(1, 2), b.choice(1, 3), b.choice(1, 4), b.choice(2, 4, 8)
    caches = [b.given(b.random.uniform(dtype, (batch, length, size // 2), -1, 1)) for _ in range(2)]
    b.add(op, b.tensor(dtype, (batch, heads, length, size)), *caches, interleaved=b.choice(None, 0, 1))


@recipe("CausalConvWithState")
def causal_convolution(b: Builder, op: str) -> None:
    """Along time, with what came before."""
    dtype, channels, kernel = "float32", b.choice(1, 3, 4), b.choice(1, 2, 4)
    x, w = (
        b.tensor(dtype, (b.choice(1, 2), channels, b.choice(1, 3, 6))),
        b.tensor(dtype, (channels, 1, kernel)),
    )
    b.add(
        op,
        x,
        w,
        *((b.tensor(dtype, (channels,)),) if b.chance(0.5) else ()),
        n_outputs=2,
        activation=b.choice(None, "none", "silu"),
    )


@recipe("LinearAttention")
def linear_attention(b: Builder, op: str) -> None:
    """Attention without a softmax."""
    batch, heads, length, size = b.choice(1, 2), b.choice(1, 2), b.choice(1, 3), b.choice(2, 4)
    given = [b.tensor("float32", (batch, length, heads * size)) for _ in range(3)]
    b.add(
        op,
        *given,
        n_outputs=2,
        q_num_heads=heads,
        kv_num_heads=heads,
        update_rule="linear",
        scale=b.choice(None, 0.5),
    )


@recipe("RNN GRU LSTM")
def recurrent(b: Builder, op: str) -> None:
    """RNN, GRU or LSTM, in either direction or both, with or without initial states."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    direction = b.choice("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = b.choice(1, 2, 4), b.choice(1, 2, 3), b.choice(1, 3, 4), b.choice(1, 2, 5)
    dtype = "float32"
    given: list[NodeEntry | None] = [
        b.tensor(dtype, (steps, batch, size)),
        b.tensor(dtype, (ways, gates * hidden, size)),
        b.tensor(dtype, (ways, gates * hidden, hidden)),
    ]
    if b.chance(0.6):
        given.append(b.tensor(dtype, (ways, 2 * gates * hidden)))
        if b.chance(0.4):
            given.append(b.given(b.random.within("int32", (batch,), 1, steps + 1)))
            if b.chance(0.5):
                given += [b.tensor(dtype, (ways, batch, hidden)) for _ in range(2 if op == "LSTM" else 1)]
    b.add(
        op, *given, n_outputs=3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction,
        linear_before_reset=b.choice(None, 1), clip=b.choice(None, None, 0.5),
    )


@recipe("Resize")
def resize(b: Builder, op: str) -> None:
    """Sizes or scales, in every mode."""
    if b.opset < 11:
        raise Skip
    mode = b.choice("nearest", "linear", "cubic")
    shape = (b.choice(1, 2), b.choice(1, 3), b.choice(2, 3, 5), b.choice(2, 4, 7))
    given = b.tensor(
        b.dtype(op, only=("float32", "float16", "uint8") if mode == "nearest" else ("float32",)), shape
    )
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": b.choice(
            None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"
        ),
        "nearest_mode": b.choice(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        if mode == "nearest"
        else None,
        "cubic_coeff_a": b.choice(None, -0.5) if mode == "cubic" else None,
    }
    roi = b.constant(np.zeros(0, "float32")) if b.opset < 13 else None
    if b.chance(0.5):
        scales = b.constant(
            np.array([1, 1, b.choice(0.5, 1, 1.5, 2, 3), b.choice(0.6, 1, 2, 2.5)], "float32")
        )
        b.add(op, given, roi, scales, **attributes)
    else:
        empty = b.constant(np.zeros(0, "float32")) if b.opset < 13 else None
        b.add(
            op,
            given,
            roi,
            empty,
            b.numbers(*shape[:2], b.choice(1, 2, 3, 6), b.choice(1, 4, 5, 8)),
            **attributes,
        )


@recipe("GridSample")
def grid_sample(b: Builder, op: str) -> None:
    """Points anywhere, outside too."""
    batch, size = b.choice(1, 2), (b.choice(2, 3), b.choice(2, 5))
    x = b.tensor("float32", (batch, b.choice(1, 2), *size))
    grid = b.given(b.random.uniform("float32", (batch, b.choice(1, 3), b.choice(2, 4), 2), -1.3, 1.3))
    modes = ("linear", "nearest", "cubic") if b.opset >= 20 else ("bilinear", "nearest", "bicubic")
    b.add(
        op,
        x,
        grid,
        mode=b.choice(None, *modes),
        padding_mode=b.choice(None, "zeros", "border", "reflection"),
        align_corners=b.choice(None, 0, 1),
    )


@recipe("AffineGrid")
def affine_grid(b: Builder, op: str) -> None:
    """Points of an image, turned and moved."""
    batch = b.choice(1, 2)
    b.add(
        op,
        b.tensor("float32", (batch, 2, 3)),
        b.numbers(batch, 1, b.choice(1, 2, 3), b.choice(2, 4)),
        align_corners=b.choice(None, 0, 1),
    )


@recipe("RoiAlign")
def roi_align(b: Builder, op: str) -> None:
    """Boxes cut out of images."""
    batch, count = b.choice(1, 2), b.choice(1, 3)
    corners: Array = b.random.uniform("float32", (count, 2), 0, 4)
    boxes = np.concatenate([corners, corners + b.random.uniform("float32", (count, 2), 1, 5)], axis=1)
    b.add(
        op, b.tensor("float32", (batch, b.choice(1, 2), b.choice(5, 8), b.choice(6, 9))), b.given(boxes),
        b.given(b.random.within("int64", (count,), 0, batch)), mode=b.choice(None, "avg", "max"), output_height=b.choice(None, 2),
        output_width=b.choice(None, 3), sampling_ratio=b.choice(None, 1, 2), spatial_scale=b.choice(None, 0.5),
        coordinate_transformation_mode=b.choice(None, "half_pixel", "output_half_pixel"),
    )


@recipe("Col2Im")
def col2im(b: Builder, op: str) -> None:
    """Columns put back where they came from: of signals, images and volumes, the blocks dense or dilated."""
    rank = b.choice(1, 2, 3)
    block, size = [b.choice(1, 2) for _ in range(rank)], [b.choice(3, 4) for _ in range(rank)]
    dilations = [b.choice(1, 2) for _ in range(rank)] if b.chance(0.4) else [1] * rank
    counts = [whole - (part - 1) * apart for whole, part, apart in zip(size, block, dilations)]
    given = b.tensor("float32", (b.choice(1, 2), b.choice(1, 2) * math.prod(block), math.prod(counts)))
    b.add(op, given, b.numbers(*size), b.numbers(*block), dilations=dilations)


@recipe("NonMaxSuppression")
def suppression(b: Builder, op: str) -> None:
    """Boxes of which none overlap another much."""
    count = b.choice(1, 4, 6)
    corners: Array = b.random.uniform("float32", (1, count, 2), 0, 4)
    boxes = np.concatenate([corners, corners + b.random.uniform("float32", (1, count, 2), 0.5, 3)], axis=2)
    scores = b.given(b.random.uniform("float32", (1, b.choice(1, 2), count), 0, 1))
    limits = [b.number(b.choice(1, 3)), b.number(b.choice(0.3, 0.5), "float32"), b.number(0.1, "float32")]
    b.add(op, b.given(boxes), scores, *limits[: b.choice(1, 2, 3)], center_point_box=b.choice(None, 0))


@recipe("BlackmanWindow HammingWindow HannWindow")
def window_function(b: Builder, op: str) -> None:
    """Weights of a signal."""
    b.add(
        op, b.number(b.choice(2, 5, 8)), periodic=b.choice(None, 0, 1), output_datatype=b.choice(None, 1, 11)
    )


@recipe("MelWeightMatrix")
def mel(b: Builder, op: str) -> None:
    """Weights of a spectrum."""
    b.add(
        op,
        b.number(b.choice(2, 4)),
        b.number(16),
        b.number(8000),
        b.number(0.0, "float32"),
        b.number(4000.0, "float32"),
    )


@recipe("DFT")
def dft(b: Builder, op: str) -> None:
    """A spectrum, or the way back."""
    given = b.tensor("float32", (b.choice(1, 2), b.choice(3, 4, 8), b.choice(1, 2)))
    if b.opset < 20:
        b.add(op, given, axis=1, inverse=b.choice(None, 0, 1))
    else:
        b.add(op, given, None, b.number(1), inverse=b.choice(None, 0, 1))


@recipe("STFT")
def stft(b: Builder, op: str) -> None:
    """Spectra of pieces."""
    length = b.choice(4, 8)
    b.add(
        op,
        b.tensor("float32", (1, 16, 1)),
        b.number(b.choice(2, 4)),
        None,
        b.number(length),
        onesided=b.choice(None, 0, 1),
    )


@recipe("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")
def loss(b: Builder, op: str) -> None:
    """The loss of class labels, sometimes with a weight for each class."""
    batch, classes, rest = b.choice(1, 3), b.choice(2, 4), b.random.shape(b.choice(0, 1))
    labels = b.given(b.random.within("int64", (batch, *rest), 0, classes))
    weight = (b.given(b.random.uniform("float32", (classes,), 0.1, 1)),) if b.chance(0.5) else ()
    b.add(
        op,
        b.tensor("float32", (batch, classes, *rest)),
        labels,
        *weight,
        reduction=b.choice(None, "none", "sum", "mean"),
        ignore_index=b.choice(None, None, 0),
    )
