"""More graphs whose kernels are kept: quantized ones, and graphs of any size."""

from __future__ import annotations

from tests.accelerators.tvm.plan_draws import MORE, SIZES, Graphs, rows

SCALES = "s = Constant <value_float = 0.02> () t = Constant <value_float = 0.05> () "
"""The scales of a quantized input and of a quantized result."""


_MIDDLES = {
    "largest": "m = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (f)",
    "largest of two": "m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (f)",
    "mean": "m = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (f)",
    "mean of all": "m = AveragePool <kernel_shape = [2,2], strides = [2,2], pads = [0,0,1,1], count_include_pad = 1> (f)",
    "whole mean": "m = GlobalAveragePool (f)",
    "join": "m = Concat <axis = 1> (f, a)",
    "sum": "m = Add (f, f)",
    "joined": "j = Concat <axis = 1> (f, a) k = QuantizeLinear (j, s, z) m = DequantizeLinear (k, s, z)",
    "nearest": 'o = Constant <value_floats = [1.0,1.0,2.0,2.0]> () m = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (f, , o)',
    "linear": 'o = Constant <value_floats = [1.0,1.0,2.0,2.0]> () m = Resize <mode = "linear"> (f, , o)',
    "linear to": 'o = Constant <value_ints = [1,{c},5,7]> () m = Resize <mode = "linear"> (f, , , o)',
    "aligned": 'o = Constant <value_ints = [1,{c},17,20]> () m = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (f, , , o)',
    "depth": "m = DepthToSpace <blocksize = 2> (f)",
    "space": "m = SpaceToDepth <blocksize = 2> (f)",
    "pad": "o = Constant <value_ints = [0,0,1,1,0,0,1,1]> () m = Pad (f, o)",
    "sigmoid": "m = Sigmoid (f)",
    "norm": "m = BatchNormalization (f, w6, w6, w6, ws6)",
    "swish": "o = Sigmoid (f) m = Mul (o, f)",
    "response": "m = LRN <size = 5> (f)",
    "scaled": "o = GlobalAveragePool (f) i = Sigmoid (o) m = Mul (f, i)",
    "cut": "o = Constant <value_ints = [0]> () i = Constant <value_ints = [3]> () u = Constant <value_ints = [2]> () m = Slice (f, o, i, u)",
    "turned": "m = Transpose <perm = [0,2,3,1]> (f)",
    "shuffled": "o = Constant <value_ints = [1,4,{q},8,8]> () i = Reshape (f, o) u = Transpose <perm = [0,2,1,3,4]> (i) l = Constant <value_ints = [1,{c},8,8]> () m = Reshape (u, l)",
    "reduced": "m = ReduceMean (f)",
    "split": "m, i = Split <axis = 1, num_outputs = 2> (f)",
    "tiled": "o = Constant <value_ints = [1,2,1,2]> () m = Tile (f, o)",
    "squared": "m = Mul (f, f)",
    "bounded": "m = HardSwish (f)",
}
"""Graphs between two quantized convolutions, from f to m, both of real numbers; a is the value before the first convolution."""


def _points(x: str, y: str) -> str:
    """The scales, and zero points of these types."""
    return f"{SCALES}z = Constant <value = {x} {{{3 if x == 'int8' else 130}}}> () r = Constant <value = {y} {{{-2 if y == 'int8' else 7}}}> () "


