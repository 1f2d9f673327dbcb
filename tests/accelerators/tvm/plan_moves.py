"""More graphs whose kernels are kept: element-wise ops, moves, pools, rarer ops, and those of GPUs, drawn from tables."""

from __future__ import annotations

from tests.accelerators.tvm.plan_draws import SIZES, Graphs, ones, rows


def elements() -> Graphs:
    """Element-wise ops in chains, of shapes that are broadcast, and moves of elements."""
    kinds = ["float", "float16", "bfloat16", "double", "int32", "int64", "int8", "uint8"]
    shapes = [
        ("7", "7"),
        ("64", "1"),
        ("1", "64"),
        ("2,3,4", "3,1"),
        ("5,1,6", "1,4,1"),
        ("1,16,9,9", "16,1,1"),
        ("1,16,9,9", "1,16,1,1"),
        ("100,257", "257"),
        ("8,8", "8,1"),
        ("4096", "4096"),
        ("3,5,7", "3,5,1"),
        ("2,1,1,33", "2,3,5,33"),
        ("1,1", "1,1"),
        ("17,31", "17,31"),
        ("2,3,32,32", "1,3,1,1"),
        ("128,1024", "1024"),
        ("1,2,3,4,5", "2,1,4,1"),
    ]
    for row in rows(
        60,
        kind=kinds,
        shape=shapes,
        first=["Add", "Sub", "Mul", "Div", "Max", "Min"],
        second=["Add", "Mul", "Sub", "Where", "Cast", "Neg", "Abs"],
    ):
        kind, (a, b) = row["kind"], row["shape"]
        then = {
            "Where": "c = Less (x, y) z = Where (c, s, x)",
            "Cast": "z = Cast <to = 1> (s)",
            "Neg": "z = Neg (s)",
            "Abs": "z = Abs (s)",
        }.get(row["second"], f"z = {row['second']} (s, y)")
        if kind == "uint8" and "Neg" in then:
            continue
        yield (
            f"{kind} {row['first']} and {row['second']} of {a} and {b}",
            f"({kind}[{a}] x, {kind}[{b}] y) => ({'float' if row['second'] == 'Cast' else kind}[] z) {{ s = {row['first']} (x, y) {then} }}",
        )
    ops = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid
        Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu""".split()
    for i, op in enumerate(ops):
        if op == "Swish":
            continue
        for kind, n in (("float16", 70), ("double", 33), ("bfloat16", 16))[i % 3 :][:1]:
            yield f"{kind} {op} {n}", f"({kind}[3,{n}] x) => ({kind}[] y) {{ y = {op} (x) }}"
        yield f"float {op} and Mul", f"(float[5,33] x) => (float[] y) {{ a = {op} (x) y = Mul (a, x) }}"
    yield "gelu, approximate", '(float[5,33] x) => (float[] y) { y = Gelu <approximate = "tanh"> (x) }'
    yield "slopes", "(float[5,33] x, float[33] w) => (float[] y) { y = PRelu (x, w) }"
    for op, kind in [
        ("And", "bool"),
        ("Or", "bool"),
        ("Xor", "bool"),
        ("BitwiseAnd", "int32"),
        ("BitwiseXor", "uint8"),
        ("BitwiseOr", "int64"),
        ("Mod", "int32"),
        ("Mod", "int64"),
        ("Equal", "int64"),
        ("LessOrEqual", "float16"),
        ("Greater", "bfloat16"),
        ("Pow", "int32"),
        ("Pow", "float"),
    ]:
        out = "bool" if op in ("And", "Or", "Xor", "Equal", "LessOrEqual", "Greater") else kind
        yield f"{kind} {op}", f"({kind}[9,17] x, {kind}[17] y) => ({out}[] z) {{ z = {op} (x, y) }}"
    numbers = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11, "bfloat16": 16}
    for row in rows(30, a=list(numbers), b=list(numbers), n=[5, 64, 1000]):
        yield (
            f"{row['a']} as {row['b']} {row['n']}",
            f"({row['a']}[{row['n']}] x) => ({row['b']}[] y) {{ y = Cast <to = {numbers[row['b']]}> (x) }}",
        )


def moves() -> Graphs:
    """Transposes, gathers, scatters, slices, pads, joins."""
    kinds = ["float", "float", "bfloat16", "int8", "int64", "double", "bool"]
    for row in rows(
        30,
        kind=kinds,
        order=["1,0", "0,2,1", "2,1,0", "1,2,0", "0,2,3,1", "0,3,1,2", "2,0,1", "0,1,3,2", "3,0,2,1", "0,2,1,3,4"],
        a=SIZES[:22],
        b=SIZES[:22],
        c=[1, 2, 3, 8, 16, 17],
        d=[1, 4, 5, 32],
        e=[2, 3],
    ):
        shape = ",".join(str(row[key]) for key, _ in zip("abcde", row["order"].split(",")))
        yield (
            f"{row['kind']} {shape} turned to {row['order']}",
            f"({row['kind']}[{shape}] x) => ({row['kind']}[] y) {{ y = Transpose <perm = [{row['order']}]> (x) }}",
        )
    for row in rows(
        24,
        kind=kinds,
        index=["int32", "int64"],
        data=["50,64", "7,9,5", "1000,4", "4,5,33", "64,16,8"],
        indices=["1", "9", "2,3", "100"],
        axis=[0, 1, -1],
        constant=["i", "i", "w"],
    ):
        yield (
            f"{row['kind']} {row['data']} at {row['index']} {row['indices']} along {row['axis']} {row['constant']}",
            f"({row['kind']}[{row['data']}] x, {row['index']}[{row['indices']}] {row['constant']}) => ({row['kind']}[] y) {{ y = Gather <axis = {row['axis']}> (x, {row['constant']}) }}",
        )
    for kind, data, indices, more in [
        ("float", "4,6", "2,6", ""),
        ("int64", "4,6", "4,2", "axis = 1"),
        ("bfloat16", "3,4,5", "3,4,1", "axis = -1"),
        ("double", "9", "20", ""),
    ]:
        yield (
            f"{kind} elements {data} {indices}",
            f"({kind}[{data}] x, int32[{indices}] i) => ({kind}[] y) {{ y = GatherElements <{more}> (x, i) }}",
        )
        for how in ("none", "add", "mul", "max", "min"):
            scatter = f'ScatterElements <reduction = "{how}"{", " * bool(more)}{more}>'
            yield (
                f"{kind} scattered {data} {indices} {how}",
                f"({kind}[{data}] x, int64[{indices}] i, {kind}[{indices}] u) => ({kind}[] y) {{ y = {scatter} (x, i, u) }}",
            )
    for kind, data, indices, dims in [
        ("float", "4,5,6", "7,3", 0),
        ("int32", "2,5,6", "2,3,1", 1),
        ("bfloat16", "4,5,6", "3,2", 0),
        ("float", "2,3,4,4", "2,3,2", 1),
    ]:
        yield (
            f"{kind} points {data} {indices} {dims}",
            f"({kind}[{data}] x, int64[{indices}] i) => ({kind}[] y) {{ y = GatherND <batch_dims = {dims}> (x, i) }}",
        )
    for how in ("none", "add", "max"):
        yield (
            f"scattered points {how}",
            f'(float[8,5,3] x, int64[6,2] i, float[6,3] u) => (float[] y) {{ y = ScatterND <reduction = "{how}"> (x, i, u) }}',
        )
    for row in rows(
        24,
        kind=kinds,
        shape=["9,20,7", "4,64", "1,3,16,16", "100"],
        begin=["0", "1", "2"],
        end=["3", "-1", "99999", "-2"],
        step=["1", "1", "2", "-1"],
        axis=[0, 1, -1],
    ):
        axis = row["axis"] % (row["shape"].count(",") + 1)
        begin, end = (row["end"], row["begin"]) if row["step"] == "-1" else (row["begin"], row["end"])
        parts = f"b = Constant <value_ints = [{begin}]> () e = Constant <value_ints = [{end}]> () a = Constant <value_ints = [{axis}]> () s = Constant <value_ints = [{row['step']}]> ()"
        yield (
            f"{row['kind']} {row['shape']} from {begin} to {end} by {row['step']} along {axis}",
            f"({row['kind']}[{row['shape']}] x) => ({row['kind']}[] y) {{ {parts} y = Slice (x, b, e, a, s) }}",
        )
    for row in rows(
        20,
        kind=["float", "bfloat16", "int64", "float"],
        shape=["2,5,9", "1,3,8,8", "33"],
        pads=[0, 1, 2, 3],
        more=[0, 0, 1, 4],
        mode=["constant", "constant", "edge", "reflect", "wrap"],
        value=["", ", c"],
    ):
        rank = row["shape"].count(",") + 1
        pads = ",".join(str(p) for p in [0] * (rank - 1) + [row["pads"]] + [0] * (rank - 1) + [row["more"]])
        value = row["value"] if row["mode"] == "constant" else ""
        given, pad = (
            f"{row['kind']}[{row['shape']}] x, {row['kind']} w",
            f'{"c = Neg (w) " if value else ""}y = Pad <mode = "{row["mode"]}"> (x, p{value})',
        )
        yield (
            f"{row['kind']} {row['shape']} padded {pads} {row['mode']}{value}",
            f"({given}) => ({row['kind']}[] y) {{ p = Constant <value_ints = [{pads}]> () {pad} }}",
        )
    for row in rows(14, kind=kinds, axis=[0, 1, 2], a=[1, 2, 3, 16], b=[1, 5, 8], n=[2, 3, 6]):
        names = [f"x{i}" for i in range(row["n"])]
        joined = [[4, 6, 8] for _ in names]
        for i, sizes in enumerate(joined):
            sizes[row["axis"]] = row["a"] if i % 2 else row["b"]
        given = ", ".join(f"{row['kind']}[{','.join(map(str, sizes))}] {name}" for name, sizes in zip(names, joined, strict=True))
        yield (
            f"{row['kind']} {row['n']} joined at {row['axis']}, {row['a']} {row['b']}",
            f"({given}) => ({row['kind']}[] y) {{ y = Concat <axis = {row['axis']}> ({', '.join(names)}) }}",
        )
    for op, kind, x in [
        ("DepthToSpace", "bfloat16", "1,16,5,6"),
        ("SpaceToDepth", "int8", "2,3,6,4"),
        ("DepthToSpace", "float", "1,36,3,3"),
    ]:
        size = 3 if "36" in x else 2
        mode = ', mode = "CRD"' if kind == "float" else ""
        yield f"{kind} {op} {x}", f"({kind}[{x}] x) => ({kind}[] y) {{ y = {op} <blocksize = {size}{mode}> (x) }}"
    for shape, image, block, more in [
        ("1,8,9", "4,4", "2,2", ""),
        ("2,12,16", "5,6", "2,3", ""),
        ("1,9,16", "4,4", "3,3", "pads = [1,1,1,1]"),
        ("1,4,4", "4,4", "2,2", "strides = [2,2]"),
        ("1,4,9", "5,5", "2,2", "dilations = [2,2]"),
    ]:
        yield (
            f"columns {shape} {image} {block}",
            f"(float[{shape}] x) => (float[] y) {{ i = Constant <value_ints = [{image}]> () b = Constant <value_ints = [{block}]> () y = Col2Im <{more}> (x, i, b) }}",
        )
    yield "one hot", "(int64[3,4] i, float[2] v) => (float[] y) { d = Constant <value_int = 9> () y = OneHot (i, d, v) }"
    yield "eye", "(float[5,7] x) => (float[] y) { e = EyeLike <k = 1> (x) y = Add (e, x) }"
    yield (
        "split",
        "(bfloat16[4,30] x) => (bfloat16[] a, bfloat16[] b, bfloat16[] c) { a, b, c = Split <axis = 1, num_outputs = 3> (x) }",
    )
    yield "expanded", "(int64[3,1,4] x) => (int64[] y) { s = Constant <value_ints = [2,3,5,4]> () y = Expand (x, s) }"


def pools() -> Graphs:
    """Pools and resizes of images as they stand."""
    for row in rows(
        44,
        kind=["float", "float", "float", "bfloat16", "float16"],
        op=["MaxPool", "AveragePool", "AveragePool", "LpPool", "MaxPool"],
        c=[1, 3, 16, 17, 64],
        h=[1, 5, 7, 8, 14, 33],
        w=[4, 7, 8, 16, 31],
        k=["2,2", "3,3", "1,3", "5,5", "3,2"],
        s=["1,1", "2,2", "3,3", "1,2"],
        p=[0, 1],
        ceil=[0, 0, 1],
        d=["", "", "dilations = [2,2]"],
        count=[0, 1],
    ):
        kh, kw = (int(k) for k in row["k"].split(","))
        p = min(row["p"], kh - 1, kw - 1)
        if row["h"] + 2 * p < kh * (2 if row["d"] else 1) or row["w"] + 2 * p < kw * (2 if row["d"] else 1):
            continue
        attributes = f"kernel_shape = [{row['k']}], strides = [{row['s']}], pads = [{p},{p},{p},{p}], ceil_mode = {row['ceil']}{', ' if row['d'] else ''}{row['d']}"
        if row["op"] == "AveragePool":
            attributes += f", count_include_pad = {row['count']}"
        x = f"2,{row['c']},{row['h']},{row['w']}"
        yield (
            f"{row['kind']} {row['op']} of {x}, {attributes}",
            f"({row['kind']}[{x}] x) => ({row['kind']}[] y) {{ y = {row['op']} <{attributes}> (x) }}",
        )
    for op in ("MaxPool", "AveragePool"):
        yield (
            f"{op} 1-D",
            f"(float[2,9,50] x) => (float[] y) {{ y = {op} <kernel_shape = [4], strides = [2], pads = [1,2]> (x) }}",
        )
        yield f"{op} 3-D", f"(float[1,4,5,6,7] x) => (float[] y) {{ y = {op} <kernel_shape = [2,3,2], strides = [1,2,2]> (x) }}"
    yield (
        "positions of pool",
        "(float[1,4,8,8] x) => (float[] y, int64[] i) { y, i = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) }",
    )
    coordinates = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
    for row in rows(
        40,
        kind=["float", "float", "bfloat16", "uint8"],
        mode=["nearest", "linear", "linear", "cubic"],
        where=coordinates,
        near=["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"],
        x=["1,4,5,7", "2,16,8,8", "1,3,13,2"],
        sizes=["10,14", "16,16", "5,3", "26,9", "24,24", "1,1"],
        anti=[0, 0, 0, 1],
    ):
        if row["kind"] == "uint8" and row["mode"] != "nearest":
            continue
        near = f', nearest_mode = "{row["near"]}"' if row["mode"] == "nearest" else ", antialias = 1" if row["anti"] else ""
        sizes = ",".join([*row["x"].split(",")[:2], row["sizes"]])
        yield (
            f"{row['kind']} {row['x']} to {sizes}, {row['mode']} {row['where']}{near}",
            f'({row["kind"]}[{row["x"]}] x) => ({row["kind"]}[] y) {{ s = Constant <value_ints = [{sizes}]> () y = Resize <mode = "{row["mode"]}", coordinate_transformation_mode = "{row["where"]}"{near}> (x, , , s) }}',
        )
    for kind in ("float", "bfloat16"):
        for size in (3, 5):
            for c in (4, 16, 19):
                yield (
                    f"{kind} LRN {size} {c}",
                    f"({kind}[1,{c},6,7] x) => ({kind}[] y) {{ y = LRN <size = {size}, alpha = 0.01, beta = 0.5, bias = 2.0> (x) }}",
                )
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            for x in ("1,64,7,7", "2,5,1,1", "1,3,100"):
                yield f"{kind} {op} {x}", f"({kind}[{x}] x) => ({kind}[] y) {{ y = {op} (x) }}"


def rarer() -> Graphs:
    """Ops and forms of ops that are rare."""
    for exponent in (0, 1, 2, 3, 4, 5, 7, 10, 13, -1):
        for kind in ("int32", "int64", "float"):
            if kind == "float" or exponent >= 0:
                power = f"e = Constant <value = {kind} {{{exponent}}}> () y = Pow (x, e)"
                yield f"{kind} to the power of {exponent}", f"({kind}[5,33] x) => ({kind}[] y) {{ {power} }}"
    for kind in ("uint8", "uint16", "uint32", "uint64"):
        for way in ("LEFT", "RIGHT"):
            yield (
                f"{kind} shifted {way}",
                f'({kind}[40] x, {kind}[40] y) => ({kind}[] z) {{ z = BitShift <direction = "{way}"> (x, y) }}',
            )
    for kind in ("uint8", "int8", "int32", "int64"):
        yield f"{kind} BitwiseNot", f"({kind}[40] x) => ({kind}[] y) {{ y = BitwiseNot (x) }}"
        yield f"{kind} Mod", f"({kind}[40] x, {kind}[40] y) => ({kind}[] z) {{ z = Mod (x, y) }}"
        yield f"{kind} Div", f"({kind}[40] x, {kind}[40] y) => ({kind}[] z) {{ z = Div (x, y) }}"
        yield f"{kind} within", f"({kind}[40] x, {kind} lo, {kind} hi) => ({kind}[] y) {{ y = Clip (x, lo, hi) }}"
    for kind in ("float", "bfloat16", "float16", "double"):
        yield f"{kind} within", f"({kind}[40] x, {kind} lo, {kind} hi) => ({kind}[] y) {{ y = Clip (x, lo, hi) }}"
        yield f"{kind} at least", f"({kind}[40] x, {kind} lo) => ({kind}[] y) {{ y = Clip (x, lo) }}"
        for count in (1, 2, 3, 5):
            names = [f"x{i}" for i in range(count)]
            given = ", ".join(f"{kind}[{'1' if i == 2 else '33'}] {name}" for i, name in enumerate(names))
            for op in ("Mean", "Sum", "Min"):
                yield f"{kind} {op} of {count}", f"({given}) => ({kind}[] y) {{ y = {op} ({', '.join(names)}) }}"
    for more in ("", "detect_positive = 0", "detect_negative = 0", "detect_positive = 0, detect_negative = 0"):
        yield f"infinite {more}", f"(float[40] x) => (bool[] y) {{ y = IsInf <{more}> (x) }}"
    for more in ("", "bias = 0.5", "lambd = 1.5, bias = -0.5"):
        yield f"shrunk {more}", f"(float[40] x) => (float[] y) {{ y = Shrink <{more}> (x) }}"
    yield "remainder", "(float[40] x, float[40] y) => (float[] z) { z = Mod <fmod = 1> (x, y) }"
    for kind in ("float", "bfloat16"):
        for text, x, y in [
            ("ab,bc->ac", "5,33", "33,8"),
            ("bij,bjk->bik", "3,5,16", "3,16,9"),
            ("bhid,bhjd->bhij", "2,3,8,16", "2,3,9,16"),
            ("bij,bij->b", "3,5,7", "3,5,7"),
            ("ij,kj->ki", "5,6", "7,6"),
            ("bihd,bjhd->bhij", "2,8,3,16", "2,9,3,16"),
            ("ijk,k->ij", "3,4,5", "5"),
            ("i,j->ij", "8", "9"),
            ("abc,cd->abd", "2,3,16", "16,8"),
            ("bhij,bjhd->bihd", "2,3,8,9", "2,9,3,16"),
            ("ij,ij->ij", "4,5", "4,5"),
        ]:
            yield (
                f"{kind} {text}",
                f'({kind}[{x}] x, {kind}[{y}] y) => ({kind}[] z) {{ z = Einsum <equation = "{text}"> (x, y) }}',
            )
        yield f"{kind} traced", f'({kind}[4,5,6] x) => ({kind}[] z) {{ z = Einsum <equation = "ijk->ki"> (x) }}'
    for m, depth, n in [(9, 48, 32), (1, 64, 64), (33, 64, 96), (2, 32, 16)]:
        for bias in (0, 1):
            parts = f"s = Constant <value_ints = [{m},4,{n // 4}]> () "
            for name in "qkv":
                parts += f"p{name} = MatMul (x, w{name}) b{name} = {f'Add (p{name}, w1)' if bias else f'Identity (p{name})'} r{name} = Reshape (b{name}, s) t{name} = Transpose <perm = [1,0,2]> (r{name}) "
            parts += "u = Transpose <perm = [0,2,1]> (tk) m = MatMul (tq, u) p = Softmax (m) y = MatMul (p, tv)"
            weights = ones("wq", "wk", "wv", kind="float", sizes=f"{depth},{n}")
            yield (
                f"projections of {m}x{depth} to {n}, {bias}",
                f"(float[{m},{depth}] x{weights}, float[{n}] w1) => (float[] y) {{ {parts} }}",
            )
    for more, k in [
        ("", 3),
        ("strides = [2,2,2]", 3),
        ("pads = [1,1,1,1,1,1]", 3),
        ("dilations = [2,1,1]", 2),
        ("strides = [1,2,2], pads = [0,1,1,0,1,1]", 2),
    ]:
        yield (
            f"volumes of any size {more} {k}",
            f"(float[N,4,D,H,W] x, float[6,4,{k},{k},{k}] w, float[6] w1) => (float[] y) {{ y = Conv <{more}> (x, w, w1) }}",
        )
    gap = "s = Shape <start = 1, end = 2> (x) d = Constant <value_ints = [4]> () m = Mod (s, d) g = Sub (d, m) o = Constant <value_ints = [0]> () p = Concat <axis = 0> (o, o, o, o, g, o)"
    same = "s = Shape <start = 1, end = 2> (x) d = Constant <value_ints = [64]> () g = Sub (d, s) o = Constant <value_ints = [0]> () p = Concat <axis = 0> (o, o, o, o, g, o)"
    both = "s = Shape <start = 1, end = 2> (x) o = Constant <value_ints = [0]> () p = Concat <axis = 0> (o, s, o, o, s, o)"
    for name, text in (("to a multiple", gap), ("to a size", same), ("by its size", both)):
        for mode in ("constant", "edge", "reflect", "wrap"):
            yield f"padded {name}, {mode}", f'(float[B,T,8] x) => (float[] y) {{ {text} y = Pad <mode = "{mode}"> (x, p) }}'
    for text in ("Tile (x, c)", "Expand (x, c)", "Reshape (x, c)", "ConstantOfShape (c)"):
        yield (
            f"{text} by sizes",
            f"(float[1,T,8] x, float[B,T] v) => (float[] y) {{ s = Shape <start = 0, end = 1> (v) t = Shape <start = 1> (x) o = Constant <value_ints = [1]> () c = Concat <axis = 0> (s, {'o, o' if 'Tile' in text else 't'}) y = {text} }}",
        )
    for kind in ("float", "int32", "int64", "uint8"):
        for x, k, largest in [("3,100", 1, 1), ("3,100", 7, 0), ("1,1000", 100, 1), ("64,33", 33, 1)]:
            yield (
                f"{kind} best {k} of {x} {largest}",
                f"({kind}[{x}] x) => ({kind}[] v, int64[] i) {{ k = Constant <value_ints = [{k}]> () v, i = TopK <largest = {largest}> (x, k) }}",
            )
    for row in rows(
        24,
        batch=[1, 2],
        groups=[1, 2, 3],
        each=[1, 2, 3, 8],
        n=[1, 2, 5, 6],
        room=[16, 40, 128, 600],
        depth=[8, 16, 20, 33, 64, 128],
        window=[0, 0, 5, 19],
    ):
        yield f"cached {','.join(str(row[key]) for key in ('batch', 'groups', 'each', 'n', 'room', 'depth', 'window'))}", ""


def of_gpus() -> Graphs:
    """Products, convolutions and attention for GPUs, mostly on tensor cores."""
    halves = ["bfloat16", "float16"]
    for row in rows(
        40,
        kind=[*halves, "float", "float"],
        m=[1, 16, 33, 64, 128, 200, 512, 2048],
        k=[16, 31, 64, 100, 256, 512],
        n=[8, 40, 64, 128, 300, 512],
        heads=["", "", "2,12,"],
    ):
        kind, m, k, n, heads = row["kind"], row["m"], row["k"], row["n"], row["heads"]
        other = "y" if heads else "w"
        yield (
            f"{kind} {heads}{m}x{k}x{n}",
            f"({kind}[{heads}{m},{k}] x, {kind}[{heads}{k},{n}] {other}) => ({kind}[] z) {{ z = MatMul (x, {other}) }}",
        )
    for row in rows(
        24,
        kind=[*halves, "float"],
        ins=[3, 16, 33, 64, 128],
        outs=[8, 24, 64, 256],
        size=[7, 14, 28, 56],
        k=[1, 3, 3, 5],
        s=[1, 1, 2],
    ):
        x, w = f"2,{row['ins']},{row['size']},{row['size']}", f"{row['outs']},{row['ins']},{row['k']},{row['k']}"
        yield (
            f"{row['kind']} {x} by {w}, {row['s']}",
            f"({row['kind']}[{x}] x, {row['kind']}[{w}] w) => ({row['kind']}[] y) {{ y = Conv <strides = [{row['s']},{row['s']}]> (x, w) }}",
        )
    for row in rows(
        36,
        kind=halves,
        heads=["1", "3", "32"],
        m=[16, 17, 33, 64, 128, 300],
        n=[16, 31, 64, 100, 128, 500],
        d=[16, 17, 31, 32, 40, 64, 96, 128],
        masked=["a = Identity (s)", "a = Add (s, mask)", "a = Where (b, s, low)", "a = Mul (s, w)"],
        guard=[0, 0, 1],
    ):
        kind, heads, n, d = row["kind"], row["heads"], row["n"], row["d"]
        guard = "i = IsNaN (p) g = Where (i, w1, p) y = MatMul (g, v)" if row["guard"] else "y = MatMul (p, v)"
        given = f"{kind}[1,{heads},{row['m']},{d}] q, {kind}[1,{heads},{n},{d}] k, {kind}[1,{heads},{n},{d}] v, {kind}[{row['m']},{n}] mask, bool[1,{n}] b, {kind}[1] w, {kind}[1] low"
        if row["guard"]:
            guard = f"zero = Sub (w, w) {guard.replace('w1', 'zero')}"
        text = f"t = Transpose <perm = [0,1,3,2]> (k) s = MatMul (q, t) {row['masked']} p = Softmax (a) {guard}"
        yield (
            f"{kind} attention of {heads} heads, {row['m']} {n} {d} {row['masked'][4:7]} {row['guard']}",
            f"({given}) => ({kind}[] y) {{ {text} }}",
        )
