"""The rows of the reader's tables: each op's inputs, labels, parameters and ONNX ops.

`python -m tests.mxnet.kept_rows` writes the file that `test_mxnet_op_names.py` compares with anew."""

from __future__ import annotations

from pathlib import Path

from partita.graph.microsoft.table import MEANINGS
from partita.graph.readers.mxnet.ops.table import _table

KEPT = Path(__file__).with_name("kept_rows.txt")


def lines() -> list[str]:
    """One line for each op of MXNet, then for each of onnxruntime's own."""
    listed = [
        f"{op}: {row.least} to {row.most} inputs, labels {sorted(row.labels)}, {' '.join(sorted(row.params))}"
        f" -> {' '.join(row.onnx)}"
        for op, row in sorted(_table.items())
    ]
    own = (f"com.microsoft.{op}: {row.since}, {' '.join(sorted(row.attributes))}" for op, row in sorted(MEANINGS.items()))
    return [*listed, *own]


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for line in lines()), "utf-8")
