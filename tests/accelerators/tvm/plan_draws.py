"""More graphs whose kernels are kept: rows of tables whose cells are drawn from lists. Many of the sizes are those at which a plan
turns, or are beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

SIZES = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    24,
    30,
    31,
    32,
    33,
    48,
    63,
    64,
    65,
    96,
    100,
    127,
    128,
    129,
    192,
    255,
    256,
    257,
]
"""Sizes of anything."""

MORE = [*SIZES, 320, 384, 511, 512, 513, 768, 1000, 1024, 2048]
"""Sizes of what costs little."""

Graphs = Iterator[tuple[str, str]]


def rows(number: int, **lists: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """So many rows, each with an entry of every list: the same ones each time."""
    for i in range(number):
        yield {key: entries[_drawn(f"{key} {i}") % len(entries)] for key, entries in lists.items()}


def _drawn(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def ones(*names: str, kind: str, sizes: str) -> str:
    return "".join(f", {kind}[{sizes}] {name}" for name in names)


def products() -> Graphs:
    """Products by constants, and of two values."""
    kinds = ["float", "float", "bfloat16", "bfloat16", "float16", "double"]
    for row in rows(
        90, kind=kinds, m=SIZES, k=MORE, n=MORE, after=["", "", "b = Add (p, w1) y = Relu (b)", "y = Gelu (p)", "y = Add (p, v)"]
    ):
        kind, m, k, n = row["kind"], row["m"], row["k"], row["n"]
        if k * n > 300_000 or (kind == "double" and row["after"]):
            continue
        product = f"p = MatMul (x, w) {row['after']}" if row["after"] else "y = MatMul (x, w)"
        given = f"{kind}[{m},{k}] x, {kind}[{k},{n}] w, {kind}[{n}] w1, {kind}[{m},{n}] v"
        yield f"{kind} {m}x{k}x{n} then {row['after'][4:8] or 'nothing'}", f"({given}) => ({kind}[] y) {{ {product} }}"
    for row in rows(30, kind=kinds[:5], a=[1, 1, 2, 3, 8], b=[1, 3, 4, 12], m=SIZES, k=SIZES, n=SIZES, turned=["", "x", "y"]):
        kind, heads, m, k, n = row["kind"], f"{row['a']},{row['b']}", row["m"], row["k"], row["n"]
        x, y = (f"{k},{m}" if row["turned"] == "x" else f"{m},{k}"), (f"{n},{k}" if row["turned"] == "y" else f"{k},{n}")
        turn = f"t = Transpose <perm = [0,1,3,2]> ({row['turned']}) " if row["turned"] else ""
        read = {"": "x, y", "x": "t, y", "y": "x, t"}[row["turned"]]
        yield (
            f"{kind} {heads} of {m}x{k}x{n}, {row['turned'] or 'none'} turned",
            f"({kind}[{heads},{x}] x, {kind}[{heads},{y}] y) => ({kind}[] z) {{ {turn}z = MatMul ({read}) }}",
        )
    for row in rows(
        24,
        kind=kinds[:4],
        m=SIZES,
        k=SIZES,
        n=SIZES,
        a=["", "transA = 1"],
        b=["", "transB = 1"],
        alpha=["", "alpha = 0.5"],
        beta=["", "", "beta = 2.0"],
        c=["n", "1", "m,n", "m,1"],
        w=["w", "y"],
    ):
        kind, m, k, n = row["kind"], row["m"], row["k"], row["n"]
        attributes = ", ".join(filter(None, (row["a"], row["b"], row["alpha"], row["beta"])))
        x, w = (f"{k},{m}" if row["a"] else f"{m},{k}"), (f"{n},{k}" if row["b"] else f"{k},{n}")
        c = ",".join(str(row.get(size, size)) for size in row["c"].split(","))
        given = f"{kind}[{x}] x, {kind}[{w}] {row['w']}, {kind}[{c}] {'w1' if row['w'] == 'w' else 'c'}"
        text = f"({given}) => ({kind}[] z) {{ z = Gemm <{attributes}> (x, {row['w']}, {'w1' if row['w'] == 'w' else 'c'}) }}"
        yield f"{kind} gemm {x} by {w}, {row['c']}, {attributes} {row['w']}", text
    three = "a = MatMul (x, w) b = MatMul (x, w1) c = MatMul (x, w2) d = Mul (a, b) y = Sub (d, c)"
    yield "three of one", f"(float[17,64] x{ones('w', 'w1', 'w2', kind='float', sizes='64,64')}) => (float[] y) {{ {three} }}"
    for m, n in [(1, 64), (9, 32)]:
        heads = f"s = Constant <value_ints = [1,{m},4,{n // 4}]> () "
        for name in "qkv":
            heads += (
                f"p{name} = MatMul (x, w{name}) b{name} = Add (p{name}, w1) r{name} = Reshape (b{name}, s) "
                f"t{name} = Transpose <perm = [0,2,{'3,1' if name == 'k' else '1,3'}]> (r{name}) "
            )
        heads += "m = MatMul (tq, tk) p = Softmax (m) y = MatMul (p, tv)"
        weights = ones("wq", "wk", "wv", kind="float", sizes=f"48,{n}")
        yield f"projections of {m} to {n}", f"(float[1,{m},48] x{weights}, float[{n}] w1) => (float[] y) {{ {heads} }}"


def convolutions() -> Graphs:
    """Convolutions of images, rows and volumes."""
    channels = [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 40, 64, 96]
    kinds = ["float", "float", "float", "bfloat16", "float16"]
    afters = ["", "", "y = Relu (c)", "d = Add (c, w2) y = HardSwish (d)", "s = Sigmoid (c) y = Mul (c, s)"]
    shapes: dict[str, Sequence[Any]] = {
        "batch": [1, 1, 1, 2, 3],
        "ins": channels,
        "outs": channels,
        "h": [1, 5, 7, 8, 14, 16, 20, 28, 33, 56],
        "after": afters,
        "w": [1, 7, 8, 13, 14, 16, 28, 30, 56],
    }
    for row in rows(
        110,
        kind=kinds,
        k=["1,1", "1,1", "3,3", "3,3", "3,3", "5,5", "1,3", "7,1", "2,2"],
        s=["1,1", "1,1", "1,1", "2,2", "1,2"],
        d=["1,1", "1,1", "1,1", "2,2"],
        padded=[0, 1, 1, 1],
        group=[1, 1, 1, 1, 2, 4, "all", "all"],
        **shapes,
    ):
        kernel = [int(size) for size in row["k"].split(",")]
        group = row["ins"] if row["group"] == "all" else row["group"]
        if row["ins"] % group or min(row["h"], row["w"]) < (0 if row["padded"] else 9):
            continue
        outs = row["outs"] if group == 1 else group * max(1, row["outs"] // group) if row["group"] != "all" else group
        pads = (
            ",".join(str(int(d) * (k - 1) // 2 * row["padded"]) for k, d in zip(kernel, row["d"].split(",")))
            if row["padded"]
            else "0,0"
        )
        pads = f"{pads},{pads}"
        attributes = f"strides = [{row['s']}], dilations = [{row['d']}], pads = [{pads}], group = {group}"
        x, w = f"{row['batch']},{row['ins']},{row['h']},{row['w']}", f"{outs},{row['ins'] // group},{row['k']}"
        body = f"c = Conv <{attributes}> (x, w, w1) {row['after']}" if row["after"] else f"y = Conv <{attributes}> (x, w, w1)"
        given = f"{row['kind']}[{x}] x, {row['kind']}[{w}] w, {row['kind']}[{outs}] w1, {row['kind']}[1,{outs},1,1] w2"
        yield (
            f"{row['kind']} convolution of {x} by {w}, {row['s']} {row['d']} {pads} {row['after'][4:8]}",
            f"({given}) => ({row['kind']}[] y) {{ {body} }}",
        )
    for row in rows(
        14,
        kind=kinds,
        ins=channels,
        outs=channels,
        n=[9, 16, 30, 64, 100, 257],
        k=[1, 2, 3, 5, 8],
        s=[1, 1, 2, 4],
        d=[1, 1, 2, 3],
    ):
        x, w = f"1,{row['ins']},{row['n']}", f"{row['outs']},{row['ins']},{row['k']}"
        attributes = f"strides = [{row['s']}], dilations = [{row['d']}], pads = [{row['k'] // 2},{row['k'] // 2}]"
        yield (
            f"{row['kind']} 1-D of {x} by {w}, {row['s']} {row['d']}",
            f"({row['kind']}[{x}] x, {row['kind']}[{w}] w) => ({row['kind']}[] y) {{ y = Conv <{attributes}> (x, w) }}",
        )
    for row in rows(
        12, kind=kinds, ins=[1, 3, 4, 8, 17], outs=[1, 5, 8, 16], n=[3, 5, 8], k=[1, 2, 3], s=[1, 2], group=[1, 1, "all"]
    ):
        group = row["ins"] if row["group"] == "all" else 1
        outs, each = (row["ins"], 1) if row["group"] == "all" else (row["outs"], row["ins"])
        x, w = f"1,{row['ins']},{row['n']},9,10", f"{outs},{each},{row['k']},{row['k']},{row['k']}"
        attributes = f"strides = [{row['s']},{row['s']},1], group = {group}"
        yield (
            f"{row['kind']} 3-D of {x} by {w}, {row['s']}",
            f"({row['kind']}[{x}] x, {row['kind']}[{w}] w) => ({row['kind']}[] y) {{ y = Conv <{attributes}> (x, w) }}",
        )
    for row in rows(
        24,
        kind=kinds,
        ins=channels,
        outs=channels,
        n=[1, 4, 7, 9, 16],
        k=[2, 3, 4],
        s=[1, 2, 2, 3, 4],
        group=[1, 1, 2, "all"],
        p=[0, 1],
        more=["", "", "dilations = [2,2]", "output_padding = [1,1]", 'auto_pad = "SAME_UPPER"'],
    ):
        group = row["ins"] if row["group"] == "all" else row["group"]
        if row["ins"] % group or ("output" in row["more"] and row["s"] == 1):
            continue
        x, w = f"1,{row['ins']},{row['n']},{row['n']}", f"{row['ins']},{1 if group > 1 else row['outs']},{row['k']},{row['k']}"
        pads = "" if "auto" in row["more"] else f"pads = [{row['p']},{row['p']},{row['p']},{row['p']}], "
        attributes = f"{pads}strides = [{row['s']},{row['s']}], group = {group}{', ' if row['more'] else ''}{row['more']}"
        text = f"({row['kind']}[{x}] x, {row['kind']}[{w}] w) => ({row['kind']}[] y) {{ c = ConvTranspose <{attributes}> (x, w) y = Relu (c) }}"
        yield f"{row['kind']} transposed, {x} by {w}, {attributes}", text
    for batch, c, high, wide, size in [
        (1, 32, 7, 7, 3),
        (1, 64, 4, 4, 3),
        (1, 16, 3, 3, 5),
        (2, 512, 7, 7, 3),
        (1, 256, 2, 2, 3),
    ]:
        block = f"a = Conv <pads = [{size // 2},{size // 2},{size // 2},{size // 2}]> (x, w) b = Relu (a) y = Add (b, x)"
        yield (
            f"border {batch} {c} {high} {wide} {size}",
            f"(float[{batch},{c},{high},{wide}] x, float[{c},{c},{size},{size}] w) => (float[] y) {{ {block} }}",
        )
    turns = "s = Constant <value_ints = [1,{g},{e},8,8]> () r = Reshape (a, s) t = Transpose <perm = [0,2,1,3,4]> (r) u = Constant <value_ints = [1,{c},8,8]> () b = Reshape (t, u)"
    for c, g in [(24, 3), (32, 2), (16, 4)]:
        shuffled = turns.format(g=g, e=c // g, c=c)
        block = f"a = Conv (x, w) {shuffled} d = Conv <pads = [1,1,1,1], group = {c}> (b, w1) e = Relu (d) y = Conv (e, w)"
        yield f"shuffled {c} {g}", f"(float[1,{c},8,8] x, float[{c},{c},1,1] w, float[{c},1,3,3] w1) => (float[] y) {{ {block} }}"
    for mode, size in [("nearest", 2), ("linear", 2), ("nearest", 3), ("linear", 4)]:
        for high, wide in ((9 * size, 7 * size), (20, 17)):
            up = f'a = Conv (x, w) s = Constant <value_ints = [1,16,{high},{wide}]> () b = Resize <mode = "{mode}"> (a, , , s) y = Conv <pads = [1,1,1,1]> (b, w1)'
            yield (
                f"enlarged {mode} {high} {wide}",
                f"(float[1,16,9,7] x, float[16,16,1,1] w, float[16,16,3,3] w1) => (float[] y) {{ {up} }}",
            )
    for pool in (
        "MaxPool <kernel_shape = [2,2], strides = [2,2]>",
        "AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>",
        "GlobalAveragePool",
        "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>",
        "MaxPool <kernel_shape = [3,3], strides = [1,1], pads = [1,1,1,1]>",
        "LRN <size = 5>",
        "MaxPool <kernel_shape = [5,5], strides = [3,3], ceil_mode = 1>",
    ):
        for c, n in ((16, 12), (20, 9), (64, 15)):
            body = f"a = Conv <pads = [1,1,1,1]> (x, w) b = Relu (a) c = {pool} (b) y = Conv (c, w1)"
            yield (
                f"{pool} between {c} {n}",
                f"(float[1,8,{n},{n}] x, float[{c},8,3,3] w, float[24,{c},1,1] w1) => (float[] y) {{ {body} }}",
            )
    dense = "a = Conv (x, w) n = BatchNormalization (a, w2, w2, w2, ws) r = Relu (n) c = Conv <pads = [1,1,1,1]> (r, w1) j = Concat <axis = 1> (a, c) m = BatchNormalization (j, w3, w3, w3, ws3) s = Relu (m) y = Conv (s, w4)"
    given = "float[1,16,8,8] x, float[32,16,1,1] w, float[16,32,3,3] w1, float[32] w2, float[32] ws, float[48] w3, float[48] ws3, float[8,48,1,1] w4"
    yield "dense block", f"({given}) => (float[] y) {{ {dense} }}"
    for op in ("ConvInteger",):
        for x, w, attributes in [
            ("1,8,9,9", "16,8,3,3", "pads = [1,1,1,1]"),
            ("2,3,10,7", "5,3,2,2", "strides = [2,2]"),
            ("1,6,12", "4,6,3", ""),
            ("1,8,9,9", "8,1,3,3", "group = 8"),
        ]:
            for kind in ("int8", "uint8"):
                yield (
                    f"{op} {x} by {kind} {w}",
                    f"(uint8[{x}] x, {kind}[{w}] w, uint8 z) => (int32[] y) {{ y = {op} <{attributes}> (x, w, z) }}",
                )
                yield (
                    f"{op} {x} by {kind} {w}, no point",
                    f"(uint8[{x}] x, {kind}[{w}] w) => (int32[] y) {{ y = {op} <{attributes}> (x, w) }}",
                )


def lines() -> Graphs:
    """Ops along an axis: softmax, norms, reductions, sums that run, positions."""
    kinds = ["float", "float", "float", "bfloat16", "float16", "double", "int32", "int64", "uint8", "int8"]
    for row in rows(
        60,
        kind=kinds,
        outer=[1, 2, 5, 16, 63, 64, 200],
        size=[1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 128, 129, 500, 1024, 2049],
        inner=[1, 1, 1, 2, 8, 17, 64],
        op=["ArgMax", "ArgMin", "TopK", "TopK", "CumSum", "Hardmax", "ReduceMax", "ReduceSum", "Softmax"],
        last=["", "select_last_index = 1"],
        keep=[0, 1],
        k=[1, 2, 3, 5, 8, 20],
        largest=[0, 1, 1],
        reverse=["", "reverse = 1", "exclusive = 1", "exclusive = 1, reverse = 1"],
    ):
        kind, op, shape = row["kind"], row["op"], f"{row['outer']},{row['size']},{row['inner']}"
        if op in ("Softmax", "Hardmax") and kind[0] in "iu":
            continue
        if op == "TopK":
            k = min(row["k"], row["size"])
            more = f"axis = 1, largest = {row['largest']}"
            yield (
                f"{kind} best {k} of {shape}, {more}",
                f"({kind}[{shape}] x) => ({kind}[] v, int64[] i) {{ k = Constant <value_ints = [{k}]> () v, i = TopK <{more}> (x, k) }}",
            )
            continue
        axis = "a = Constant <value_int = 1> ()" if op == "CumSum" else "a = Constant <value_ints = [1]> ()"
        attributes = {
            "CumSum": row["reverse"],
            "ArgMax": f"axis = 1, keepdims = {row['keep']}{', ' * bool(row['last'])}{row['last']}",
            "Softmax": "axis = 1",
            "Hardmax": "axis = 1",
        }
        attributes["ArgMin"] = attributes["ArgMax"]
        used = attributes.get(op, f"keepdims = {row['keep']}")
        read = "x, a" if op in ("CumSum", "ReduceMax", "ReduceSum") else "x"
        out = "int64" if op.startswith("Arg") else kind
        yield (
            f"{kind} {op} along {shape}, {used}",
            f"({kind}[{shape}] x) => ({out}[] y) {{ {axis if ', a' in read else ''} y = {op} <{used}> ({read}) }}",
        )
    ops = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp".split()
    for row in rows(
        50,
        kind=[*kinds[:5], "int32"],
        shape=["2,3,4,5", "1,64,7,7", "16,1,100", "33,65", "1000", "8,8,8,8", "3,257", "257,3", "128,128", "5,1,1,9", "64,2000"],
        axes=["", "0", "-1", "0,1", "1", "-2,-1"],
        op=ops,
        keep=[0, 1],
    ):
        rank = row["shape"].count(",") + 1
        if row["kind"] == "int32" and row["op"] in ops[6:]:
            continue
        if any(not -rank <= int(axis) < rank for axis in row["axes"].split(",") if axis):
            continue
        axes, read = (f"a = Constant <value_ints = [{row['axes']}]> () ", "x, a") if row["axes"] else ("", "x")
        yield (
            f"{row['kind']} {row['op']} of {row['shape']} over {row['axes'] or 'all'}, {row['keep']}",
            f"({row['kind']}[{row['shape']}] x) => ({row['kind']}[] y) {{ {axes}y = {row['op']} <keepdims = {row['keep']}> ({read}) }}",
        )
    norms = [
        "y = Softmax (a)",
        "y = LogSoftmax (a)",
        "y = LayerNormalization (a, w, w)",
        "y = RMSNormalization (a, w)",
        "l = LayerNormalization (a, w, w) y = Gelu (l)",
        "m = ReduceMean <keepdims = 1> (a, ax) y = Sub (a, m)",
        "s = Softmax (a) y = Mul (s, w)",
    ]
    for row in rows(
        40,
        kind=kinds[:5],
        outer=["1", "3", "2,5", "64", "1,200"],
        n=SIZES + [500, 1023, 1024, 4096],
        before=["a = Add (x, v)", "a = Identity (x)", "a = Mul (x, w)"],
        norm=norms,
    ):
        kind, shape = row["kind"], f"{row['outer']},{row['n']}"
        axis = "ax = Constant <value_ints = [-1]> () " if "ax" in row["norm"].replace("max", "") else ""
        yield (
            f"{kind} {row['before'][4:7]} and {row['norm']} of {shape}",
            f"({kind}[{shape}] x, {kind}[{shape}] v, {kind}[{row['n']}] w) => ({kind}[] y) {{ {axis}{row['before']} {row['norm']} }}",
        )
    for kind in ("float", "bfloat16"):
        for shape, groups in [("1,8,5", 2), ("2,32,7,7", 8), ("1,64,16,16", 32), ("3,6,10", 6), ("1,16,33,2", 1)]:
            c = shape.split(",")[1]
            yield (
                f"{kind} groups {shape} {groups}",
                f"({kind}[{shape}] x, {kind}[{c}] w) => ({kind}[] y) {{ n = GroupNormalization <num_groups = {groups}> (x, w, w) s = Sigmoid (n) y = Mul (n, s) }}",
            )
        yield (
            f"{kind} instances",
            f"({kind}[2,6,9,9] x, {kind}[6] w) => ({kind}[] y) {{ n = InstanceNormalization (x, w, w) y = Relu (n) }}",
        )


def attentions() -> Graphs:
    """Attention: with parts, and the op."""
    kinds = ["float", "bfloat16", "float16", "float"]
    rows_, keys, depth = (
        [1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65, 128, 200],
        [1, 7, 8, 16, 17, 32, 33, 64, 65, 100, 128, 257, 512],
        [4, 8, 15, 16, 20, 32, 33, 48, 64, 80, 96, 128],
    )
    for row in rows(
        50,
        kind=kinds,
        heads=[(4, 4), (4, 1), (8, 2), (1, 1), (12, 12)],
        m=rows_,
        n=keys,
        d=depth,
        v=[None, None, None, 8, 40],
        more=[
            "",
            "",
            "is_causal = 1",
            "softcap = 5.0",
            "scale = 0.3",
            "is_causal = 1, softcap = 30.0",
            "qk_matmul_output_mode = 0",
        ],
        mask=["", "", "float", "bool"],
        batch=[1, 1, 2],
    ):
        kind, (q, k), v = row["kind"], row["heads"], row["v"] or row["d"]
        given = f"{kind}[{row['batch']},{q},{row['m']},{row['d']}] q, {kind}[{row['batch']},{k},{row['n']},{row['d']}] k, {kind}[{row['batch']},{k},{row['n']},{v}] v"
        mask = f", {kind if row['mask'] == 'float' else 'bool'}[{row['m']},{row['n']}] mask" if row["mask"] else ""
        yield (
            f"{kind} {row['batch']},{q} over {k} heads, {row['m']} {row['n']} {row['d']} {v} {row['more']} {row['mask']}",
            f"({given}{mask}) => ({kind}[] y) {{ y = Attention <{row['more']}> (q, k, v{', mask' if mask else ''}) }}",
        )
    for row in rows(
        30,
        kind=kinds,
        heads=["1", "2,3", "16"],
        m=rows_,
        n=keys,
        d=depth,
        turned=[0, 1],
        masked=["", "a = Add (m, mask)", "a = Where (b, m, low)"],
        scale=["m = Identity (s)", "m = Mul (s, c)", "m = Div (s, c)"],
        guard=[0, 0, 1],
        order=[0, 0, 1],
    ):
        kind, heads, rank = row["kind"], row["heads"], row["heads"].count(",") + 1
        perm = ",".join(map(str, [*range(rank), rank + 1, rank]))
        k = f"{heads},{row['d']},{row['n']}" if row["turned"] else f"{heads},{row['n']},{row['d']}"
        given = f"{kind}[{heads},{row['m']},{row['d']}] q, {kind}[{k}] k, {kind}[{heads},{row['n']},{row['d']}] v, {kind}[{row['m']},{row['n']}] mask, bool[1,{row['n']}] b, {kind}[1] w, {kind}[1] low"
        parts = "s = MatMul (q, k)" if row["turned"] else f"t = Transpose <perm = [{perm}]> (k) s = MatMul (q, t)"
        number = {"float": 1, "bfloat16": 16, "float16": 10}[kind]
        parts += f" e = Constant <value_float = 0.2> () c = Cast <to = {number}> (e) {row['scale']} {row['masked'] or 'a = Identity (m)'} p = Softmax (a)"
        if row["guard"]:
            parts += f" i = IsNaN (p) ze = Constant <value_float = 0.0> () z = Cast <to = {number}> (ze) g = Where (i, z, p) o = MatMul (g, v)"
        else:
            parts += " o = MatMul (p, v)"
        if row["order"]:
            parts += f" y = Transpose <perm = [{','.join(map(str, [rank, *range(rank), rank + 1]))}]> (o)"
        else:
            parts = parts[: parts.rindex("o =")] + "y =" + parts[parts.rindex("o =") + 3 :]
        yield (
            f"{kind} {heads} {row['m']} {row['n']} {row['d']} {row['masked'][4:7]} {row['scale'][4:7]} {row['guard']}{row['turned']}{row['order']}",
            f"({given}) => ({kind}[] y) {{ {parts} }}",
        )
    for kind in ("float", "bfloat16"):
        for m, past in [(1, 15), (1, 128), (4, 60)]:
            given = f"{kind}[1,8,{m},32] q, {kind}[1,2,{m},32] k, {kind}[1,2,{m},32] v, {kind}[1,2,{past},32] pk, {kind}[1,2,{past},32] pv"
            yield (
                f"{kind} past {m} {past}",
                f"({given}) => ({kind}[] y, {kind}[] nk, {kind}[] nv) {{ y, nk, nv = Attention <is_causal = 1> (q, k, v, , pk, pv) }}",
            )
        packed = f"{kind}[2,9,64] q, {kind}[2,9,32] k, {kind}[2,9,32] v"
        yield (
            f"{kind} packed heads",
            f"({packed}) => ({kind}[] y) {{ y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v) }}",
        )
    for more in ("", "interleaved = 1", "rotary_embedding_dim = 8"):
        half = 4 if "dim" in more else 8
        yield (
            f"rotary {more}",
            f"(bfloat16[1,4,9,16] x, bfloat16[20,{half}] w, int64[1,9] p) => (bfloat16[] y) {{ y = RotaryEmbedding <{more}> (x, w, w, p) }}",
        )
