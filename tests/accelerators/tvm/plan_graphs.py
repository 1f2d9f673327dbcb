"""Graphs whose kernels are kept as sums: one for each turn that a plan may take. Inputs that begin with w are constants."""

from __future__ import annotations

from collections.abc import Iterator

from tests.accelerators.tvm import plan_any_size, plan_bytes, plan_draws, plan_moves, plan_nets


def _products() -> Iterator[tuple[str, str]]:
    for m, k, n in [(1, 64, 64), (1, 768, 768), (2, 100, 37), (7, 33, 1), (12, 5, 9), (37, 64, 48), (64, 768, 256), (128, 256, 1000),
                    (128, 3072, 64), (200, 16, 320), (512, 8, 8), (3, 2048, 512)]:
        for kind in ("float", "bfloat16") if k % 2 == 0 else ("float", "float16"):
            yield f"{kind} {m}x{k}x{n}", f"({kind}[{m},{k}] x, {kind}[{k},{n}] w) => ({kind}[{m},{n}] y) {{ y = MatMul (x, w) }}"
    for a, b in [("2,12,64,32", "2,12,32,64"), ("1,1,17,5", "4,5,9"), ("8,1,64", "8,64,200"), ("3,100,8", "3,8,1"), ("16,7,7", "7,7")]:
        for kind in ("float", "double"):
            yield f"{kind} {a} by {b}", f"({kind}[{a}] x, {kind}[{b}] y) => ({kind}[] z) {{ z = MatMul (x, y) }}"
    for turn in ("transA = 1", "transB = 1", "alpha = 0.5, beta = 2.0"):
        sizes = ("32,20", "32,24") if "transA" in turn else ("20,32", "24,32") if "transB" in turn else ("20,32", "32,24")
        text = f"(float[{sizes[0]}] x, float[{sizes[1]}] w, float[24] w1) => (float[20,24] y) {{ y = Gemm <{turn}> (x, w, w1) }}"
        yield f"gemm {turn}", text
    for name, after in {
        "bias relu": "b = Add (p, w1) y = Relu (b)", "gelu": "b = Add (p, w1) y = Gelu (b)",
        "silu": "s = Sigmoid (p) y = Mul (s, p)", "residual": "b = Add (p, w1) y = Add (b, x)",
        "softmax": "y = Softmax (p)", "norm": "b = Add (p, x) y = LayerNormalization (b, w1, w1)",
        "clip": "lo = Constant <value_float = 0.0> () hi = Constant <value_float = 6.0> () y = Clip (p, lo, hi)",
        "heads": "s = Constant <value_ints = [40,4,16]> () r = Reshape (p, s) y = Transpose <perm = [1,0,2]> (r)",
    }.items():
        yield f"product and {name}", f"(float[40,64] x, float[64,64] w, float[64] w1) => (float[] y) {{ p = MatMul (x, w) {after} }}"


