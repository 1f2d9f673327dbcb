"""Entries of the cache that are damaged, forged or something else are made anew, and nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.store import answers, clear, explain, list_entries
from partita.accelerators.store.folder import Damaged
from partita.accelerators.store.store import MAGIC, Store
from partita.accelerators.tvm.tune import findings
from partita.cli import exits
from partita.cli.main import main
from tests.accelerators.package.models import run
from tests.graphs.networks import small_net


@pytest.mark.parametrize("part", ["entries", "weights"])
@pytest.mark.parametrize("at", [0, 20, 60, -1, None])
def test_damaged_entries_are_made_anew(part, at, tmp_path):
    store, weights = Store(tmp_path / "here"), [np.arange(1000.0)]
    store.write("ab" * 32, {"names": []}, b"code", weights)
    (path,) = (tmp_path / "here" / part).iterdir()
    data = bytearray(path.read_bytes())
    if at is None:
        data = data[:-1]
    else:
        data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        store.read("ab" * 32)
    store.remove("ab" * 32)
    store.write("ab" * 32, {"names": []}, b"code", weights)
    loaded = store.read("ab" * 32)
    assert loaded.code == b"code"
    np.testing.assert_array_equal(loaded.weights[0], weights[0])


def test_a_model_survives_a_damaged_entry(compiles, cache_home):
    y = run(small_net())
    (path,) = (cache_home / "entries").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2
    assert "its entry was damaged" in explain()


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_files_that_lost_their_content_are_written_anew(part, compiles, cache_home):
    """As after a power failure: they are there, and empty."""
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.write_bytes(b"")
    np.testing.assert_array_equal(run(small_net()), y)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2, "once more, and not every time"


def test_an_entry_that_became_longer_is_not_read(compiles, cache_home):
    """Whatever is behind it might not fit into memory."""
    y = run(small_net())
    (path,) = (cache_home / "entries").iterdir()
    os.truncate(path, 1 << 40)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2 and path.stat().st_size < 1 << 20


@pytest.fixture
def limited():
    """What waits for ever is an error after minutes."""

    def end(*args):
        raise RuntimeError("it waits for ever")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(part, limited, compiles, cache_home):
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.unlink()
        os.mkfifo(path)
    np.testing.assert_array_equal(run(small_net()), y)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(list_entries()) == 1
    assert len(compiles) == 2, "once more, and not every time"


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_a_folder_in_the_place_of_a_file_is_left_alone(part, compiles, cache_home):
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.unlink()
        path.mkdir()
        (path / "precious").write_text("mine")
    np.testing.assert_array_equal(run(small_net()), y)
    Store(cache_home, limit=1).trim()
    clear()
    left = [path for path in cache_home.rglob("*") if path.is_file() and path.parent.name != "locks"]
    assert list_entries() == [] and left and {path.read_text() for path in left} == {"mine"}


@pytest.mark.parametrize("reader", [answers, findings])
def test_what_was_learnt_is_not_waited_for_where_a_pipe_is(reader, limited, tmp_path):
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "folder" / "file")
    assert reader._read(tmp_path / "folder" / "file") == {}


def test_why_an_entry_was_made_is_found_without_reading_code(tmp_path):
    store = Store(tmp_path / "here")
    store.write("ab" * 32, {"names": []}, b"code", [])
    path = tmp_path / "here" / "entries" / ("ab" * 32)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert store.meta("ab" * 32)["names"] == []
    with pytest.raises(Damaged, match="the checksum of its code is wrong"):
        store.read("ab" * 32)
    path.write_bytes(path.read_bytes()[:48] + b"\xff" * 8 + path.read_bytes()[56:])
    with pytest.raises(Damaged, match="its checksum is wrong"):
        store.meta("ab" * 32)


def test_an_entry_that_says_something_else_stops_nobody(compiles, cache_home):
    run(small_net())
    Store(cache_home).write("ab" * 32, {"key": {"device": "cpu"}, "subgraph": "cpu_0", "names": []}, b"", [])
    Store(cache_home).write("cd" * 32, {}, b"", [])
    run(small_net(seed=1))
    assert len(compiles) == len(list_entries()) == 2


def forge(path: Path, words: bytes, code: bytes) -> None:
    """An entry whose checksums are right."""
    path.write_bytes(MAGIC + hashlib.sha256(words).digest() + len(words).to_bytes(8, "little") + words + code)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [[]]}, {"weights": 5}, {"weights": [["{name}", 0, "float32", [2**70]]]},
        {"weights": [["{name}", 0, "float32", [-1]]]}, {"weights": [["{name}", -4, "float32", [1]]]},
        {"names": 5}, {"names": [[1]]}, {"names": []}, {"work": [[1, 2]]}, {"work": [["k", [], 10**400, False]]},
        {"seconds": "x"}, {"because": ...}, {"work": ...}, ...,
    ],
    ids=str,
)
def test_a_forged_entry_is_made_anew(change, compiles, cache_home):
    y = run(small_net())
    (path,), (weights, *_) = (cache_home / "entries").iterdir(), (cache_home / "weights").iterdir()
    data = path.read_bytes()
    size = len(MAGIC) + 40 + int.from_bytes(data[len(MAGIC) + 32 :][:8], "little")
    words = b"[" * 200000
    if change is not ...:
        meta = json.loads(data[len(MAGIC) + 40 : size]) | change
        words = json.dumps({key: value for key, value in meta.items() if value is not ...}).encode()
    forge(path, words.replace(b"{name}", weights.name.encode()), data[size:])
    np.testing.assert_array_equal(run(small_net()), y)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2, "once more, and not every time"


NEIGHBOURS: list[bytes | dict[str, object]] = [
    b"{nope", b"\xff\xfe", b'{"a": ' + b"9" * 6000 + b"}", b"[" * 200_000,
    {"ops": [[1], {}]}, {"model": [1]}, {"subgraph": None}, {"names": 5}, {"seconds": "x"}, {"made": "x"}, {"made": 10**400},
    {"because": {}}, {"changed": [[{}]]}, {"key": {"device": None}}, {"key": {"options": [1], "target": None}}, {"key": 5},
]


@pytest.mark.parametrize("change", NEIGHBOURS, ids=lambda change: f"{change!r:.30}")
def test_a_badly_formed_neighbour_stops_nobody(change, compiles, cache_home):
    """Some kept `cpu` from compiling new models, and ended `partita cache ls` with 70."""
    pt.compile(one_op("Neg"), "cpu")
    (path,) = (cache_home / "entries").iterdir()
    words = change
    if isinstance(change, dict):
        meta = dict(Store(cache_home).meta(path.name))
        if isinstance(change.get("key"), dict):
            change = {"key": meta["key"] | change["key"]}
        words = json.dumps(meta | change).encode()
    forge(path, words, b"")
    assert list_entries() == []
    assert "no such entries" in explain()
    assert main(["cache", "ls"]) == exits.OK
    x = np.float32([-1, 2, -3, 4])
    np.testing.assert_array_equal(pt.compile(one_op("Relu"), "cpu")(x)[0], [0, 2, 0, 4])
    np.testing.assert_array_equal(pt.compile(one_op("Neg"), "cpu")(x)[0], -x)
    assert len(compiles) == 3 and len(list_entries()) == 2


@pytest.mark.parametrize("name", ["{outside}", "../outside", "../here/entries", "", ".", 7, ["x"], None])
def test_an_entry_names_no_file_outside_of_the_cache(name: object, tmp_path: Path) -> None:
    """A damaged weight file is removed, so that a name from a forged entry could have removed any file."""
    home, outside = tmp_path / "here", tmp_path / "outside"
    store = Store(home)
    store.write("ab" * 32, {"names": []}, b"code", [np.arange(1000.0)])
    outside.write_bytes(b"precious")
    before = outside.stat().st_mtime_ns
    named = str(outside) if name == "{outside}" else name
    words = json.dumps({"weights": [[named, 0, "uint8", [8]]], "code": hashlib.sha256(b"code").hexdigest(), "size": 4}).encode()
    forge(home / "entries" / ("ab" * 32), words, b"code")
    with pytest.raises(Damaged, match="not a name of a file of weights"):
        store.read("ab" * 32)
    assert (outside.read_bytes(), outside.stat().st_mtime_ns) == (b"precious", before)


def one_op(op):
    x = pt.variable("x", "float32", (4,))
    return pt.Graph([pt.op(op, x, name="y")], name=op)


def test_an_entry_under_another_key_is_refused(compiles, cache_home):
    x = np.float32([-1, 2, -3, 4])
    pt.compile(one_op("Neg"), "cpu")
    (neg,) = (cache_home / "entries").iterdir()
    kept = neg.read_bytes()
    neg.unlink()
    pt.compile(one_op("Relu"), "cpu")
    (relu,) = (cache_home / "entries").iterdir()
    relu.write_bytes(kept)
    np.testing.assert_array_equal(pt.compile(one_op("Relu"), "cpu")(x)[0], [0, 2, 0, 4])
    assert len(compiles) == 3
    assert "it was written for another subgraph" in explain()


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_a_link_in_the_place_of_a_file_is_refused(part, compiles, cache_home, tmp_path):
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2
    assert not any(path.is_symlink() for path in (cache_home / part).iterdir())


@pytest.mark.parametrize("part", ["entries", "weights", "locks"])
def test_a_link_in_the_place_of_a_folder_is_refused(part, cpu, cache_home, tmp_path):
    """Old files in the folder that it leads to were removed as those of the cache."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "precious").write_text("mine")
    cache_home.mkdir(parents=True, mode=0o700)
    (cache_home / part).symlink_to(outside)
    x = np.float32([-1, 2, -3, 4])
    with pytest.warns(UserWarning, match=f"nothing is cached: cache folder '{cache_home / part}': it is a link"):
        np.testing.assert_array_equal(pt.compile(one_op("Neg"), "cpu", {"CACHE_DIR": None})(x)[0], -x)
    with pytest.raises(pt.BadConfig, match="it is a link"):
        pt.compile(one_op("Neg"), "cpu", {"CACHE_DIR": str(cache_home)})
    assert main(["cache", "clear"]) == exits.NO
    assert [path.name for path in outside.iterdir()] == ["precious"]


