"""Run the notebooks and keep what they show: python -m tests.refresh_notebooks [NOTEBOOK...] (needs the extra `notebook`)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent


def refresh(path: Path) -> None:
    """Execute in an empty folder; keep outputs, leave out what changes from run to run without being shown."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.output_type != "stream" or output.name == "stdout"]
            for output in cell.outputs:
                shorten(output)
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


def shorten(output: Any) -> None:
    """A picture or table does not need its text form beside it, in a file."""
    data = output.get("data", {})
    if len(data) > 1 and len(data.get("text/plain", "")) > 400:
        data["text/plain"] = data["text/plain"].splitlines()[0]


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for path in [Path(name).resolve() for name in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")):
        refresh(path)