def _convolutions() -> Iterator[tuple[str, str]]:
    for name, x, w, attributes in [
        ("first", "1,3,64,64", "32,3,7,7", "strides = [2,2], pads = [3,3,3,3]"),
        ("3x3", "1,64,28,28", "64,64,3,3", "pads = [1,1,1,1]"),
        ("3x3 of a batch", "4,16,14,14", "24,16,3,3", "pads = [1,1,1,1], strides = [2,2]"),
        ("3x3 dilated", "1,32,20,20", "32,32,3,3", "pads = [2,2,2,2], dilations = [2,2]"),
        ("pointwise", "1,64,28,28", "128,64,1,1", ""),
        ("pointwise with strides", "1,64,28,28", "32,64,1,1", "strides = [2,2]"),
        ("pointwise on one pixel", "1,256,1,1", "64,256,1,1", ""),
        ("odd channels", "1,5,17,13", "7,5,3,2", "pads = [1,0,0,1]"),
        ("groups", "1,32,14,14", "32,8,3,3", "group = 4, pads = [1,1,1,1]"),
        ("depthwise", "1,48,28,28", "48,1,3,3", "group = 48, pads = [1,1,1,1]"),
        ("depthwise with strides", "2,20,15,15", "20,1,5,5", "group = 20, pads = [2,2,2,2], strides = [2,2]"),
        ("depthwise twice", "1,8,10,10", "16,1,3,3", "group = 8"),
        ("patches", "1,3,64,64", "48,3,16,16", "strides = [16,16]"),
        ("1-D", "1,32,100", "48,32,3", "pads = [1,1]"),
        ("1-D dilated, causal", "1,16,64", "16,16,2", "pads = [4,0], dilations = [4]"),
        ("1-D patches", "1,16,60", "24,16,4", "strides = [4]"),
        ("3-D", "1,8,6,10,10", "16,8,3,3,3", "pads = [1,1,1,1,1,1]"),
        ("3-D patches", "1,3,4,16,16", "32,3,2,8,8", "strides = [2,8,8]"),
        ("same", "1,16,15,16", "16,16,3,3", 'auto_pad = "SAME_UPPER", strides = [2,2]'),
        ("wide", "1,4,3,200", "16,4,1,9", "pads = [0,4,0,4]"),
    ]:
        outs = w.split(",")[0]
        for kind in ("float", "double" if name.endswith("D patches") else "bfloat16"):
            given = f"{kind}[{x}] x, {kind}[{w}] w, {kind}[{outs}] w1"
            yield f"{kind} convolution, {name}", f"({given}) => ({kind}[] y) {{ c = Conv <{attributes}> (x, w, w1) y = Relu (c) }}"
    for name, x, w, attributes in [
        ("twice as large", "1,16,10,10", "16,24,2,2", "strides = [2,2]"),
        ("overlapping", "1,8,9,9", "8,12,4,4", "strides = [2,2], pads = [1,1,1,1]"),
        ("groups", "1,8,7,7", "8,3,3,3", "group = 2, output_padding = [1,1], strides = [2,2]"),
        ("1-D", "1,16,20", "16,8,4", "strides = [2], pads = [1,1]"),
    ]:
        yield f"transposed, {name}", f"(float[{x}] x, float[{w}] w) => (float[] y) {{ y = ConvTranspose <{attributes}> (x, w) }}"
    block = "a = Conv <pads = [1,1,1,1]> (x, w) b = Relu (a) c = Conv <pads = [1,1,1,1]> (b, w) d = Add (c, x) y = Relu (d)"
    yield "residual block", f"(float[1,32,14,14] x, float[32,32,3,3] w) => (float[] y) {{ {block} }}"
    fire = "a = Conv (x, w) b = Conv (a, w1) c = Conv <pads = [1,1,1,1]> (a, w2) y = Concat <axis = 1> (b, c)"
    given = "float[1,64,13,13] x, float[16,64,1,1] w, float[64,16,1,1] w1, float[64,16,3,3] w2"
    yield "fire", f"({given}) => (float[] y) {{ {fire} }}"


