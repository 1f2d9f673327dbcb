"""The page docs/engine-differences.md, from the engines' tables: python -m tests.accelerators.devices.engine_differences"""

from __future__ import annotations

from pathlib import Path

from partita.accelerators.engines.onnxruntime.quirks import QUIRKS as OF_ONNXRUNTIME
from partita.accelerators.engines.openvino.quirks import QUIRKS as OF_OPENVINO
from partita.accelerators.engines.quirks import NEWEST, Quirk, Quirks

PAGE = Path(__file__).parents[3] / "docs" / "engine-differences.md"

HEAD = """# Where engines differ from ONNX

Partita does not give these nodes to the engine: the next device gets them, and `partita why` shows the reason. A row concerns
only the nodes that its reason describes. onnxruntime 1.31 and OpenVINO 2026.4 were measured, by ONNX's own node tests and by
extreme values.
"""


class Words(str):
    """Words in place of a value."""

    def __repr__(self) -> str:
        return str(self)


def page() -> str:
    """The page's text."""
    parts = [f"## {title}\n\n{table(quirks)}" for title, quirks in (("onnxruntime", OF_ONNXRUNTIME), ("OpenVINO", OF_OPENVINO))]
    return "\n".join([HEAD, *parts])


def table(quirks: Quirks) -> str:
    """The rows of an engine."""
    rows = ["| ops | opsets | reason |", "|---|---|---|"]
    for row in sorted(quirks.rows, key=lambda row: row.ops):
        rows.append(f"| {', '.join(f'`{op}`' for op in row.ops.split())} | {opsets(row)} | {reason(row)} |")
    return "\n".join([*rows, ""])


def opsets(row: Quirk) -> str:
    """The opsets that a row concerns."""
    if row.until == NEWEST:
        return "all" if row.since == 1 else f"from {row.since}"
    return f"{row.since} to {row.until - 1}"


def reason(row: Quirk) -> str:
    """The reason, with words in place of a node's values."""
    names = row.ops.split()
    words = {
        "op": "/".join(names) if len(names) < 4 else f"{names[0]} etc.", "opset": opsets(row), "dtype": "such numbers",
        "reduction": Words("of this kind"), "number": "coefficient", "activation": "an activation",
        "axis": "its axis",
    }
    text = row.why.format(**words)
    return text.replace("openvino", "OpenVINO")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