@pytest.mark.parametrize("reader", [answers, findings])
def test_a_link_in_the_place_of_what_was_learnt_is_not_followed(reader, cpu, cache_home, tmp_path):
    pt.compile(one_op("Neg"), "cpu")
    words = json.dumps({"kernels": {"good": GOOD}, "Neg": True}).encode()
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "outside" / "file").write_bytes(
        words if reader is findings else hashlib.sha256(words).hexdigest().encode() + words
    )
    (cache_home / reader.FOLDER).rename(tmp_path / "before") if (cache_home / reader.FOLDER).exists() else None
    assert reader._read(tmp_path / "outside" / "file")
    (cache_home / reader.FOLDER).symlink_to(tmp_path / "outside")
    assert reader._read(cache_home / reader.FOLDER / "file") == {}
    clear()
    assert (tmp_path / "outside" / "file").exists()


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_a_file_that_others_may_write_to_is_refused(part, compiles, cache_home):
    """Whoever may rename the cache's folder puts another in its place once it was looked at: the files in it are his."""
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.chmod(0o666)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2
    assert not any(path.stat().st_mode & 0o022 for path in (cache_home / part).iterdir())


def test_a_lock_is_no_link(tmp_path):
    """Who holds a lock writes into its file."""
    store, precious = Store(tmp_path / "here"), tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "here" / "locks" / "00").symlink_to(precious)
    with pytest.raises(pt.PartitaError, match="it cannot be written to"), store.locked("00" * 32):
        pass
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("words", [b"[1]", b"7", b"[" * 200_000, b"null", b'{"kernels": [1]}', b'{"kernels": {"a": 7}}'])
def test_findings_that_are_no_table_are_none(words, tmp_path):
    (tmp_path / "folder").mkdir(mode=0o700)
    path = tmp_path / "folder" / "file"
    path.write_bytes(hashlib.sha256(words).hexdigest().encode() + words)
    assert answers._read(path) == {}
    path.write_bytes(words)
    assert findings._read(path) == {}