def _images() -> Iterator[tuple[str, str]]:
    for op, attributes in [
        ("MaxPool", "kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]"), ("MaxPool", "kernel_shape = [2,2], strides = [2,2]"),
        ("MaxPool", "kernel_shape = [3,2], dilations = [2,1]"), ("MaxPool", "kernel_shape = [3,3], strides = [2,2], ceil_mode = 1"),
        ("AveragePool", "kernel_shape = [3,3], pads = [1,1,1,1]"),
        ("AveragePool", "kernel_shape = [2,2], strides = [2,2], count_include_pad = 1, pads = [0,1,0,1]"),
        ("LpPool", "kernel_shape = [3,3], p = 2"), ("GlobalAveragePool", ""), ("GlobalMaxPool", ""),
        ("DepthToSpace", "blocksize = 2"), ("SpaceToDepth", "blocksize = 2"), ("LRN", "size = 3"),
    ]:
        x = "1,16,12,12" if "Depth" in op else "1,24,15,17"
        yield f"{op} {attributes}", f"(float[{x}] x) => (float[] y) {{ y = {op} <{attributes}> (x) }}"
    for mode, rest in [("nearest", ""), ("linear", ""), ("cubic", ""), ("linear", ', coordinate_transformation_mode = "align_corners"'),
                       ("nearest", ', coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"')]:
        for sizes in ("1,8,26,30", "1,8,9,31"):
            sizing = f"s = Constant <value_ints = [{sizes}]> ()"
            text = f'(float[1,8,13,15] x) => (float[] y) {{ {sizing} y = Resize <mode = "{mode}"{rest}> (x, , , s) }}'
            yield f"resize to {sizes}, {mode}{rest}", text
    yield "grid", "(float[1,4,9,9] x, float[1,5,6,2] g) => (float[] y) { y = GridSample (x, g) }"
    yield "regions", "(float[1,4,9,9] x, float[3,4] r, int64[3] i) => (float[] y) { y = RoiAlign <output_height = 2, output_width = 2> (x, r, i) }"


def _rows() -> Iterator[tuple[str, str]]:
    for sizes in ("12,40", "2,7,1", "3,1000", "1,8,33,16", "64,768"):
        for op in ("Softmax", "LogSoftmax", "Hardmax"):
            yield f"{op} {sizes}", f"(float[{sizes}] x) => (float[] y) {{ y = {op} (x) }}"
        last = sizes.rpartition(",")[2]
        yield f"norm {sizes}", f"(float[{sizes}] x, float[{last}] w) => (float[] y) {{ y = LayerNormalization (x, w, w) }}"
        yield f"root {sizes}", f"(bfloat16[{sizes}] x, bfloat16[{last}] w) => (bfloat16[] y) {{ y = RMSNormalization (x, w) }}"
        yield f"running {sizes}", f"(float[{sizes}] x) => (float[] y) {{ a = Constant <value_int = -1> () y = CumSum (x, a) }}"
        yield f"largest {sizes}", f"(float[{sizes}] x) => (int64[] y) {{ y = ArgMax <axis = -1> (x) }}"
        yield f"best {sizes}", f"(float[{sizes}] x) => (float[] v, int64[] i) {{ k = Constant <value_ints = [1]> () v, i = TopK (x, k) }}"
    for axes in ("0", "1", "2", "0,2", "1,2", "0,1,2"):
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
            yield f"{op} over {axes}", f"(float[6,20,40] x) => (float[] y) {{ a = Constant <value_ints = [{axes}]> () y = {op} (x, a) }}"
    yield "softmax across", "(float[2,10,30] x) => (float[] y) { y = Softmax <axis = 1> (x) }"
    yield "groups of channels", "(float[2,12,5,7] x, float[12] w) => (float[] y) { y = GroupNormalization <num_groups = 3> (x, w, w) }"
    yield "instances", "(float[2,6,9,9] x, float[6] w) => (float[] y) { y = InstanceNormalization (x, w, w) }"
    yield "batches", "(float[2,6,9,9] x, float[6] w, float[6] w1) => (float[] y) { y = BatchNormalization (x, w, w, w, w1) }"


def _attention() -> Iterator[tuple[str, str]]:
    for rows, keys, size in [(1, 64, 64), (5, 7, 4), (33, 33, 20), (128, 128, 64), (64, 512, 32), (200, 200, 80)]:
        given = f"float[1,4,{rows},{size}] q, float[1,4,{keys},{size}] k, float[1,4,{keys},{size}] v"
        parts = "t = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, t) c = Constant <value_float = 0.125> () m = Mul (s, c)"
        yield f"attention {rows} {keys} {size}", f"({given}) => (float[] y) {{ {parts} p = Softmax (m) y = MatMul (p, v) }}"
        masked = f"{parts} a = Add (m, mask) p = Softmax (a) y = MatMul (p, v)"
        yield f"masked attention {rows} {keys} {size}", f"({given}, float[1,1,{rows},{keys}] mask) => (float[] y) {{ {masked} }}"
    for kind in ("float", "bfloat16"):
        given = f"{kind}[2,8,17,32] q, {kind}[2,2,40,32] k, {kind}[2,2,40,32] v"
        yield f"{kind} grouped heads", f"({given}) => ({kind}[] y) {{ y = Attention <is_causal = 1> (q, k, v) }}"
    yield "rotary", "(float[1,4,9,16] x, float[20,8] w, int64[1,9] p) => (float[] y) { y = RotaryEmbedding (x, w, w, p) }"


