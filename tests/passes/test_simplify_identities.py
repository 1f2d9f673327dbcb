"""SimplifyIdentities: what only hands its input on goes."""

from __future__ import annotations

import pytest

from .before_after import check, unchanged

PASSES = ["InferShape", "SimplifyIdentities", "EliminateDead"]


def test_identities_and_dropout() -> None:
    check(
        PASSES,
        """
        graph net(x: float32[2, 3]) -> (e, f=d) {
          a = Identity(x)
          b = Dropout(a)
          d = Relu(b)
          e = Neg(b)
        }
        ""","""
        graph net(x: float32[2, 3]) -> (e, f=d) {
          d = Relu(x) : float32[2, 3]
          e = Neg(x) : float32[2, 3]
        }
        """,
    )


def test_an_output_may_become_an_input_and_stay_twice() -> None:
    check(
        PASSES,
        """
        graph net(x: float32[2, 3], unused: int64[1]) -> (a=a, b=a, x=x) {
          a = Identity(x)
        }
        ""","""
        graph net(x: float32[2, 3], unused: int64[1]) -> (a=x, b=x, x=x) {
        }
        """,
    )


def test_an_output_keeps_the_type_that_it_is_declared_with() -> None:
    unchanged(
        "SimplifyIdentities",
        """
        graph net(x: float32[N, 3]) -> (a) {
          a = Identity(x) : float32[batch, 3]
        }
        """,
    )


def test_a_mask_that_is_read_keeps_its_dropout() -> None:
    unchanged(
        "SimplifyIdentities",
        """
        graph net(x: float32[2]) -> (y, mask) {
          y, mask = Dropout(x) name=drop
        }
        """,
    )


@pytest.mark.parametrize(
    ("opset", "dropout", "goes"),
    [
        (6, "Dropout(x)", False),
        (6, "Dropout(x) {is_test=1}", True),
        (10, "Dropout(x) {ratio=0.5}", True),
        (13, "Dropout(x, ratio, no)", True),
        (13, "Dropout(x, ratio, yes)", False),
        (13, "Dropout(x, ratio, asked)", False),
    ],
)
def test_dropout_by_opset(opset: int, dropout: str, goes: bool) -> None:
    head = """
    graph net(x: float32[2], asked: bool[]) -> (z) {
      ratio = const float32[] 0.5
      no = const bool[] false
      yes = const bool[] true
    """
    before = f"{head} y = {dropout}\n z = Relu(y) }}"
    if goes:
        check("SimplifyIdentities", before, f"{head} z = Relu(x) }}", opset=opset)
    else:
        unchanged("SimplifyIdentities", before, opset=opset)


@pytest.mark.parametrize(
    "statement",
    [
        "a = Cast(x) {to=1}",
        "a = CastLike(x, x)",
        "a = Reshape(x, same)",
        "a = Transpose(x) {perm=[0, 1]}",
        "a = Slice(x, zero, big, zero)",
        "a = Pad(x, none)",
        "a = Concat(x) {axis=0}",
        "a = Expand(x, same)",
        "a = Tile(x, ones)",
        "a = Sum(x)",
        "a = Max(x)",
        "a = Flatten(x)",
        "a = Where(yes, x, one)",
        "a = Where(no, row, x)",
        "a = Where(none_of_row, x, x)",
        "t = Transpose(x)\n a = Transpose(t)",
        "t = Reshape(x, flat)\n a = Reshape(t, same)",
        "t = Unsqueeze(x, zero)\n a = Squeeze(t, zero)",
        "t = Unsqueeze(x, zero)\n t2 = Unsqueeze(t, zero)\n a = Reshape(t2, same)",
    ],
)
def test_what_changes_nothing(statement: str) -> None:
    head = """
    graph net(x: float32[2, 3]) -> (y) {
      same = const int64[2] [2, 3]
      flat = const int64[1] [6]
      ones = const int64[2] [1, 1]
      none = const int64[4] [0, 0, 0, 0]
      zero = const int64[1] [0]
      big = const int64[1] [99]
      yes = const bool[] true
      no = const bool[2, 1] [false, false]
      none_of_row = const bool[3] [false, false, false]
      one = const float32[] 1
      row = const float32[1, 3] [1, 2, 3]
    """
    after = "graph net(x: float32[2, 3]) -> (y) { y = Relu(x) : float32[2, 3] }"
    check(PASSES, f"{head} {statement}\n y = Relu(a) }}", after)


