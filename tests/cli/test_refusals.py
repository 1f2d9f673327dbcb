"""Messages of the command line for arguments that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

USAGE = [
    ("inspect small.onnx --shape x", "argument --shape: 'x' is not a shape: write NAME=1,3,224,224"),
    ("inspect small.onnx --shape =1", "argument --shape: '=1' is not a shape: write NAME=1,3,224,224"),
    ("inspect small.onnx --shape x=1,,3", "argument --shape: 'x=1,,3' has an empty size: write NAME=1,3,224,224"),
    ("partition small.onnx --pin conv1", "argument --pin: 'conv1' is not a rule: write NAMES=DEVICE"),
    ("partition small.onnx --pin conv1=", "argument --pin: 'conv1=' is not a rule: write NAMES=DEVICE"),
    ("partition small.onnx --pin =cpu", "argument --pin: '=cpu' is not a rule: write NAMES=DEVICE"),
    ("partition small.onnx --select ,", "argument --select: the list is empty"),
    ("partition small.onnx --min-size 0", "argument --min-size: 0 is less than 1"),
    ("bench small.onnx --threads 0", "argument --threads: 0 is less than 1"),
    ("passes small.onnx Other", "'Other' is one argument too many"),
    ("explain small.onnx", "the following arguments are required: NODE"),
    ("run small.onnx --nosuch", "there is no option '--nosuch'"),
]

REFUSED = [
    ("inspect small.onnx --shape x=1,3,8,9", "small.onnx, input 'x': dimension 3 is 8 in the model and cannot become 9"),
    ("inspect small.onnx --shape z=1", "small.onnx, input 'z': the model has no such input\n  It has x."),
    ("explain small.onnx w", "graph 'small': 'w' is a constant\n  Ask for a node that reads it."),
    ("passes small.onnx --device cpu,reference",
     "there is no device 'cpu,reference'\n  Several devices are written HETERO:first,second."),
    ("passes small.onnx --device reference",
     "device 'reference' has no passes of its own\n  cpu, cuda and opencl have some; for another, leave --device out."),
    ("diagnose small.onnx --ep CUDA --devices reference",
     "--ep and --devices are both given\n  Write --devices HETERO:onnxruntime.CUDA,..."),
    ("run small.onnx --devices reference --input x=missing.npy",
     "missing.npy: there is no such file\n  Give FILE or NAME=FILE with a .npy, .npz or image file."),
    ("cache explain nosuch --folder .", ".: this is not a cache folder\n  Name one that a CACHE_DIR named."),
    ("run missing.onnx", "missing.onnx: there is no such file\n  Check the path."),
    ("run text.onnx --devices reference", "text.onnx: this is not an ONNX model: it is a text file"),
    ("partition small.onnx --plugin missing.py",
     "missing.py: there is no such file\n  Give the path of a Python file, or FILE.py:NAME."),
    ("partition small.onnx --plugin text.onnx", "text.onnx: this is not a Python file\n  Its name ends with .py."),
    ("partition small.onnx --plugin raises.py:Mine",
     "{folder}/raises.py: Mine() raises ValueError: no\n  A property that is named here takes no arguments."),
]

RAISES = """
import partita as pt


class Mine(pt.SubgraphProperty):
    def __init__(self):
        raise ValueError("no")
"""


@pytest.mark.parametrize(("line", "message"), USAGE)
def test_a_line_that_cannot_be_read(partita: Command, model: str, line: str, message: str) -> None:
    done = partita(line)
    assert (done.status, done.out, done.err) == (2, "", f"error: {message}\n  See partita {line.split()[0]} --help.\n")


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_a_line_that_asks_for_what_is_not_there(partita: Command, model: str, tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "text.onnx").write_text("not a model\n" * 20)
    (tmp_path / "raises.py").write_text(RAISES)
    done = partita(line)
    assert done.status and not done.out
    assert done.err.partition("error: ")[2] == message.replace("{folder}", str(tmp_path)) + "\n"