def quantized_products() -> Graphs:
    """Products of bytes by constants and by bytes, of numbers by packed weights."""
    afters = [
        "y = QuantizeLinear (c, t, r)",
        "d = Relu (c) y = QuantizeLinear (d, t, r)",
        "y = Identity (c)",
        "d = Add (c, w1) y = QuantizeLinear (d, t, r)",
        "y = Gelu (c)",
        "d = Add (c, v) y = QuantizeLinear (d, t, r)",
    ]
    for row in rows(
        60,
        x=["uint8", "uint8", "int8"],
        y=["uint8", "int8"],
        m=SIZES,
        k=MORE,
        n=MORE,
        w=["one", "each", "each", "points", "uint8"],
        after=afters,
    ):
        m, k, n = row["m"], row["k"], row["n"]
        if k * n > 300_000:
            continue
        out = row["y"] if "Quantize" in row["after"] else "float"
        kind = "uint8" if row["w"] == "uint8" else "int8"
        shape, axis = ("", "") if row["w"] == "one" else (f"[{n}]", " <axis = 1>")
        points = f", {kind}{shape or '[1]'} {'w3' if row['w'] in ('points', 'uint8') else 'unused'}"
        read = "w, ws, w3" if row["w"] in ("points", "uint8") else "w, ws"
        given = f"{row['x']}[{m},{k}] x, {kind}[{k},{n}] w, float{shape} ws{points}, float[{n}] w1, float[{m},{n}] v"
        text = f"{_points(row['x'], row['y'])} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} ({read}) c = MatMul (a, b) {row['after']}"
        yield f"{row['x']} {m}x{k}x{n}, {row['w']} to {row['y']} {row['after'][4:8]}", f"({given}) => ({out}[] y) {{ {text} }}"
    for row in rows(
        16,
        x=["uint8", "int8"],
        m=SIZES[:20],
        k=SIZES,
        n=SIZES,
        a=["", "transA = 1"],
        b=["", "transB = 1"],
        c=["", ", bias"],
        more=["", ", alpha = 0.5"],
    ):
        m, k, n = row["m"], row["k"], row["n"]
        x, w = (f"{k},{m}" if row["a"] else f"{m},{k}"), (f"{n},{k}" if row["b"] else f"{k},{n}")
        attributes = ", ".join(filter(None, (row["a"], row["b"], row["more"].lstrip(", "))))
        bias = "bias = DequantizeLinear (wb, wsb) " if row["c"] else ""
        text = f"{_points(row['x'], 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) {bias} c = Gemm <{attributes}> (a, b{row['c']}) y = QuantizeLinear (c, t, r)"
        yield (
            f"{row['x']} gemm {x} by {w} {attributes}{row['c']}",
            f"({row['x']}[{x}] x, int8[{w}] w, float ws, int32[{n}] wb, float wsb) => (uint8[] y) {{ {text} }}",
        )
    for row in rows(
        30,
        x=["uint8", "int8"],
        y=["uint8", "int8"],
        heads=["", "3,", "2,4,"],
        m=SIZES,
        k=SIZES,
        n=SIZES,
        turned=["", "", "t"],
        way=["MatMul", "MatMul", "MatMulInteger", "Gemm"],
        to=[0, 1],
    ):
        m, k, n = row["m"], row["k"], row["n"]
        heads = "" if row["way"] == "Gemm" else row["heads"]
        x, y = f"{heads}{m},{k}", f"{heads}{k},{n}"
        if row["way"] == "MatMulInteger":
            yield (
                f"pair of integers {row['x']} {x} {row['y']} {y} {row['to']}",
                f"({row['x']}[{x}] a, {row['y']}[{y}] b) => (int32[] y) {{ z = Constant <value = {row['x']} {{5}}> () y = MatMulInteger ({'a, b, z' if row['to'] else 'a, b'}) }}",
            )
            continue
        op = "Gemm <transB = 1>" if row["way"] == "Gemm" else "MatMul"
        y = f"{n},{k}" if row["way"] == "Gemm" else f"{heads}{n},{k}" if row["turned"] else y
        turn = ""
        if row["turned"] and row["way"] == "MatMul":
            rank = heads.count(",") + 2
            turn = f"e = Transpose <perm = [{','.join(map(str, [*range(rank - 2), rank - 1, rank - 2]))}]> (b)"
        after, out = ("y = QuantizeLinear (c, t, r)", row["x"]) if row["to"] else ("y = Softmax (c)", "float")
        text = f"{SCALES}z = Constant <value = {row['x']} {{5}}> () p = Constant <value = {row['y']} {{9}}> () r = Constant <value = {row['x']} {{1}}> () a = DequantizeLinear (x, s, z) b = DequantizeLinear (v, t, p) {turn} c = {op} (a, {'e' if turn else 'b'}) {after}"
        yield (
            f"pair {row['x']} {x} {row['y']} {y} {row['way']} {row['to']} {turn[4:8]}",
            f"({row['x']}[{x}] x, {row['y']}[{y}] v) => ({out}[] y) {{ {text} }}",
        )
    for row in rows(
        40,
        kind=["int4", "uint4", "int8", "uint8"],
        m=[1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 64],
        k=[16, 32, 48, 64, 128, 256, 1024],
        n=[1, 8, 15, 16, 33, 64, 100, 256],
        block=[0, 16, 32, 64, 128],
        point=[0, 0, 1],
        x=["float", "float", "bfloat16", "float16"],
        turned=[0, 0, 1],
        after=["y = MatMul (x, b)", "c = MatMul (x, b) d = Add (c, w1) y = Relu (d)"],
    ):
        m, k, n, block = row["m"], row["k"], row["n"], row["block"]
        if block and k % block:
            continue
        shape = f"{k // block},{n}" if block else f"{n}"
        attributes = f"axis = 0, block_size = {block}" if block else "axis = 1"
        read = "w, ws, w2" if row["point"] else "w, ws"
        w, dense = f"{k},{n}", f"b = DequantizeLinear <{attributes}> ({read})"
        if row["turned"]:
            w, shape = f"{n},{k}", f"{n},{k // block}" if block else f"{n}"
            dense = f"e = DequantizeLinear <{attributes.replace('axis = 0', 'axis = 1') if block else 'axis = 0'}> ({read}) b = Transpose <perm = [1,0]> (e)"
        given = (
            f"{row['x']}[{m},{k}] x, {row['kind']}[{w}] w, {row['x']}[{shape}] ws, {row['kind']}[{shape}] w2, {row['x']}[{n}] w1"
        )
        yield (
            f"{row['x']} {m}x{k}x{n} packed {row['kind']} by {block} {row['point']}{row['turned']} {row['after'][4:7]}",
            f"({given}) => ({row['x']}[] y) {{ {dense} {row['after']} }}",
        )
    for m, k, n, block in [(1, 64, 48, 32), (1, 100, 33, 16), (7, 64, 48, 16), (30, 256, 64, 128), (2, 40, 8, 32)]:
        blocks = -(-k // block)
        for points in ("", ", wp"):
            given = (
                f"float[{m},{k}] x, uint8[{n},{blocks},{block // 2}] w, float[{n * blocks}] ws, uint8[{n * -(-blocks // 2)}] wp"
            )
            op = f"com.microsoft.MatMulNBits <K = {k}, N = {n}, bits = 4, block_size = {block}>"
            yield f"bits {m} {k} {n} {block}{points}", f"({given}) => (float[] y) {{ y = {op} (x, w, ws{points}) }}"
    for kind, shape, block in [("int4", "40,64", 32), ("int8", "30,16", 0), ("uint8", "9,7", 0), ("int4", "40,32", 0)]:
        k, n = map(int, shape.split(","))
        ws, attributes = (f"{k},{n // block}", f"axis = 1, block_size = {block}") if block else (f"{k}", "axis = 0")
        yield (
            f"rows of packed {kind} {shape}",
            f"({kind}[{shape}] w, float[{ws}] ws, int64[2,3] i) => (float[] y) {{ b = DequantizeLinear <{attributes}> (w, ws) y = Gather (b, i) }}",
        )
        tied = f"b = DequantizeLinear <{attributes}> (w, ws) g = Gather (b, i) t = Transpose <perm = [1,0]> (b) y = MatMul (g, t)"
        yield f"tied to packed {kind} {shape}", f"({kind}[{shape}] w, float[{ws}] ws, int64[2,3] i) => (float[] y) {{ {tied} }}"
    for shape in ("40,64", "33,20", "512,16"):
        for kind in ("float", "bfloat16"):
            yield (
                f"tied {kind} {shape}",
                f"({kind}[{shape}] w, int64[2,3] i) => ({kind}[] y) {{ g = Gather (w, i) t = Transpose <perm = [1,0]> (w) y = MatMul (g, t) }}",
            )
    for m, k, n in [(1, 64, 48), (5, 33, 7), (17, 256, 64), (64, 512, 128)]:
        for kind, point in (("int8", ", wz"), ("uint8", ", wz"), ("int8", "")):
            given = f"float[{m},{k}] x, {kind}[{k},{n}] w, {kind}{f'[{n}]' if kind == 'int8' else ''} wz, float[{n}] ws, float[{n}] w1"
            dynamic = f"q, s, z = DynamicQuantizeLinear (x) c = MatMulInteger (q, w, z{point}) f = Cast <to = 1> (c) e = Mul (s, ws) d = Mul (f, e) y = Add (d, w1)"
            yield f"dynamic {m}x{k}x{n} {kind}{point}", f"({given}) => (float[] y) {{ {dynamic} }}"
    both = "q, s, z = DynamicQuantizeLinear (x) p, t, u = DynamicQuantizeLinear (v) c = MatMulInteger (q, p, z, u) f = Cast <to = 1> (c) e = Mul (s, t) y = Mul (f, e)"
    yield "dynamic pair", f"(float[2,9,33] x, float[2,33,20] v) => (float[] y) {{ {both} }}"
    given = "uint8[9,40] x, int8[40,24] w, float ws, uint8 wz, float[24] wsb, int8[24] wz1, float wso, uint8 wzo"
    yield "QLinearMatMul", f"({given}) => (uint8[] y) {{ y = QLinearMatMul (x, ws, wz, w, wsb, wz1, wso, wzo) }}"


def quantized_images() -> Graphs:
    """Quantized convolutions, and what stands between them."""
    channels = [1, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64, 100]
    afters = ["", "", "Relu", "Clip", "Sigmoid", "Add"]
    for row in rows(
        70,
        x=["uint8", "uint8", "int8"],
        y=["uint8", "int8"],
        batch=[1, 1, 2],
        ins=channels,
        outs=channels,
        h=[1, 5, 7, 14, 16, 28],
        w=[6, 7, 13, 16, 30],
        k=["1,1", "3,3", "3,3", "5,5", "1,7", "2,2"],
        s=["1,1", "1,1", "2,2", "2,1"],
        d=["1,1", "1,1", "1,1", "2,2"],
        p=[0, 1, 1],
        group=[1, 1, 1, 2, 4, "all", "all", "twice"],
        scale=["one", "each", "each"],
        after=afters,
        bias=[0, 1, 1],
    ):
        group = row["ins"] if row["group"] in ("all", "twice") else row["group"]
        k, d = [int(size) for size in row["k"].split(",")], [int(size) for size in row["d"].split(",")]
        if row["ins"] % group or (not row["p"] and min(row["h"], row["w"]) < max((a - 1) * b + 1 for a, b in zip(k, d))):
            continue
        outs = {"all": group, "twice": 2 * group}.get(row["group"], row["outs"] // group * group or group)
        pads = [a * b // 2 * row["p"] if a > 1 else 0 for a, b in zip(k, d)] * 2
        if row["h"] + 2 * pads[0] < (k[0] - 1) * d[0] + 1 or row["w"] + 2 * pads[1] < (k[1] - 1) * d[1] + 1:
            continue
        attributes = f"strides = [{row['s']}], dilations = [{row['d']}], pads = [{','.join(map(str, pads))}], group = {group}"
        x, w = f"{row['batch']},{row['ins']},{row['h']},{row['w']}", f"{outs},{row['ins'] // group},{row['k']}"
        shape, axis = ("", "") if row["scale"] == "one" else (f"[{outs}]", " <axis = 0>")
        read, bias = ("a, b, bias", "bias = DequantizeLinear (wb, wsb)") if row["bias"] else ("a, b", "")
        after = {
            "": "d = Identity (c)",
            "Clip": "lo = Constant <value_float = 0.0> () hi = Constant <value_float = 6.0> () d = Clip (c, lo, hi)",
            "Add": "d = Add (c, w5)",
        }.get(row["after"], f"d = {row['after']} (c)")
        text = f"{_points(row['x'], row['y'])} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} (w, ws) {bias} c = Conv <{attributes}> ({read}) {after} y = QuantizeLinear (d, t, r)"
        given = f"{row['x']}[{x}] x, int8[{w}] w, float{shape} ws, int32[{outs}] wb, float wsb, float[1,{outs},1,1] w5"
        yield (
            f"{row['x']} convolution of {x} by {w}, {row['s']} {row['d']} {pads[0]},{pads[1]} {row['scale']} {row['after']} {row['bias']} to {row['y']}",
            f"({given}) => ({row['y']}[] y) {{ {text} }}",
        )
    for x, w, attributes in [
        ("1,8,30", "16,8,3", "pads = [1,1]"),
        ("2,5,17", "7,5,2", "strides = [2]"),
        ("1,4,5,6,7", "8,4,3,3,3", ""),
        ("1,8,4,4,4", "16,8,1,1,1", ""),
        ("1,32,16", "32,1,3", "group = 32"),
    ]:
        text = f"{_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) c = Conv <{attributes}> (a, b) y = QuantizeLinear (c, t, r)"
        yield f"convolution of {x} by {w}", f"(uint8[{x}] x, int8[{w}] w, float ws) => (uint8[] y) {{ {text} }}"
    for row in rows(
        20,
        x=["uint8", "int8"],
        ins=channels,
        outs=channels,
        n=[1, 4, 7, 9],
        k=[2, 3, 4],
        s=[1, 2, 2, 3],
        p=[0, 1],
        group=[1, 1, 2, "all"],
        more=["", "", "dilations = [2,2]", "output_padding = [1,1]"],
        bias=[0, 1],
        scale=["one", "each"],
        to=[0, 1],
    ):
        group = row["ins"] if row["group"] == "all" else row["group"]
        if row["ins"] % group or ("output" in row["more"] and row["s"] == 1):
            continue
        each = 1 if row["group"] == "all" else row["outs"]
        w = f"{row['ins']},{each},{row['k']},{row['k']}"
        attributes = f"pads = [{row['p']},{row['p']},{row['p']},{row['p']}], strides = [{row['s']},{row['s']}], group = {group}{', ' * bool(row['more'])}{row['more']}"
        shape, axis = (f"[{each}]", " <axis = 1>") if row["scale"] == "each" else ("", "")
        read, bias = ("a, b, bias", "bias = DequantizeLinear (wb, wsb)") if row["bias"] else ("a, b", "")
        last, out = ("y = QuantizeLinear (c, t, r)", "uint8") if row["to"] else ("y = Relu (c)", "float")
        text = f"{_points(row['x'], 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} (w, ws) {bias} c = ConvTranspose <{attributes}> ({read}) {last}"
        yield (
            f"{row['x']} transposed 1,{row['ins']},{row['n']} by {w}, {attributes} {row['bias']}{row['to']} {row['scale']}",
            f"({row['x']}[1,{row['ins']},{row['n']},{row['n'] + 1}] x, int8[{w}] w, float{shape} ws, int32[{each * group}] wb, float wsb) => ({out}[] y) {{ {text} }}",
        )
    for name, middle in _MIDDLES.items():
        for c in (16, 20) if name not in ("response",) else (16,):
            text = (
                f"{_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) d = Conv (a, b) e = QuantizeLinear (d, t, r) f = DequantizeLinear (e, t, r) {middle.replace('{c}', str(c)).replace('{q}', str(c // 4))} g = QuantizeLinear (m, t, r) "
                "h = DequantizeLinear (g, t, r) y = Relu (h) q = Neg (f)"
            )
            yield (
                f"{name} of {c}",
                f"(uint8[1,8,8,8] x, int8[{c},8,1,1] w, float ws, float[{c}] w6, float[{c}] ws6) => (float[] y, float[] q, uint8[] g) {{ {text} }}",
            )
            if name in ("turned", "reduced", "cut"):
                continue
            end = {"join": c + 8, "joined": c + 8, "depth": c // 4, "space": c * 4, "split": c // 2, "tiled": 2 * c}.get(name, c)
            text = text.replace(
                "y = Relu (h) q = Neg (f)", "v = DequantizeLinear (w1, ws) n = Conv (h, v) y = QuantizeLinear (n, s, z)"
            )
            yield (
                f"{name} of {c} between",
                f"(uint8[1,8,8,8] x, int8[{c},8,1,1] w, float ws, float[{c}] w6, float[{c}] ws6, int8[24,{end},1,1] w1) => (uint8[] y) {{ {text} }}",
            )
            for op in ("largest", "mean"):
                if name == op:
                    alone = f"{_points('uint8', 'uint8')} f = DequantizeLinear (x, s, z) {middle} y = QuantizeLinear (m, s, z)"
                    yield f"{name} of {c} alone", f"(uint8[2,{c},9,11] x) => (uint8[] y) {{ {alone} }}"
    for op, x, w, group in [
        ("QLinearConv", "1,8,9,9", "16,8,3,3", 1),
        ("QLinearConv", "1,3,12,12", "5,3,2,2", 1),
        ("QLinearConv", "1,16,9,9", "16,1,3,3", 16),
    ]:
        given = f"uint8[{x}] x, float ws, uint8 wz, int8[{w}] w, float[{w.split(',')[0]}] wsb, int8[{w.split(',')[0]}] wz1, float wso, uint8 wzo, int32[{w.split(',')[0]}] wb"
        yield (
            f"{op} {x} {w}",
            f"({given}) => (uint8[] y) {{ y = QLinearConv <group = {group}, pads = [1,1,1,1]> (x, ws, wz, w, wsb, wz1, wso, wzo, wb) }}",
        )
    for kind in ("uint8", "int8"):
        for shape, axis in [("4,300", ""), ("3,5,7", "axis = 1"), ("2,16,5,5", "axis = 1"), ("33", "")]:
            ws = f"[{shape.split(',')[1]}]" if axis else ""
            yield (
                f"{kind} quantized {shape} {axis}",
                f"(float[{shape}] x, float{ws} ws, {kind}{ws} wz) => ({kind}[] y) {{ y = QuantizeLinear <{axis}> (x, ws, wz) }}",
            )
            yield (
                f"{kind} dequantized {shape} {axis}",
                f"({kind}[{shape}] x, float{ws} ws, {kind}{ws} wz) => (float[] y) {{ a = DequantizeLinear <{axis}> (x, ws, wz) y = Tanh (a) }}",
            )
    for shape in ("4,300", "1,8,9,9", "1000000"):
        yield (
            f"dynamic bytes {shape}",
            f"(float[{shape}] x) => (uint8[] y, float[] s, uint8[] z) {{ y, s, z = DynamicQuantizeLinear (x) }}",
        )
    for block in (4, 8):
        yield (
            f"blocks of scales {block}",
            f"(float[6,16] x, float[6,{16 // block}] ws) => (int8[] y) {{ y = QuantizeLinear <axis = 1, block_size = {block}, output_dtype = 3> (x, ws) }}",
        )
        yield (
            f"blocks of scales {block} back",
            f"(int8[6,16] x, float[6,{16 // block}] ws) => (float[] y) {{ y = DequantizeLinear <axis = 1, block_size = {block}> (x, ws) }}",
        )


def any_size() -> Graphs:
    """Graphs of any size."""
    kinds = ["float", "float", "bfloat16"]
    # Products and what follows, of any number of rows.
    for row in rows(
        24,
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
        26,
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
    q = f"{_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z)"
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
        middle = _MIDDLES[name]
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
