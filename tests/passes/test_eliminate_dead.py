"""EliminateDead: what no output needs goes."""

from __future__ import annotations

from .before_after import check, unchanged


def test_dead_nodes_go_and_inputs_stay() -> None:
    check(
        "EliminateDead",
        """
        graph net(x: float32[2], unused: int64[1]) -> (y) {
          y = Relu(x)
          a = Neg(y)
          c = const float32[1] [1.0]
          b = Add(a, c)
        }
        """,
        "graph net(x: float32[2], unused: int64[1]) -> (y) { y = Relu(x) }",
    )


def test_what_a_live_node_waits_for_is_not_dead() -> None:
    unchanged("EliminateDead", "graph net(x: float32[2]) -> (y) { a = Neg(x)\n y = Relu(x) after(a) }")


def test_what_only_a_dead_node_of_a_body_read_is_dead_too() -> None:
    check(
        "EliminateDead",
        """
        graph net(x: float32[2], c: bool[]) -> (y) {
          a = Neg(x)
          b = Abs(x)
          y = If(c) {
            then_branch=graph t(p: float32[2], q: float32[2]) -> (r) { r = Relu(q)
              s = Neg(p) },
            else_branch=graph e(p: float32[2], q: float32[2]) -> (v) { v = Neg(q) },
          } captures(a, b)
        }
        ""","""
        graph net(x: float32[2], c: bool[]) -> (y) {
          b = Abs(x)
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (r) { r = Relu(q) },
            else_branch=graph e(q: float32[2]) -> (v) { v = Neg(q) },
          } captures(b)
        }
        """,
    )


def test_the_body_of_a_call_keeps_its_inputs() -> None:
    check(
        "EliminateDead",
        """
        func body(p: float32[2], q: float32[2]) -> (r) {
          r = Relu(q)
          s = Neg(p)
        }
        graph net(x: float32[2]) -> (y) { y = call body(x, x) }
        ""","""
        func body(p: float32[2], q: float32[2]) -> (r) { r = Relu(q) }
        graph net(x: float32[2]) -> (y) { y = call body(x, x) }
        """,
    )
