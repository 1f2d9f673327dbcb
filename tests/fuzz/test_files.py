"""Files made wrong, for every reader, in a few seconds; `python -m tests.fuzz.files` goes on for as long as one likes."""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.graph.readers.arrays import read_npy, read_npz
from tests.fuzz.files.__main__ import Campaign, guided, main
from tests.fuzz.files.mutations import bytes_changed, json_changed, text_changed
from tests.fuzz.files.readers import FLOATS, READERS, Reader, mutated

FEW = {"cache": 15, "compiled": 12, "run": 40}
"""Readers that compile, and for which the quick test has fewer files."""


@pytest.fixture(scope="module")
def campaign():
    result = Campaign()
    yield result
    result.close()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.thinned(6)
def test_files_made_wrong(name: str, campaign: Campaign) -> None:
    if name == "image":
        pytest.importorskip("PIL")
    before = len(campaign.tally.findings)
    campaign.try_seeds(name, 1000, FEW.get(name, 80))
    assert campaign.tally.findings[before:] == []
    if name != "code":  # Of machine code only what was not changed at all is read, which chance decides.
        assert campaign.tally.read[name] > 0, "some damage does not matter; here nothing was read at all"


def test_a_seed_makes_the_same_file_again() -> None:
    for name in ("text", "plan", "npy"):
        assert mutated(name, 5) == mutated(name, 5) != mutated(name, 6)


def test_changes_change() -> None:
    rng = random.Random(1)
    data = json.dumps({"a": [1, 2, {"b": None}], "c": "word"}).encode()
    for change in (bytes_changed, json_changed, text_changed):
        assert len({change(data, rng) for _ in range(50)}) > 30


FENCE = """
import sys
from pathlib import Path
from partita.graph.errors import ReadError
from tests.fuzz.files.child import Tester
from tests.fuzz.files.readers import READERS, Reader

def bad(folder):
    {body}

READERS["bad"] = Reader(lambda: [{{"f": b"1"}}], lambda files, rng: files, lambda folder: None)
tester = Tester(Path(sys.argv[1]))
tester.tried("bad", {{"f": b"1"}})
READERS["bad"] = Reader(lambda: [{{"f": b"1"}}], lambda files, rng: files, bad)
print(tester.tried("bad", {{"f": b"1"}}))
"""


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("open('/etc/hostname').close()", "it did what it may not: open '/etc/hostname'"),
        ("open(folder / '..' / '..' / 'x', 'w').close()", "it did what it may not: open"),
        ("import subprocess; subprocess.run(['true'])", "it did what it may not: subprocess.Popen"),
        ("import ctypes; ctypes.CDLL('libm.so.6')", "it did what it may not: ctypes.dlopen"),
        ("import os; os.rename('/tmp/none1', '/tmp/none2')", "it did what it may not: os.rename"),
        ("bytearray(600 << 20)", "MemoryError"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise ReadError(' ')", "an error that says nothing"),
        ("raise ReadError('the file is damaged')", "None"),
        ("open(folder / 'f').close()", "None"),
    ],
)
@pytest.mark.thinned(2)
def test_the_fence_sees_what_a_reader_may_not_do(body: str, answer: str, tmp_path: Path) -> None:
    code = FENCE.format(body=body)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout.startswith((f"('{answer}", f'("{answer}', f"({answer}")), done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    "body",
    ["import os; os.remove(r'{victim}')", "import os; os.rename(r'{victim}', r'{victim}2')", "open(r'{victim}', 'w').close()"],
)
def test_the_fence_keeps_what_lies_outside(body: str, tmp_path: Path) -> None:
    """What a reader does wrongly is not done: a fuzzer that only watched has removed a file of its machine."""
    victim, inside, root = tmp_path / "victim", tmp_path / "inside", str(Path(__file__).parents[2])
    inside.mkdir()
    victim.write_bytes(b"precious")
    done = subprocess.run(
        [sys.executable, "-c", FENCE.format(body=body.format(victim=victim)), str(inside)], cwd=root,
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root},
    )
    assert "it did what it may not" in done.stdout, done.stdout + done.stderr[-2000:]
    assert victim.read_bytes() == b"precious"