def _elementwise() -> Iterator[tuple[str, str]]:
    for kind in ("float", "float16", "bfloat16", "double", "int32", "uint8"):
        for a, b in [("6,64", "6,64"), ("3,1,9", "5,1"), ("1000", "1"), ("2,8,7,7", "8,1,1")]:
            yield f"{kind} {a} and {b}", f"({kind}[{a}] x, {kind}[{b}] y) => ({kind}[] z) {{ s = Add (x, y) p = Mul (s, x) z = Max (p, y) }}"
    for op in "Sigmoid Tanh Erf Exp Log Sqrt Gelu Mish Softplus Elu Selu HardSwish Floor Round Sin Sign Reciprocal".split():
        yield op, f"(float[5,70] x) => (float[] y) {{ y = {op} (x) }}"
    for kind, other in [("float", "int8"), ("uint8", "float"), ("float", "bfloat16"), ("int64", "float16"), ("bool", "float")]:
        number = {"int8": 3, "float": 1, "bfloat16": 16, "float16": 10}[other]
        yield f"{kind} as {other}", f"({kind}[5,70] x) => ({other}[] y) {{ y = Cast <to = {number}> (x) }}"
    yield "largest of four", "(int64[70] a, int64[70] b, int64[1] c, int64[70] d) => (int64[] y) { y = Max (a, b, c, d) }"
    yield "where", "(bool[5,1] c, float[5,70] x, float[70] y) => (float[] z) { z = Where (c, x, y) }"
    yield "powers", "(float[5,70] x, float[5,70] y) => (float[] z) { z = Pow (x, y) }"


def _moves() -> Iterator[tuple[str, str]]:
    for kind in ("float", "int8", "double"):
        for sizes, order in [("20,30", "1,0"), ("3,20,30", "0,2,1"), ("3,20,30", "1,0,2"), ("2,3,8,9", "0,2,3,1"), ("2,8,9,3", "0,3,1,2"),
                             ("4,5,6,7", "3,2,1,0")]:
            yield f"{kind} {sizes} turned to {order}", f"({kind}[{sizes}] x) => ({kind}[] y) {{ y = Transpose <perm = [{order}]> (x) }}"
        for axis in (0, 1, 2):
            yield f"{kind} joined at {axis}", f"({kind}[4,6,8] x, {kind}[4,6,8] y) => ({kind}[] z) {{ z = Concat <axis = {axis}> (x, y, x) }}"
    cut = "b = Constant <value_ints = [1,-2]> () e = Constant <value_ints = [9,-99]> () s = Constant <value_ints = [2,-1]> ()"
    yield "cut", f"(float[9,20,7] x) => (float[] y) {{ {cut} a = Constant <value_ints = [0,1]> () y = Slice (x, b, e, a, s) }}"
    for mode in ("constant", "edge", "reflect", "wrap"):
        pads = "p = Constant <value_ints = [0,1,2,0,0,3]> ()"
        yield f"padded, {mode}", f'(float[2,5,9] x) => (float[] y) {{ {pads} y = Pad <mode = "{mode}"> (x, p) }}'
    yield "rows of a table", "(float[50,64] w, int64[3,7] i) => (float[] y) { y = Gather (w, i) }"
    yield "columns of a table", "(float[5,64] x, int32[9] i) => (float[] y) { y = Gather <axis = 1> (x, i) }"
    yield "elements", "(float[5,8] x, int64[5,3] i) => (float[] y) { y = GatherElements <axis = 1> (x, i) }"
    yield "points", "(float[5,8,9] x, int64[4,2] i) => (float[] y) { y = GatherND (x, i) }"
    yield "scattered", "(float[8,5] x, int64[3,5] i, float[3,5] u) => (float[] y) { y = ScatterElements (x, i, u) }"
    yield "scattered points", "(float[8,5] x, int64[3,1] i, float[3,5] u) => (float[] y) { y = ScatterND (x, i, u) }"
    yield "parts", "(float[4,30] x) => (float[] a, float[] b) { s = Constant <value_ints = [10,20]> () a, b = Split <axis = 1> (x, s) }"
    yield "triangle", "(float[3,9,9] x) => (float[] y) { y = Trilu <upper = 0> (x) }"
    yield "tiles", "(float[2,5] x) => (float[] y) { r = Constant <value_ints = [3,2]> () y = Tile (x, r) }"


