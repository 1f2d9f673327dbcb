"""More graphs whose kernels are kept: quantized ones."""

from __future__ import annotations

from tests.accelerators.tvm.plan_draws import MORE, SIZES, Graphs, rows

SCALES = "s = Constant <value_float = 0.02> () t = Constant <value_float = 0.05> () "
"""The scales of a quantized input and of a quantized result."""


MIDDLES = {
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


def zero_points(x: str, y: str) -> str:
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
        text = f"{zero_points(row['x'], row['y'])} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} ({read}) c = MatMul (a, b) {row['after']}"
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
        text = f"{zero_points(row['x'], 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) {bias} c = Gemm <{attributes}> (a, b{row['c']}) y = QuantizeLinear (c, t, r)"
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
        text = f"{zero_points(row['x'], row['y'])} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} (w, ws) {bias} c = Conv <{attributes}> ({read}) {after} y = QuantizeLinear (d, t, r)"
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
        text = f"{zero_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) c = Conv <{attributes}> (a, b) y = QuantizeLinear (c, t, r)"
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
        text = f"{zero_points(row['x'], 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear{axis} (w, ws) {bias} c = ConvTranspose <{attributes}> ({read}) {last}"
        yield (
            f"{row['x']} transposed 1,{row['ins']},{row['n']} by {w}, {attributes} {row['bias']}{row['to']} {row['scale']}",
            f"({row['x']}[1,{row['ins']},{row['n']},{row['n'] + 1}] x, int8[{w}] w, float{shape} ws, int32[{each * group}] wb, float wsb) => ({out}[] y) {{ {text} }}",
        )
    for name, middle in MIDDLES.items():
        for c in (16, 20) if name not in ("response",) else (16,):
            text = (
                f"{zero_points('uint8', 'uint8')} a = DequantizeLinear (x, s, z) b = DequantizeLinear (w, ws) d = Conv (a, b) e = QuantizeLinear (d, t, r) f = DequantizeLinear (e, t, r) {middle.replace('{c}', str(c)).replace('{q}', str(c // 4))} g = QuantizeLinear (m, t, r) "
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
                    alone = f"{zero_points('uint8', 'uint8')} f = DequantizeLinear (x, s, z) {middle} y = QuantizeLinear (m, s, z)"
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
