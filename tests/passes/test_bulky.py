"""Long vectors are not propagated: inference takes little memory, whatever a small file declares."""

from __future__ import annotations

import subprocess
import sys

import pytest

from partita.graph import TensorType
from partita.passes import apply_pass

from .before_after import text

DOUBLED = "\n".join(f"v{i + 1} = Concat(v{i}, v{i}) {{axis=0}}" for i in range(29))

NETS = {
    "arithmetic": ("graph g(x: float32[300000000]) -> (y) { y = Mul(x, x) }", "float32[300000000]"),
    "chained": (
        "graph g(x: float32[300000000]) -> (y) { a = Add(x, x)\n y = Concat(a, x) {axis=0} }",
        "float32[600000000]",
    ),
    "as a shape": ("graph g(x: int64[2], v: int64[300000000]) -> (y) { y = Reshape(x, v) }", "int64"),
    "as a shape to expand to": ("graph g(x: bool[1], v: int64[2147483648]) -> (y) { y = Expand(x, v) }", "bool"),
    "as a shape of a constant": ("graph g(v: int64[2147483648]) -> (y) { y = ConstantOfShape(v) }", "float32"),
    "as a shape, joined": (
        "graph g(x: bool[1], v: int64[300000000]) -> (y) { w = Concat(v, v) {axis=0}\n y = Expand(x, w) }", "bool"),
    "by a computed shape": (
        "graph g(x: float32[2, 150000000], s: float32[1, 300000000]) -> (y) { t = Shape(s)\n i = const int64[] 1\n"
        " j = const int64[1] [0]\n n = Gather(t, i)\n m = Unsqueeze(n, j)\n v = Reshape(x, m)\n y = Mul(v, v) }",
        "float32[300000000]",
    ),
    "doubled": (
        f"graph g(x: float32[64]) -> (v29) {{ v0 = Shape(x)\n {DOUBLED} }}",
        "int64[536870912]",
    ),
    "in a body": (
        "graph g(x: float32[300000000], c: bool[]) -> (z) { z = If(c) {"
        " then_branch=graph t(p) -> (u) { u = Mul(p, p) }, else_branch=graph e(p) -> (v) { v = Sub(p, p) } } captures(x) }",
        "float32[300000000]",
    ),
    "in a call": (
        "func f(a) -> (b) { b = Mul(a, a) }\n graph g(x: float32[300000000]) -> (y) { y = call f(x) }",
        "float32[300000000]",
    ),
}

LIMITED = """
import resource, sys
from partita.graph.readers.text import parse
from partita.passes import apply_pass
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 29),) * 2)
for line in sys.stdin.read().split("\\f"):
    print(apply_pass(parse(line), "InferShape").outputs[0].type)
"""


def test_it_takes_little_memory() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED],
        input="\f".join(net for net, _ in NETS.values()),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.splitlines() == [kind for _, kind in NETS.values()]


SHAPED = """
graph net(x: float32[N, 4, 5]) -> (y) {
  s = Shape(x)
  zero = const int64[1] [0]
  one = const int64[1] [1]
  n = Slice(s, zero, one)
  rest = const int64[1] [20]
  target = Concat(n, rest) {axis=0}
  r = Reshape(x, target)
  y = Add(r, r)
}
"""


def test_shape_arithmetic_and_common_layers_are_not_held_back() -> None:
    g = apply_pass(text(SHAPED), "InferShape")
    kind = g.outputs[0].type
    assert isinstance(kind, TensorType) and kind.shape == ("N", 20)


def test_what_is_held_back_is_still_checked() -> None:
    from partita.graph import PassError

    g = text("graph g(x: float32[3000000], y: float32[3000001]) -> (z) { z = Mul(x, y) }")
    with pytest.raises(PassError, match=r"node 'z' \(Mul\): types contradict each other: the sizes of the operands"):
        apply_pass(g, "InferShape")
    lie = text("graph g(x: float32[3000000]) -> (z) { z = Mul(x, x) : float32[9000000] }")
    with pytest.raises(PassError, match=r"'z' is declared float32\[9000000\], and float32\[3000000\] follows"):
        apply_pass(lie, "InferShape")