def _quantized() -> Iterator[tuple[str, str]]:
    scales = "s = Constant <value_float = 0.02> () t = Constant <value_float = 0.05> () z = Constant <value = uint8 {7}> ()"
    signed = "n = Constant <value = int8 {0}> ()"
    for m, k, n in [(1, 64, 64), (20, 64, 48), (33, 100, 7), (128, 256, 128)]:
        parts = "a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, t, n) c = MatMul (a, b) d = Relu (c) y = QuantizeLinear (d, t, z)"
        given = f"uint8[{m},{k}] x, int8[{k},{n}] w"
        yield f"quantized product {m}x{k}x{n}", f"({given}) => (uint8[] y) {{ {scales} {signed} {parts} }}"
    for name, x, w, attributes in [
        ("3x3", "1,16,14,14", "32,16,3,3", "pads = [1,1,1,1]"), ("pointwise", "1,32,14,14", "24,32,1,1", ""),
        ("depthwise", "1,32,14,14", "32,1,3,3", "group = 32, pads = [1,1,1,1]"), ("first", "1,3,32,32", "16,3,3,3", "strides = [2,2]"),
    ]:
        parts = f"a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, t, n) c = Conv <{attributes}> (a, b) y = QuantizeLinear (c, t, z)"
        yield f"quantized convolution, {name}", f"(uint8[{x}] x, int8[{w}] w) => (uint8[] y) {{ {scales} {signed} {parts} }}"
    add = "a = DequantizeLinear (x, s, z) b = DequantizeLinear (v, t, z) c = Add (a, b) y = QuantizeLinear (c, t, z)"
    yield "quantized sum", f"(uint8[1,16,14,14] x, uint8[1,16,14,14] v) => (uint8[] y) {{ {scales} {add} }}"
    pool = "a = DequantizeLinear (x, s, z) c = GlobalAveragePool (a) y = QuantizeLinear (c, t, z)"
    yield "quantized mean", f"(uint8[1,16,14,14] x) => (uint8[] y) {{ {scales} {pool} }}"
    table = "a = DequantizeLinear (x, s, z) c = Sigmoid (a) y = QuantizeLinear (c, t, z)"
    yield "quantized table", f"(uint8[4,300] x) => (uint8[] y) {{ {scales} {table} }}"
    dynamic = "q, s, z = DynamicQuantizeLinear (x) c = MatMulInteger (q, w, z) f = Cast <to = 1> (c) y = Mul (f, s)"
    yield "dynamic product", f"(float[9,64] x, int8[64,32] w) => (float[] y) {{ {dynamic} }}"
    packed = "s = Constant <value_float = 0.1> () b = DequantizeLinear (w, s) y = MatMul (x, b)"
    for m in (1, 30):
        yield f"half bytes {m}", f"(float[{m},64] x, int8[64,96] w) => (float[] y) {{ {packed} }}"