def test_a_crash_is_told_and_the_next_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child ends at one file (here: by a request that no child understands) and the campaign goes on."""
    result = Campaign(shrinks=False)
    try:
        answer = result._child.ask({"reader": "no such reader", "first": 0, "count": 1}, 60)
        assert answer.end == "crashed" and "KeyError" in answer.printed
        result.try_seeds("text", 0, 5)
        assert result.tally.tried["text"] == 5
    finally:
        result.close()


def test_a_finding_is_cut_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    result = Campaign()
    monkeypatch.setitem(READERS, "cut", Reader(lambda: [{"f": bytes(500) + b"!" + bytes(500)}], lambda files, rng: files, print))
    monkeypatch.setattr(result, "_fails", lambda name, files, kind: b"!" in files["f"])
    result._report("cut", 1, "ValueError: it broke (f.py:1)")
    result.close()
    assert "-- cut, seed 1: ValueError: it broke" in (out := capsys.readouterr().out)
    assert "f, 1 bytes: b'!'" in out


def test_guided_fuzzing_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["files", "--guided", "5"])
    with pytest.raises(SystemExit):
        main()
    assert "--guided needs atheris, which is not installed: pip install 'partita[fuzz]'" in capsys.readouterr().err


def test_guided_fuzzing_reads_files(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("atheris")
    assert guided(["npy"], 2, 1) == 0
    assert re.match(r"npy: \d\d+ files in 2 s, 0 kinds wrong", capsys.readouterr().out)


# -- what these tests found ------------------------------------------------------------------------------


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.zeros((0, 4), "float32"), np.array(True), np.asfortranarray(np.eye(3))]
)
def test_arrays_are_read_as_numpy_reads_them(array: np.ndarray) -> None:
    np.testing.assert_array_equal(read_npy(npy(array), "a"), array)
    ((name, result),) = read_npz(npz(x=array), "a")
    np.testing.assert_array_equal(result, array)
    assert name == "x" and result.dtype == array.dtype and result.flags.writeable


def test_another_byte_order_becomes_this_machines() -> None:
    array = np.arange(5, dtype=">i4")
    result = read_npy(npy(array), "a")
    np.testing.assert_array_equal(result, array)
    assert result.dtype.isnative


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"'shape': (6,), }", b"'shape': (6,),  ", "was never closed|invalid syntax"),
        (b"(6,)", b"(9,)", "takes 72 bytes, and there are 48"),
        (b"(6,)", b"(-6)", "its sizes are -6"),
        (b"<i8", b"|O8", "the array holds object, not numbers"),
        (b"<i8", b"<q9", "the array is damaged"),
        (b"False", b"'no' ", "its order is 'no'"),
        (b"\x93NUMPY", b"\x93NUMPI", "does not begin as NumPy's files do"),
    ],
)
def test_damaged_arrays(old: bytes, new: bytes, message: str) -> None:
    data = npy(np.arange(6))
    assert old in data
    with pytest.raises(pt.PartitaError, match=message):
        read_npy(data.replace(old, new), "a")


def test_numbers_of_a_type_that_onnx_lacks() -> None:
    with pytest.raises(pt.PartitaError, match=f"the array holds {np.dtype(np.longdouble)}: "):
        read_npy(npy(np.arange(6, dtype=np.longdouble)), "a")


def test_an_array_larger_than_its_file_takes_no_memory() -> None:
    data = npy(np.arange(6)).replace(b"(6,), }          ", b"(99999999999,), }")
    with pytest.raises(pt.PartitaError, match="takes 799,999,999,992 bytes, and there are 48"):
        read_npy(data, "a")


def test_damaged_archives() -> None:
    data = bytearray(npz(x=np.arange(5000)))
    data[60:64] = b"\xff\xff\xff\xff"
    with pytest.raises(pt.PartitaError, match="the archive is damaged"):
        list(read_npz(bytes(data), "a"))
    with pytest.raises(pt.PartitaError, match="the archive is damaged"):
        list(read_npz(b"PK\x03\x04" + npz(x=np.arange(3))[60:], "a"))


def test_an_archive_that_unpacks_to_much_more_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        for _ in range(300):
            member.write(bytes(1 << 20))
    with pytest.raises(pt.PartitaError, match=r"its arrays would take 314,572,800 bytes, for a file of \d+,\d+\n.*savez"):
        list(read_npz(file.getvalue(), "a"))


def test_a_plan_with_words_for_numbers_is_damaged() -> None:
    from tests.fuzz.files.readers import planned

    content = json.loads(planned()[1])
    for odd in ("subgraph_1", float("inf"), None):
        content["groups"][0]["index"] = odd
        with pytest.raises(pt.PartitaError, match="the plan is damaged"):
            pt.Plan.from_json(json.dumps(content))
    with pytest.raises(pt.PartitaError, match="this is not JSON"):
        pt.Plan.from_json("[" * 100_000)


def test_an_image_whose_decoder_raises_anything(tmp_path: Path) -> None:
    """Where the pixels begin is a fraction here, for which Pillow raises a TypeError."""
    image = pytest.importorskip("PIL.Image")
    from partita.cli.inputs import read_inputs

    file = io.BytesIO()
    image.fromarray(np.zeros((16, 12), "uint8")).save(file, "tiff")
    data = file.getvalue()
    offsets = b"\x11\x01\x04\x00\x01"
    assert data.count(offsets) == 1
    (tmp_path / "a.tiff").write_bytes(data.replace(offsets, b"\x11\x01\x05\x00\x01"))
    with pytest.raises(pt.PartitaError, match="a.tiff: no image can be read from it: 'IFDRational'"):
        read_inputs([str(tmp_path / "a.tiff")], [("x", FLOATS)], "imagenet")


def test_an_image_that_claims_to_be_as_large_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    from partita.cli.inputs import read_inputs

    def too_large(*arguments: object) -> None:
        raise MemoryError

    image.fromarray(np.zeros((16, 12), "uint8")).save(tmp_path / "a.png")
    monkeypatch.setattr(image.Image, "convert", too_large)
    with pytest.raises(pt.PartitaError, match="no image can be read from it: it wants more memory than there is"):
        read_inputs([str(tmp_path / "a.png")], [("x", FLOATS)], "imagenet")
