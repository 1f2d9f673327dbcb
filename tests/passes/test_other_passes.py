"""The passes that are thin: InlineFunctions, SaveJSON, LoadJSON."""

from __future__ import annotations

import pytest

from partita.graph import PassError
from partita.graph.text import print_graph
from partita.passes import apply_pass

from .before_after import check, text


def test_inline_functions() -> None:
    check(
        "InlineFunctions",
        """
        func body(z: float32[2]) -> (r) {
          n = Neg(z)
          r = Relu(n)
        }
        graph net(x: float32[2]) -> (y) {
          k = call body(x)
          y = Abs(k)
        }
        ""","""
        graph net(x: float32[2]) -> (y) {
          n = Neg(x)
          r = Relu(n)
          y = Abs(r)
        }
        """,
    )


def test_json_out_and_in() -> None:
    g = text("graph net(x: float32[2]) -> (out=y) { c = const float32[1] [1.5]\n y = Add(x, c) @cpu }")
    saved = apply_pass(g, "SaveJSON")
    assert saved.nodes == g.nodes and isinstance(saved.attrs["json"], str)
    assert print_graph(apply_pass(saved, "LoadJSON")) == print_graph(g)
    other = text("graph other(x: float32[1]) -> (x) { }")
    assert print_graph(apply_pass(other, "LoadJSON", json=saved.attrs["json"])) == print_graph(g)
    assert "json" not in apply_pass(apply_pass(g, "SaveJSON"), "ConvertOpset", opset=20).attrs, "it tells of the old graph"


def test_there_has_to_be_a_text() -> None:
    with pytest.raises(PassError) as error:
        apply_pass(text("graph net(x: float32[1]) -> (x) { }"), "LoadJSON")
    assert str(error.value) == (
        "pass 'LoadJSON': there is no JSON text to load\n  Give json=..., or set g.attrs[\"json\"] (SaveJSON does)."
    )