def _recurrent() -> Iterator[tuple[str, str]]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for batch, ways in ((1, 1), (5, 2)):
            direction = ', direction = "bidirectional"' if ways == 2 else ""
            given = f"float[7,{batch},12] x, float[{ways},{gates * 16},12] w, float[{ways},{gates * 16},16] w1"
            yield f"{op} {batch} {ways}", f"({given}) => (float[] y) {{ y = {op} <hidden_size = 16{direction}> (x, w, w1) }}"


def _any_size() -> Iterator[tuple[str, str]]:
    yield "tokens", "(float[B,T,64] x, float[64,48] w, float[48] w1) => (float[B,T,48] y) { p = MatMul (x, w) b = Add (p, w1) y = Gelu (b) }"
    heads = "t = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, t) p = Softmax (s) y = MatMul (p, v)"
    yield "attention", f"(float[B,4,T,32] q, float[B,4,P,32] k, float[B,4,P,32] v) => (float[B,4,T,32] y) {{ {heads} }}"
    yield "norm", "(float[B,T,40] x, float[40] w) => (float[B,T,40] y) { y = LayerNormalization (x, w, w) }"
    yield "softmax of any", "(float[B,T] x) => (float[B,T] y) { y = Softmax (x) }"
    yield "image", "(float[N,3,H,W] x, float[16,3,3,3] w) => (float[N,16,H,W] y) { c = Conv <pads = [1,1,1,1]> (x, w) y = Relu (c) }"
    down = "c = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w) r = Relu (c) y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)"
    yield "image, smaller", f"(float[N,8,H,W] x, float[16,8,3,3] w) => (float[N,16,A,B] y) {{ {down} }}"
    yield "rows", "(float[50,24] w, int64[B,T] i) => (float[B,T,24] y) { y = Gather (w, i) }"
    yield "turned", "(float[B,T,8,4] x) => (float[B,8,T,4] y) { y = Transpose <perm = [0,2,1,3]> (x) }"
    yield "joined", "(float[B,P,8] x, float[B,T,8] y) => (float[B,S,8] z) { z = Concat <axis = 1> (x, y) }"
    yield "sums", "(float[B,T,9] x) => (float[B,9] y) { a = Constant <value_ints = [1]> () y = ReduceMean <keepdims = 0> (x, a) }"
    yield "running", "(float[B,T] x) => (float[B,T] y) { a = Constant <value_int = 1> () y = CumSum (x, a) }"
    yield "numbers", "(float[B,T] x, float[T] y) => (float[B,T] z) { s = Add (x, y) z = Tanh (s) }"
    yield "halves", "(bfloat16[B,64] x, bfloat16[64,48] w) => (bfloat16[B,48] y) { y = MatMul (x, w) }"


GRAPHS: dict[str, str] = {
    f"{part.__name__.strip('_')}: {name}": text
    for part in (_products, _convolutions, _images, _rows, _attention, _elementwise, _moves, _quantized, _recurrent, _any_size)
    for name, text in part()
} | {
    f"{part.__name__.replace('_', ' ')}, drawn: {name}": text
    for part in (
        plan_draws.products, plan_draws.convolutions, plan_draws.lines, plan_draws.attentions, plan_moves.elements, plan_moves.moves,
        plan_moves.pools, plan_moves.rarer, plan_moves.of_gpus, plan_bytes.quantized_products, plan_bytes.quantized_images,
        plan_any_size.any_size, plan_nets.nets,
    )
    for name, text in part()
}

NARROW = ("residual block", "fire", "product and", "between 16", "dense block", "shuffled", "enlarged", "three of one", "attention 33", "LSTM 5", "groups 2", "groups of channels")
"""Parts of the names of graphs whose kernels are also kept with numbers stored in two bytes."""

GRAPHS |= {f"narrow: {name}": text for name, text in GRAPHS.items() if any(part in name for part in NARROW) and "bfloat16" not in name}
