"""What TVM's importer cannot take is an error of one line, and nothing on the screen."""

from __future__ import annotations

import gc

import pytest

import partita as pt
from accelerators.errors import CompileError
from accelerators.tvm.importing import import_body

pytest.importorskip("tvm")


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (("TopK", pt.variable("x", "float32", (4,)), pt.variable("k", "int64", (1,))), "ValueError: TopK k must be a constant"),
        (("Det", pt.variable("x", "float32", (2, 3, 3))), "OpNotImplemented: .*Det"),
    ],
    ids=["in the midst", "before it begins"],
)
def test_a_refusal(op: tuple[str, pt.Node], cause: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match=f"TVM's importer refuses it: {cause}"):
        import_body(pt.Graph([pt.op(*op)]))
    gc.collect()
    assert capfd.readouterr() == ("", "")