GOOD = {"choices": {"tile": "rows"}, "seconds": 1, "before": 2.0, "tried": 3}


@pytest.mark.parametrize(
    "change",
    [
        {"choices": 5}, {"choices": [1]}, {"choices": "ab"}, {"choices": None}, {"choices": {"a": [1]}}, {"seconds": "x"},
        {"seconds": float("nan")}, {"before": 10**400}, {"before": None}, {"tried": []}, {"tried": True},
    ],
    ids=str,
)
def test_a_finding_of_another_form_is_passed_over(change, tmp_path):
    """Choices that were not a table kept `cpu` from compiling."""
    path = tmp_path / "tuned"
    path.write_text(json.dumps({"kernels": {"bad": GOOD | change, "good": GOOD}}))
    assert findings._read(path) == {"good": findings.Finding({"tile": "rows"}, 1, 2.0, 3)}


def test_findings_are_no_link(tmp_path):
    (tmp_path / "elsewhere").write_text(json.dumps({"kernels": {"good": GOOD}}))
    (tmp_path / "tuned").symlink_to(tmp_path / "elsewhere")
    assert findings._read(tmp_path / "tuned") == {}
    assert findings._read(tmp_path / "elsewhere") != {}


def test_the_reason_compares_with_entries_of_the_same_model_alone(compiles, cache_home):
    pt.compile(one_op("Neg"), "cpu")
    model = pt.compile(one_op("Relu"), "cpu")
    assert [row.story.because for row in model.report.subgraphs] == ["it is the first of its kind"]
