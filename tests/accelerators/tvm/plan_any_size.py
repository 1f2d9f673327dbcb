"""More graphs whose kernels are kept: graphs of any size, drawn from tables."""

from __future__ import annotations

from tests.accelerators.tvm.plan_bytes import MIDDLES, zero_points
from tests.accelerators.tvm.plan_draws import Graphs, rows


def any_size() -> Graphs:
    """Graphs of any size."""
    kinds = ["float", "float", "bfloat16"]
    # Products and what follows, of any number of rows.
    for row in rows(
        70,
        kind=kinds,
        x=["B,T", "B", "T", "2,T", "B,3"],
        k=[1, 7, 16, 33, 64, 100],
        n=[1, 8, 17, 48, 64, 200],
        after=[
            "y = Identity (p)",
            "y = Relu (p)",
            "b = Add (p, w1) y = Gelu (b)",
            "y = Softmax (p)",
            "y = LayerNormalization (p, w1, w1)",
        ],
    ):
        given = f"{row['kind']}[{row['x']},{row['k']}] x, {row['kind']}[{row['k']},{row['n']}] w, {row['kind']}[{row['n']}] w1"
        yield (
            f"{row['kind']} {row['x']} {row['k']} by {row['n']} then {row['after'][4:9]}",
            f"({given}) => ({row['kind']}[] y) {{ p = MatMul (x, w) {row['after']} }}",
        )
    values = [
        ("B,T,S", "B,S,16"),
        ("T,8", "8,S"),
        ("B,4,T,32", "B,4,32,S"),
        ("B,4,T,S", "B,4,S,32"),
        ("4,T,P", "4,P,T"),
        ("T,64", "64,1"),
        ("B,1,32", "B,32,S"),
        ("2,3,T", "2,T,5"),
    ]
    for kind in ("float", "bfloat16"):
        for x, y in values:
            yield f"{kind} {x} by {y}", f"({kind}[{x}] x, {kind}[{y}] y) => ({kind}[] z) {{ z = MatMul (x, y) }}"
    for kind in kinds[1:]:
        for name, q, k, masked in [
            ("any", "B,4,T,32", "B,4,P,32", ""),
            ("one row", "B,4,1,32", "B,4,P,32", ""),
            ("masked", "B,4,T,32", "B,4,T,32", "a = Add (s, mask)"),
            ("same rows", "2,4,T,64", "2,4,T,64", ""),
            ("fixed keys", "B,2,T,16", "B,2,20,16", ""),
            ("wide", "1,1,T,100", "1,1,P,100", ""),
        ]:
            mask = f", {kind}[B,1,T,T] mask" if masked else ""
            text = f"t = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, t) {masked or 'a = Identity (s)'} p = Softmax (a) y = MatMul (p, v)"
            yield f"{kind} attention, {name}", f"({kind}[{q}] q, {kind}[{k}] k, {kind}[{k}] v{mask}) => ({kind}[] y) {{ {text} }}"
        yield (
            f"{kind} attention op",
            f"({kind}[B,8,T,32] q, {kind}[B,2,T,32] k, {kind}[B,2,T,32] v) => ({kind}[] y) {{ y = Attention <is_causal = 1> (q, k, v) }}",
        )
        yield (
            f"{kind} attention with a past",
            f"({kind}[B,8,T,32] q, {kind}[B,2,T,32] k, {kind}[B,2,T,32] v, {kind}[B,2,P,32] pk, {kind}[B,2,P,32] pv) => ({kind}[] y, {kind}[] nk, {kind}[] nv) {{ y, nk, nv = Attention <is_causal = 1> (q, k, v, , pk, pv) }}",
        )
    for kind in ("float", "bfloat16", "int64", "uint8"):
        for x, y in [("B,T", "T"), ("B,T,8", "B,1,8"), ("N", "1"), ("B,4,T,T", "T,T"), ("B,T", "B,T"), ("N,3,H,W", "3,1,1")]:
            yield (
                f"{kind} {x} and {y}",
                f"({kind}[{x}] x, {kind}[{y}] y) => ({kind}[] z) {{ s = Add (x, y) m = Max (s, x) z = Mul (m, y) }}",
            )
    for op in (
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "ReduceSum",
        "ReduceMax",
        "ReduceL2",
        "ArgMax",
        "ArgMin",
        "CumSum",
        "TopK",
        "LayerNormalization",
        "RMSNormalization",
    ):
        for x, axis in [("B,T", 1), ("B,T,9", 1), ("T,64", 1), ("T,64", 0), ("B,8,T", 2), ("B,T,T", -1), ("4,T,5", 1)]:
            if op.endswith("ization") and ((axis in (0, 1) and x not in ("T,64",)) or axis == 0 or x.endswith("T")):
                continue
            attributes = f"axis = {axis}" if op in ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "TopK") else ""
            extra = {"CumSum": f"a = Constant <value_int = {axis}> ()", "TopK": "a = Constant <value_ints = [3]> ()"}.get(
                op, f"a = Constant <value_ints = [{axis}]> ()" if op.startswith("Reduce") else ""
            )
            read = (
                "x, a"
                if extra
                else "x, w, w"
                if op[0] == "L" and op.endswith("tion")
                else "x, w"
                if op == "RMSNormalization"
                else "x"
            )
            out = "v, y" if op == "TopK" else "y"
            results = "float[] v, int64[] y" if op == "TopK" else f"{'int64' if op.startswith('Arg') else 'float'}[] y"
            yield (
                f"{op} of {x} along {axis}",
                f"(float[{x}] x, float[{x.split(',')[-1] if x.endswith(('9', '64')) else 1}] w) => ({results}) {{ {extra} {out} = {op} <{attributes}> ({read}) }}",
            )
    for kind, x, more in [
        ("float", "B,T,9", "1,2"),
        ("float", "B,C,5", "0"),
        ("bfloat16", "B,T,64", "2"),
        ("int64", "T", "0"),
        ("float", "N,8,H,W", "2,3"),
    ]:
        for op in ("ReduceSum", "ReduceMean", "ReduceMin") if kind != "int64" else ("ReduceSum",):
            yield (
                f"{kind} {op} of {x} over {more}",
                f"({kind}[{x}] x) => ({kind}[] y) {{ a = Constant <value_ints = [{more}]> () y = {op} <keepdims = 0> (x, a) }}",
            )
    # Images.
    for row in rows(
        90,
        kind=kinds,
        x=["N,3,H,W", "N,16,H,W", "1,8,H,W", "N,16,20,20", "N,5,H,16", "N,32,H,H"],
        outs=[4, 16, 24],
        k=[1, 3, 3, 5],
        s=[1, 1, 2],
        d=[1, 1, 2],
        p=[0, 1, 1],
        group=[1, 1, "all"],
        after=[
            "y = Relu (c)",
            "y = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (c)",
            "y = GlobalAveragePool (c)",
            "y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (c)",
            "s = Sigmoid (c) y = Mul (s, c)",
        ],
    ):
        ins = int(row["x"].split(",")[1])
        outs, each, group = (ins, 1, ins) if row["group"] == "all" else (row["outs"], ins, 1)
        border = row["k"] // 2 * row["d"] * row["p"]
        attributes = f"pads = [{border},{border},{border},{border}], strides = [{row['s']},{row['s']}], dilations = [{row['d']},{row['d']}], group = {group}"
        yield (
            f"{row['kind']} convolution of {row['x']} to {outs}, {row['k']} {attributes} {row['after'][4:8]}",
            f"({row['kind']}[{row['x']}] x, {row['kind']}[{outs},{each},{row['k']},{row['k']}] w) => ({row['kind']}[] y) {{ c = Conv <{attributes}> (x, w) {row['after']} }}",
        )
    up = {
        "floor": 'y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , o)',
        "linear": 'y = Resize <mode = "linear"> (x, , o)',
        "cubic": 'y = Resize <mode = "cubic"> (x, , o)',
        "corners": 'y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , o)',
        "plain nearest": "y = Resize (x, , o)",
    }
    for name, text in up.items():
        for factors in ("2.0,2.0", "0.5,0.5", "3.0,1.0", "1.5,1.5"):
            yield (
                f"resize {name} by {factors}",
                f"(float[N,4,H,W] x) => (float[] y) {{ o = Constant <value_floats = [1.0,1.0,{factors}]> () {text} }}",
            )
        yield (
            f"resize {name} to",
            f"(float[N,4,H,W] x) => (float[] y) {{ o = Constant <value_ints = [20,30]> () {text.replace('> (x, , o)', ', axes = [2,3]> (x, , , o)') if '<' in text else 'y = Resize <axes = [2,3]> (x, , , o)'} }}",
        )
        yield (
            f"resize {name} like",
            f"(float[N,4,H,W] x, float[N,4,A,B] v) => (float[] y) {{ o = Shape (v) {text.replace('(x, , o)', '(x, , , o)')} }}",
        )
    for text in ("y = ConvTranspose <strides = [2,2]> (x, w)", "y = ConvTranspose <strides = [2,2], pads = [1,1,1,1]> (x, w)"):
        yield (
            f"image {text}",
            f"(float[N,8,H,W] x, float[8,6,{4 if 'pads' in text else 2},{4 if 'pads' in text else 2}] w) => (float[] y) {{ {text} }}",
        )
    skip = "a = Conv <strides = [2,2], pads = [1,1,1,1]> (x, w) o = Constant <value_floats = [1.0,1.0,2.0,2.0]> () u = Resize (a, , o) y = Concat <axis = 1> (x, u)"
    yield "image with a skip", f"(float[N,8,H,W] x, float[8,8,3,3] w) => (float[] y) {{ {skip} }}"
    for text, x in [
        ("DepthToSpace <blocksize = 2> (x)", "N,16,H,W"),
        ("SpaceToDepth <blocksize = 2> (x)", "N,3,H,W"),
        ("GlobalMaxPool (x)", "N,8,H,W"),
        ("LRN <size = 3> (x)", "N,16,H,W"),
        ("MaxPool <kernel_shape = [3,3]> (x)", "N,8,H,W"),
        ("AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]> (x)", "N,16,H,W"),
        ("MaxPool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1> (x)", "N,8,H,W"),
        ("LpPool <kernel_shape = [2,2]> (x)", "N,8,H,W"),
        ("InstanceNormalization (x, w, w)", "N,8,H,W"),
        ("GroupNormalization <num_groups = 2> (x, w, w)", "N,8,H,W"),
        ("Conv <pads = [1,1]> (x, w1)", "N,8,L"),
        ("MaxPool <kernel_shape = [3]> (x)", "N,8,L"),
    ]:
        yield f"{x} {text}", f"(float[{x}] x, float[8] w, float[6,8,3] w1) => (float[] y) {{ y = {text} }}"
    # Moves, and sizes that ops work out.
    ints = "Constant <value_ints = "
    moves = {
        "cut": f"b = {ints}[1]> () e = {ints}[-1]> () a = {ints}[1]> () y = Slice (x, b, e, a)",
        "cut by two": f"b = {ints}[0]> () e = {ints}[9999]> () a = {ints}[1]> () s = {ints}[2]> () y = Slice (x, b, e, a, s)",
        "first": f"b = {ints}[0]> () e = {ints}[3]> () a = {ints}[1]> () y = Slice (x, b, e, a)",
        "last": f"b = {ints}[-1]> () e = {ints}[9999]> () a = {ints}[1]> () y = Slice (x, b, e, a)",
        "backward": f"b = {ints}[-1]> () e = {ints}[-9999]> () a = {ints}[1]> () s = {ints}[-1]> () y = Slice (x, b, e, a, s)",
        "padded": f"p = {ints}[0,1,0,0,2,0]> () y = Pad (x, p)",
        "reflected": f'p = {ints}[0,1,0,0,2,0]> () y = Pad <mode = "reflect"> (x, p)',
        "edges": f'p = {ints}[0,1,0,0,2,0]> () y = Pad <mode = "edge"> (x, p)',
        "flat": "y = Flatten (x)",
        "reshaped": f"s = {ints}[0,-1,2,4]> () y = Reshape (x, s)",
        "rows": f"s = {ints}[-1,8]> () y = Reshape (x, s)",
        "squeezed": f"a = {ints}[1]> () u = Unsqueeze (x, a) v = Mul (u, u) y = Squeeze (v, a)",
        "tiled": f"r = {ints}[1,2,1]> () y = Tile (x, r)",
        "expanded": "s = Shape (x) y = Expand (w, s)",
        "turned": "y = Transpose <perm = [1,2,0]> (x)",
        "joined": "y = Concat <axis = 1> (x, x)",
        "joined deep": "n = Neg (x) y = Concat <axis = 2> (x, n)",
        "split": f"s = {ints}[3,5]> () y, z = Split <axis = 2> (x, s)",
        "halves": "y, z = Split <axis = 2, num_outputs = 2> (x)",
        "triangle": "y = Trilu (x)",
        "positions": "s = Shape <start = 1, end = 2> (x) q = Squeeze (s) o = Constant <value_int = 0> () d = Constant <value_int = 1> () r = Range (o, q, d) y = Cast <to = 1> (r)",
        "counted": "s = Size (x) c = Cast <to = 1> (s) y = Div (x, c)",
        "mean by hand": "s = Shape (x) i = Constant <value_int = 1> () g = Gather (s, i) c = Cast <to = 1> (g) y = Div (x, c)",
        "causal": "s = Shape <start = 1, end = 2> (x) q = Squeeze (s) o = Constant <value_int = 0> () d = Constant <value_int = 1> () r = Range (o, q, d) a0 = Constant <value_ints = [1]> () c = Unsqueeze (r, a0) l = GreaterOrEqual (c, r) y = Cast <to = 1> (l)",
        "zeros": "s = Shape (x) z = ConstantOfShape (s) y = Add (x, z)",
        "half of it": "s = Shape <start = 1, end = 2> (x) d = Constant <value_ints = [2]> () h = Div (s, d) b = Constant <value_ints = [0]> () a = Constant <value_ints = [1]> () y = Slice (x, b, h, a)",
        "one hot": "k = ArgMax <axis = 2, keepdims = 0> (x) d = Constant <value_int = 8> () v = Constant <value_floats = [0.0,1.0]> () y = OneHot (k, d, v)",
        "where": "z = Constant <value_float = 0.0> () c = Greater (x, z) y = Where (c, x, z)",
        "product of sizes": "s = Shape (x) p = ReduceProd <keepdims = 0> (s) c = Cast <to = 1> (p) y = Mul (x, c)",
        "larger of sizes": "s = Shape <start = 0, end = 1> (x) t = Shape <start = 1, end = 2> (x) m = Max (s, t) n = Min (s, t) o = Sub (m, n) c = Cast <to = 1> (o) y = Add (x, c)",
        "heads": "s = Shape <start = 0, end = 2> (x) h = Constant <value_ints = [2,4]> () c = Concat <axis = 0> (s, h) r = Reshape (x, c) y = Transpose <perm = [0,2,1,3]> (r)",
        "windows": "s = Constant <value_ints = [0,-1,4,8]> () r = Reshape (x, s) m = ReduceMax (r) y = Add (r, m)",
        "like": "c = CastLike (w, x) y = Add (x, c)",
        "vector": "y = MatMul (x, w)",
        "eye": "a = ReduceSum <keepdims = 0> (x, k) y = EyeLike (a)",
        "mod": "s = Shape <start = 1, end = 2> (x) d = Constant <value_ints = [4]> () m = Mod (s, d) c = Cast <to = 1> (m) y = Add (x, c)",
        "equal": "s = Shape (x) t = Shape (x) e = Equal (s, t) z = Constant <value_ints = [1,1,1]> () o = Where (e, s, z) y = Expand (w, o)",
    }
    for name, text in moves.items():
        yield (
            name,
            f"(float[B,T,8] x, float[8] w) => (float[] y) {{ {text.replace('ReduceSum <keepdims = 0> (x, k)', 'Identity (x)')} }}",
        )
        if name in ("cut", "first", "reshaped", "heads", "joined", "padded", "split"):
            yield f"bfloat16 {name}", f"(bfloat16[B,T,8] x, bfloat16[8] w) => (bfloat16[] y) {{ {text} }}"
    for text, given in [
        ("Gather (w, i)", "float[50,24] w, int64[B,T] i"),
        ("Gather <axis = 1> (x, i)", "float[B,T,8] x, int64[K] i"),
        ("GatherElements <axis = 1> (x, i)", "float[B,T] x, int64[B,K] i"),
        ("GatherND (x, i)", "float[B,T,8] x, int64[K,2] i"),
        ("ScatterElements <axis = 1> (x, i, u)", "float[B,T] x, int64[B,K] i, float[B,K] u"),
        ("ScatterND (x, i, u)", "float[T,8] x, int64[K,1] i, float[K,8] u"),
        ("Gather (x, i)", "bfloat16[T,8] x, int32[3] i"),
        ("Gather <axis = 1> (x, w)", "float[B,T,8] x, int64[3] w"),
    ]:
        yield f"{text} {given}", f"({given}) => ({given.split('[')[0]}[] y) {{ y = {text} }}"
    for x, y in [("B,P,8", "B,T,8"), ("B,T,8", "B,T,3"), ("B,P", "B,1")]:
        yield (
            f"joined {x} and {y}",
            f"(float[{x}] x, float[{y}] y) => (float[] z) {{ z = Concat <axis = {2 if y.endswith('3') else 1}> (x, y) }}",
        )
    yield (
        "past and mask",
        "(float[B,4,T,16] q, float[B,4,P,16] k, float[B,4,T,16] n, float[B,1,T,S] mask) => (float[] y, float[] j) { j = Concat <axis = 2> (k, n) t = Transpose <perm = [0,1,3,2]> (j) s = MatMul (q, t) a = Add (s, mask) p = Softmax (a) y = MatMul (p, j) }",
    )
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        yield (
            op,
            f"(float[T,B,12] x, float[1,{gates * 8},12] w, float[1,{gates * 8},8] w1) => (float[] y) {{ y = {op} <hidden_size = 8> (x, w, w1) }}",
        )
    # Quantized.
    q = f"{zero_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z)"
    for x, depth, outs in [("B,T", 40, 70), ("B", 64, 6), ("T", 256, 64)]:
        for after in ("y = QuantizeLinear (c, t, r)", "d = Relu (c) y = QuantizeLinear (d, t, r)"):
            yield (
                f"quantized {x} {depth} by {outs} {after[4:8]}",
                f"(uint8[{x},{depth}] x, int8[{depth},{outs}] w, float[{outs}] ws) => (uint8[] y) {{ {q} b = DequantizeLinear <axis = 1> (w, ws) c = MatMul (a, b) {after} }}",
            )
    for x, w, attributes in [
        ("N,8,H,W", "16,8,3,3", "pads = [1,1,1,1]"),
        ("N,16,H,W", "16,16,1,1", ""),
        ("N,16,14,14", "24,16,3,3", "strides = [2,2]"),
        ("N,16,H,W", "16,1,3,3", "group = 16, pads = [1,1,1,1]"),
        ("N,3,H,W", "16,3,3,3", "strides = [2,2], pads = [1,1,1,1]"),
    ]:
        yield (
            f"quantized image {x} by {w} {attributes}",
            f"(uint8[{x}] x, int8[{w}] w, float ws) => (uint8[] y) {{ {q} b = DequantizeLinear (w, ws) c = Conv <{attributes}> (a, b) d = Relu (c) y = QuantizeLinear (d, t, r) }}",
        )
    for name in (
        "largest",
        "mean",
        "whole mean",
        "join",
        "sum",
        "joined",
        "nearest",
        "linear",
        "depth",
        "pad",
        "sigmoid",
        "swish",
        "scaled",
        "tiled",
    ):
        middle = MIDDLES[name]
        yield (
            f"quantized {name}",
            f"(uint8[N,8,H,W] x, int8[16,8,1,1] w, float ws) => (uint8[] y, float[] m) {{ {q} b = DequantizeLinear (w, ws) d = Conv (a, b) e = QuantizeLinear (d, t, r) f = DequantizeLinear (e, t, r) {middle} y = QuantizeLinear (m, t, r) }}",
        )
    pair = "b = DequantizeLinear (v, t, r) c = MatMul (a, b) y = QuantizeLinear (c, t, r)"
    for x, v in [("B,T,32", "B,32,P"), ("T,32", "32,S"), ("B,2,T,P", "B,2,P,16")]:
        yield f"quantized pair {x} {v}", f"(uint8[{x}] x, uint8[{v}] v) => (uint8[] y) {{ {q} {pair} }}"
        yield f"integer pair {x} {v}", f"(uint8[{x}] x, int8[{v}] v) => (int32[] y) {{ y = MatMulInteger (x, v) }}"
    for depth, outs, kind in [(64, 33, "int8"), (40, 8, "uint8")]:
        dynamic = "q, s, z = DynamicQuantizeLinear (x) c = MatMulInteger (q, w, z, wz) f = Cast <to = 1> (c) e = Mul (s, ws) y = Mul (f, e)"
        yield (
            f"dynamic of any {depth} {outs} {kind}",
            f"(float[B,T,{depth}] x, {kind}[{depth},{outs}] w, {kind} wz, float[{outs}] ws) => (float[] y) {{ {dynamic} }}",
        )
    for kind, block in [("int4", 32), ("uint4", 16), ("int8", 0)]:
        ws, more = (f"{64 // block},70", f"axis = 0, block_size = {block}") if block else ("70", "axis = 1")
        yield (
            f"packed {kind} of any",
            f"(float[B,T,64] x, {kind}[64,70] w, float[{ws}] ws) => (float[] y) {{ b = DequantizeLinear <{more}> (w, ws) y = MatMul (x, b) }}",
        )
    yield (
        "integers of any",
        "(uint8[N,8,9,7] x, int8[6,8,3,3] w, uint8 z) => (int32[] y) { y = ConvInteger <pads = [1,1,1,1]> (x, w, z) }",
    )
    yield (
        "rows of packed of any",
        "(int8[50,24] w, float[50] ws, int64[B,T] i) => (float[] y) { b = DequantizeLinear <axis = 0> (w, ws) y = Gather (b, i) }",
    )
    yield (
        "tied of any",
        "(float[50,24] w, int64[B,T] i) => (float[] y) { g = Gather (w, i) t = Transpose <perm = [1,0]> (w) y = MatMul (g, t) }",
    )