@pytest.mark.parametrize(
    "statement",
    [
        "a = Cast(x) {to=11}",
        "a = Reshape(x, other)",
        "a = Transpose(x)",
        "a = Slice(x, last, first, axis, back)",
        "a = Pad(x, shift)",
        "a = Concat(x, x) {axis=0}",
        "a = Tile(x, twice)",
        "a = Where(mixed, x, x)",
        "a = Where(yes, one, x)",
        "a = Where(yes, x, deep)",
        "a = Where(many, x, one)",
        "a = Where(empty, x, one)",
        "a = Where(asked, x, one)",
    ],
)
def test_what_changes_something(statement: str) -> None:
    unchanged(
        "SimplifyIdentities",
        f"""
        graph net(x: float32[2, 2], deep: float32[1, 2, 2], asked: bool[]) -> (y) {{
          yes = const bool[] true
          mixed = const bool[2] [true, false]
          many = const bool[3, 1, 1] [true, true, true]
          empty = const bool[0, 1, 1] []
          one = const float32[] 1
          other = const int64[1] [4]
          twice = const int64[2] [2, 1]
          shift = const int64[4] [1, 0, -1, 0]
          first = const int64[1] [-9]
          last = const int64[1] [9]
          axis = const int64[1] [0]
          back = const int64[1] [-1]
          {statement}
          y = Relu(a)
        }}
        """,
    )


def test_two_transposes_or_reshapes_become_one() -> None:
    check(
        ["SimplifyIdentities", "EliminateDead"],
        """
        graph net(x: float32[2, 3, 4]) -> (b, d, e) {
          one = const int64[2] [4, 6]
          two = const int64[2] [-1, 2]
          copy = const int64[2] [0, -1]
          a = Transpose(x) {perm=[1, 0, 2]}
          b = Transpose(a) {perm=[1, 2, 0]}
          c = Reshape(x, one)
          d = Reshape(c, two)
          e = Reshape(c, copy)
        }
        ""","""
        graph net(x: float32[2, 3, 4]) -> (b, d, e) {
          one = const int64[2] [4, 6]
          two = const int64[2] [-1, 2]
          copy = const int64[2] [0, -1]
          b = Transpose(x) {perm=[0, 2, 1]}
          c = Reshape(x, one)
          d = Reshape(x, two)
          e = Reshape(c, copy)
        }
        """,
    )


def test_symbols_count_as_sizes_and_unknown_ones_do_not() -> None:
    unchanged(
        "SimplifyIdentities",
        """
        graph net(x: float32[?, 3], s: int64[2]) -> (y) {
          a = Reshape(x, s) : float32[?, 3]
          y = Relu(a)
        }
        """,
    )
    check(
        "SimplifyIdentities",
        """
        graph net(x: float32[N, 3]) -> (y) {
          s = Shape(x) : int64[2]
          t = Mul(s, s) : int64[2]
          a = Reshape(x, t) : float32[N, 3]
          y = Relu(a)
        }
        """,
        """
        graph net(x: float32[N, 3]) -> (y) {
          s = Shape(x) : int64[2]
          t = Mul(s, s) : int64[2]
          y = Relu(x)
        }
        """,
    )


@pytest.mark.parametrize("op", ["Reshape", "Expand", "Unsqueeze", "Squeeze"])
def test_a_value_that_may_contradict_stated_sizes_is_looked_at_by_its_op(op: str) -> None:
    unchanged(
        "SimplifyIdentities",
        f"""
        graph net(x: float32[N, 3], s: int64[2]) -> (y, z) {{
          a = {op}(x, s) : float32[N, 3]
          y = Relu(a)
          b = {op}(x, s) : float32[3, N]
          z = Flatten(b) : float32[N, 3]
        }}
        """,
    )


def test_symbols_count_as_sizes_where_a_condition_chooses_all_of_a_value() -> None:
    """Two symbols may be two sizes, of which one may be 1."""
    head = """
    graph net(x: float32[N, 3], y: float32[N, 1], z: float32[M, 3], u: float32[?, 3]) -> (a, b, c) {
      yes = const bool[] true
    """
    check(
        "SimplifyIdentities",
        f"{head} v = Where(yes, x, y)\n a = Relu(v)\n w = Where(yes, x, z)\n b = Relu(w)\n t = Where(yes, u, u)\n c = Relu(t) }}",
        f"{head} a = Relu(x)\n w = Where(yes, x, z)\n b = Relu(w)\n t = Where(yes, u, u)\n c = Relu(t) }}",
    )


def test_bodies_are_simplified_too() -> None:
    check(
        PASSES,
        """
        func body(z: float32[2]) -> (r) {
          i = Identity(z)
          r = Neg(i)
        }
        graph net(x: float32[2], c: bool[]) -> (y, k) {
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (a) { a0 = Identity(q)
              a = Relu(a0) },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) },
          } captures(x)
          k = call body(x)
        }
        ""","""
        func body(z: float32[2]) -> (r) {
          r = Neg(z) : float32[2]
        }
        graph net(x: float32[2], c: bool[]) -> (y, k) {
          y = If(c) {
            then_branch=graph t(q: float32[2]) -> (a) { a = Relu(q) : float32[2] },
            else_branch=graph e(q: float32[2]) -> (b) { b = Neg(q) : float32[2] },
          } captures(x) : float32[2]
          k = call body(x) : float32[2]
        }
        """,
    )


def test_what_others_wait_for_stays() -> None:
    unchanged(
        "SimplifyIdentities",
        """
        graph net(x: float32[2]) -> (y) {
          a = Identity(x)
          y = Relu(a) after(a)
        }
        """,
    )
