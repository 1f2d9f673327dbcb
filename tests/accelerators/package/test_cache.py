"""The cache: what one process compiled another reads; damaged entries are made anew; the oldest go; each says why it was made."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import warnings
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import partita as pt
from accelerators.arrays.layout import aligned_block
from accelerators.arrays.sharing import array_digest, held_once
from accelerators.cache import answers, clear, explain, list_entries, weight_files
from accelerators.cache.damage import Damaged
from accelerators.cache.folder import chosen_folder, default_folder
from accelerators.cache.store import MAGIC, Store
from accelerators.cache.weight_files import read_weights, write_weights
from accelerators.interface.registry import accelerator
from accelerators.process.atomic import PIECE, write_pieces
from accelerators.tvm.tune import findings
from partita.page.collect import collect
from tests.accelerators.package.models import in_new_process
from tests.graphs import pages
from tests.graphs.networks import dynamic_net, inputs_of, small_net


@pytest.fixture
def cpu():
    try:
        return accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def compiles(cpu, monkeypatch):
    """The subgraphs that were really compiled."""
    seen = []
    kind = type(cpu)
    real = kind.compile

    def counted(self, graph, config):
        seen.append(graph.name)
        return real(self, graph, config)

    monkeypatch.setattr(kind, "compile", counted)
    return seen


def run(graph, **config):
    return pt.compile(graph, "cpu", config=config)(inputs_of(graph))[0]


ELSEWHERE = """
from accelerators.interface.registry import accelerator
from tests.graphs.networks import inputs_of, small_net
cpu = accelerator("cpu")
if args[1] == "never":
    type(cpu).compile = None
graph = small_net()
np.save(args[0], pt.compile(graph, "cpu")(inputs_of(graph))[0])
"""


def test_another_process_compiles_and_this_one_reads(tmp_path, compiles, cache_home):
    in_new_process(ELSEWHERE, tmp_path / "y.npy", "really")
    np.testing.assert_array_equal(run(small_net()), np.load(tmp_path / "y.npy"))
    assert compiles == []
    assert [entry.key.device for entry in list_entries()] == ["cpu"]
    in_new_process(ELSEWHERE, tmp_path / "y.npy", "never")
    assert stat.S_IMODE(os.stat(cache_home).st_mode) == 0o700
    assert all(not os.stat(path).st_mode & 0o077 for path in cache_home.rglob("*"))


def test_names_play_no_part_and_profiles_have_the_new_ones(compiles):
    run(small_net())
    other = renamed(small_net())
    model = pt.compile(other, "cpu")
    x = inputs_of(other)
    np.testing.assert_array_equal(model(x)[0], run(small_net()))
    assert len(compiles) == 1
    assert {row.node.rstrip("0123456789") for row in model.profile(x).rows if row.status == "EXECUTED"} <= {"node_"}


def test_a_report_with_a_run_compiles_nothing(tmp_path, compiles):
    """Which ops a kernel holds, and its schedule, is in the cache and in an export; a run is measured by the same code."""
    off = {"CACHE_DIR": "off"}
    graph = pt.apply_pass(pages.small(), "InlineSubgraphs")
    fresh = pt.compile(graph, "cpu", config=off)
    fresh.export(tmp_path / "net.partita")
    pt.compile(graph, "cpu")
    del compiles[:]
    cached, imported = pt.compile(renamed(graph), "cpu"), pt.import_model(tmp_path / "net.partita", config={"cpu": off})
    shown = [shown_kernels(model) for model in (fresh, cached, imported)]
    assert compiles == []
    assert shown[0] and shown[0] == shown[2]
    assert [line.split("(")[0] for line in shown[1]] == [line.split("(")[0] for line in shown[0]]
    assert "node_" in shown[1][0]


def shown_kernels(model):
    """The kernels on a page with a run, each with its schedule and its ops."""
    scene = collect(model, model.profile(inputs_of(model.graph)))
    assert any(item.us > 0 for item in scene.items if item.kind == "call")
    assert any(bar.depth == 1 for bar in scene.bars)
    kernels = {i: item for i, item in enumerate(scene.items) if item.kind == "kernel"}
    ops = {i: [item.name for item in scene.items if item.parent == i] for i in kernels}
    return [f"{item.name} {item.label} {item.details[:1]} ({', '.join(ops[i])})" for i, item in kernels.items()]


def test_a_kernel_that_came_from_the_cache_shows_its_code_when_asked(compiles):
    fresh = pt.compile(small_net(), "cpu", config={"CACHE_DIR": "off"})
    pt.compile(small_net(), "cpu")
    del compiles[:]
    kernels = pt.compile(small_net(), "cpu").kernels()
    assert compiles == [] and len(kernels) > 1
    assert [kernel.text for kernel in kernels] == [kernel.text for kernel in fresh.kernels()]
    assert [str(kernel.body) for kernel in kernels] == [str(kernel.body) for kernel in fresh.kernels()]
    assert len(compiles) == 1


def renamed(graph):
    from graph.rewrite import rewrite

    count = iter(range(100))

    def visit(node, rewriter):
        rewriter.keep(node, rewriter.rebuilt(node, name=f"node_{next(count)}") if node.is_op else node)

    return rewrite(graph, visit)


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda: run(small_net(size=10)), "shapes: (float32[1, 3, 8, 8])"),
        (lambda: run(small_net(seed=5)), "its weights differ"),
        (lambda: run(small_net(), NUM_THREADS=1), "target: threads 2 became threads 1"),
        (lambda: run(dynamic_net()), "its body differs"),
    ],
)
def test_explain_says_what_changed(compiles, change, reason):
    run(small_net(), NUM_THREADS=2) if "threads" in reason else run(small_net())
    change()
    assert len(compiles) == 2
    assert "compiled because it is the first of its kind" in explain()
    assert reason in explain().splitlines()[-1]
    newest = max(list_entries(), key=lambda entry: entry.created)
    assert any(part in reason for part in newest.changed)
    assert explain(name="nothing") == "there are no such entries"


def test_off_means_off_and_clear_empties(compiles, cache_home):
    run(small_net(), CACHE_DIR="off")
    run(small_net(), CACHE_DIR=False)
    assert not cache_home.exists()
    run(small_net())
    assert (clear(), list_entries(), len(compiles)) == (1, [], 3)
    assert (chosen_folder(None), chosen_folder("")) == (default_folder(), None)


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


def test_each_large_array_is_on_disk_once_and_in_memory_once(tmp_path):
    store, big = Store(tmp_path / "here"), np.random.default_rng(0).standard_normal(20_000)
    store.write("ab" * 32, {"names": []}, b"code", [big, np.arange(3), np.ones(5, np.int8)])
    store.write("cd" * 32, {"names": []}, b"other", [np.arange(4), big.copy()])
    assert len(list((tmp_path / "here" / "weights").iterdir())) == 3, "the array, and the small ones of each"
    one, two = store.read("ab" * 32).weights, store.read("cd" * 32).weights
    assert one[0] is two[1] and one[0].ctypes.data % 64 == 0
    for array, wanted in zip((*one, *two), (big, np.arange(3), np.ones(5, np.int8), np.arange(4), big), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_model_survives_a_damaged_entry(compiles, cache_home):
    y = run(small_net())
    (path,) = (cache_home / "entries").iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2
    assert "its entry was damaged" in explain()


def test_what_was_not_used_for_longest_goes(tmp_path):
    store = Store(tmp_path / "here", limit=5000)
    names = [f"{i:02x}" * 32 for i in range(6)]
    for i, name in enumerate(names):
        store.write(name, {"names": []}, bytes(1000), [])
        os.utime(tmp_path / "here" / "entries" / name, (i, i))
        if i >= 1:
            assert store.read(names[0]) is not None
            os.utime(tmp_path / "here" / "entries" / names[0], (i + 0.5, i + 0.5))
    assert sorted(store.names()) == [names[0], *names[3:]]


def test_what_dead_processes_left_goes(tmp_path):
    store = Store(tmp_path / "here")
    old, new = (tmp_path / "here" / "entries" / f".partita-{age}.part" for age in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.write("ab" * 32, {"names": []}, b"code", [])
    assert (old.exists(), new.exists(), store.names()) == (False, True, ["ab" * 32])


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, compiles):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(pt.BadConfig, match="others may write to it, and code is loaded from it"):
        run(small_net(), CACHE_DIR=str(folder))
    default_folder().mkdir(parents=True)
    default_folder().chmod(0o770)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(small_net())
    assert any("nothing is cached" in str(warning.message) for warning in caught)


def test_sizes_of_a_dynamic_model_are_cached_each(compiles):
    graph = dynamic_net()
    model = pt.compile(graph, "cpu", config={"ANY_SIZE": False})
    for n in (1, 2, 1):
        model(inputs_of(graph, n=n))
    again = pt.compile(graph, "cpu", config={"ANY_SIZE": False})
    for n in (2, 1):
        again(inputs_of(graph, n=n))
    assert len(compiles) == 2
    weights = [unit.compiled.assembled.weights for unit in model.units[0].compiled._kept.values()]
    assert weights[0][0] is weights[1][0], "the sizes share their weights"


@pytest.mark.parametrize("part", ["entries", "weights"])
def test_files_that_lost_their_content_are_written_anew(part, compiles, cache_home):
    """As after a power failure: they are there, and empty."""
    y = run(small_net())
    for path in (cache_home / part).iterdir():
        path.write_bytes(b"")
    np.testing.assert_array_equal(run(small_net()), y)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 2, "once more, and not every time"


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


def no_locks(home):
    for i in range(64):
        (home / "locks" / f"{i:02}").unlink(missing_ok=True)
        (home / "locks" / f"{i:02}").mkdir()


def test_a_cache_that_can_only_be_read_is_read(compiles, cache_home, monkeypatch):
    y = run(small_net())
    no_locks(cache_home)

    def refuse(*args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    np.testing.assert_array_equal(run(small_net()), y)
    assert len(compiles) == 1
    with pytest.warns(UserWarning, match=r"'cpu_0' is not cached: .*it cannot be written to: Is a directory"):
        run(small_net(seed=1))
    assert len(compiles) == 2


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


@pytest.mark.parametrize("setting", [5, 1.5, b"x", ["here"]])
def test_what_is_no_folder_is_refused(setting, cpu):
    with pytest.raises(pt.BadConfig, match=r'CACHE_DIR: it is a folder, or "off", not'):
        run(small_net(), CACHE_DIR=setting)
    with pytest.raises(pt.BadConfig, match="it cannot be made: embedded null byte"):
        pt.compile(small_net(), "HETERO:cpu,reference", config={"cpu": {"CACHE_DIR": "a\0b"}})


def test_words_for_folders(monkeypatch, tmp_path):
    assert chosen_folder("on") == chosen_folder(True) == chosen_folder("1") == default_folder()
    assert chosen_folder("off") is chosen_folder("0") is chosen_folder(0) is chosen_folder(False) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chosen_folder("~/kept") == tmp_path / "kept"


def test_a_user_without_a_home_caches_nothing(compiles, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", homeless)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.warns(UserWarning, match="nothing is cached: .*the user has no home folder"):
        run(small_net())
    with pytest.raises(pt.PartitaError, match="the user has no home folder"):
        list_entries()


def homeless():
    raise RuntimeError("Could not determine home directory.")


def test_another_number_of_threads_is_other_code(compiles, monkeypatch):
    """Which may come from the environment, or from the cores that are allowed."""
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    run(small_net())
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    run(small_net())
    assert len(compiles) == 2
    assert explain().endswith("compiled because target: threads 1 became threads 2")


def test_the_same_written_otherwise_is_the_same_code(compiles, monkeypatch):
    monkeypatch.setenv("TVM_NUM_THREADS", "2")
    run(small_net())
    run(small_net(), NUM_THREADS=2)
    run(small_net(), NUM_THREADS="2", PRECISION="f32")
    assert len(compiles) == 1
    fast = accelerator("cpu").meaning(accelerator("cpu").full_config({"PRECISION": "fast"}))["PRECISION"]
    words = {"bfloat16": "bf16", "float32": "f32"}
    run(small_net(), PRECISION="fast")
    run(small_net(), PRECISION=words[fast])
    assert len(compiles) == (1 if fast == "float32" else 2)


def test_an_instruction_that_is_asked_for_is_more_than_the_same_by_default(cpu):
    machine = cpu.machine(cpu.full_config({}))
    asked = {"INTEGERS": machine.instruction("int8").name}
    assert cpu.meaning(cpu.full_config(asked)) != cpu.meaning(cpu.full_config({}))


def test_entries_know_the_model(compiles):
    pt.compile(small_net(), "cpu", name="one")
    pt.compile(small_net(), "cpu", name="another")
    assert [(entry.model, entry.subgraph) for entry in list_entries()] == [("one", "cpu_0")]
    assert "'cpu_0' of 'one'" in explain() and explain(name="one") == explain()


def forge(path: Path, words: bytes, code: bytes) -> None:
    """An entry whose checksums are right."""
    path.write_bytes(MAGIC + hashlib.sha256(words).digest() + len(words).to_bytes(8, "little") + words + code)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [[]]}, {"weights": 5}, {"weights": [["{name}", 0, "float32", [2**70]]]},
        {"weights": [["{name}", 0, "float32", [-1]]]}, {"weights": [["{name}", -4, "float32", [1]]]},
        {"names": 5}, {"names": [[1]]}, {"names": []}, {"work": [[1, 2]]}, {"seconds": "x"}, {"because": ...}, {"work": ...}, ...,
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


@pytest.mark.parametrize("name", ["{outside}", "../outside", "../here/entries", "", ".", 7, ["x"], None])
def test_an_entry_names_no_file_outside_of_the_cache(name: object, tmp_path: Path) -> None:
    """A damaged weight file is removed, so that a name from a forged entry could have removed any file."""
    home, outside = tmp_path / "here", tmp_path / "outside"
    store = Store(home)
    store.write("ab" * 32, {"names": []}, b"code", [np.arange(1000.0)])
    outside.write_bytes(b"precious")
    before = outside.stat().st_mtime_ns
    named = str(outside) if name == "{outside}" else name
    words = json.dumps({"weights": [[named, 0, "uint8", [8]]], "code": hashlib.sha256(b"code").hexdigest()}).encode()
    forge(home / "entries" / ("ab" * 32), words, b"code")
    with pytest.raises(Damaged, match="no name of a file of weights"):
        store.read("ab" * 32)
    assert (outside.read_bytes(), outside.stat().st_mtime_ns) == (b"precious", before)


def test_weights_are_read_anew_only_where_something_can_have_happened_to_them(tmp_path: Path) -> None:
    array = np.arange(weight_files.LARGE, dtype=np.float32)
    rows = weight_files.write_weights(tmp_path, [array])
    (read,) = weight_files.read_weights(tmp_path, rows)
    assert np.array_equal(read, array)
    del read
    file = tmp_path / rows[0][0]
    changed = bytearray(file.read_bytes())
    changed[5] ^= 1
    file.write_bytes(changed)
    with pytest.raises(Damaged, match="the checksum of its weights is wrong"):
        weight_files.read_weights(tmp_path, rows)


def test_a_weight_that_was_just_written_is_not_read_to_check_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file was mapped as it was packed, which noted the time, so that it counted as another when its entry was read."""
    monkeypatch.setattr(weight_files, "used_now", lambda path: os.utime(path, (1, 1)))
    monkeypatch.setattr(weight_files.hashlib, "file_digest", lambda *given: pytest.fail("it is read"))
    array = np.arange(weight_files.LARGE, dtype=np.float32)
    digest = array_digest(array)
    assert weight_files.keep_weight(tmp_path, array, digest) is not None  # and is freed, with the compiled subgraph
    (read,) = weight_files.read_weights(tmp_path, [(digest, 0, "float32", array.shape)])
    assert np.array_equal(read, array)


def test_a_digest_goes_with_its_array() -> None:
    array = held_once(np.arange(64, dtype=np.float32))
    assert array_digest(array) == array_digest(array.copy())
    others = [held_once(np.full(64, i, np.float32)) for i in range(50)]
    wanted = [array_digest(other.copy()) for other in others]
    assert [array_digest(other) for other in others] == wanted
    del others, array
    fresh = [np.full(64, -i, np.float32) for i in range(50)]
    assert [array_digest(one) for one in fresh] == [array_digest(one.copy()) for one in fresh]


def test_weights_lie_in_their_files_as_soon_as_they_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them were in memory, until the last one was packed and the entry was written."""
    written = []
    real = Store.write

    def write(self: Store, key: str, meta: dict[str, object], code: bytes, weights: tuple[np.ndarray, ...]) -> None:
        written.extend((weight.nbytes, (tmp_path / "weights" / array_digest(weight)).exists()) for weight in weights)
        assert all(type(memory_of(weight)) is mmap for weight in weights)
        real(self, key, meta, code, weights)

    monkeypatch.setattr(Store, "write", write)
    matrix = np.random.default_rng(7).standard_normal((256, 256)).astype("f")
    graph = pt.Graph([pt.op("MatMul", pt.variable("x", "float32", (4, 256)), pt.constant(matrix))])
    result = pt.compile(graph, "cpu", {"CACHE_DIR": str(tmp_path)})(np.ones((4, 256), "f"))[0]
    ((size, is_there),) = written
    assert size >= matrix.nbytes and is_there, "columns are added where panels are wider"
    assert np.allclose(result, matrix.sum(0), atol=1e-3)


def memory_of(array: np.ndarray) -> object:
    """What the array is a view of in the end."""
    memory: object = array
    while isinstance(memory, np.ndarray) and memory.base is not None:
        memory = memory.base
    return memory


def test_a_weight_that_cannot_be_written_stays_in_memory(tmp_path: Path) -> None:
    large, small = np.zeros(weight_files.LARGE, np.uint8), np.zeros(weight_files.LARGE - 1, np.uint8)
    kept = weight_files.keep_weight(tmp_path, large, array_digest(large))
    assert kept is not None and np.array_equal(kept, large)
    assert weight_files.keep_weight(tmp_path, small, array_digest(small)) is None
    assert weight_files.keep_weight(tmp_path / "absent", large, array_digest(large)) is None
    (tmp_path / array_digest(large)).write_bytes(bytes(weight_files.LARGE - 1) + b"x")
    del kept
    assert weight_files.keep_weight(tmp_path, large, array_digest(large)) is None, "the file has other numbers"


def test_a_file_that_took_the_place_of_a_weight_is_looked_at(tmp_path: Path) -> None:
    """It counted as written by this process, where the weight was in memory still."""
    array = np.zeros(weight_files.LARGE, np.uint8)
    digest = array_digest(array)
    first = weight_files.keep_weight(tmp_path, array, digest)
    (row,) = write_weights(tmp_path, [array])
    (read,) = read_weights(tmp_path, [row])
    (tmp_path / "other").write_bytes(bytes(weight_files.LARGE - 1) + b"x")
    (tmp_path / "other").replace(tmp_path / digest)
    again = weight_files.keep_weight(tmp_path, array, digest)
    assert again is not None and np.array_equal(again, array)
    del first, read, again
    with pytest.raises(Damaged, match="the checksum of its weights is wrong"):
        read_weights(tmp_path, [row])


def test_what_a_user_writes_to_is_held_by_nobody_else(tmp_path: Path) -> None:
    """An aligned array was taken as it is: another model of equal weights, and the cache, then had what came to stand in it."""
    positions = pt.variable("positions", "int64", (3,))

    def rows(table: np.ndarray) -> list[float]:
        graph = pt.Graph([pt.op("Gather", pt.constant(table), positions)], [positions])
        result: np.ndarray = pt.compile(graph, "cpu", config={"CACHE_DIR": tmp_path})(np.array([0, 5, 7]))[0]
        return result[:, 0].tolist()

    table = aligned_block(512 * 300 * 4, 64).view(np.float32).reshape(512, 300)[:]
    table[...] = np.arange(512, dtype=np.float32)[:, None]
    first = table.copy()
    assert rows(table) == [0, 5, 7]
    table += 1
    assert rows(first) == [0, 5, 7]
    assert rows(table) == [1, 6, 8]
    assert rows(first) == [0, 5, 7]


def test_where_there_is_no_room_to_unpack_an_entry_it_is_compiled_anew(tmp_path: Path) -> None:
    """With files of 20 KB at most, the libraries of kernels find no place: kernels are compiled in memory."""
    code = f"""
import resource, signal, warnings
import numpy as np
import partita as pt
warnings.simplefilter("ignore")
x = pt.variable("x", "float32", (4, 30))
g = pt.Graph([pt.op("Softmax", pt.op("Relu", x))])
config = {{"CACHE_DIR": {str(tmp_path)!r}}}
full = pt.compile(g, "cpu", config=config)(np.ones((4, 30), "f"))[0]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for folder in (config, {{"CACHE_DIR": "off"}}):
    assert np.array_equal(pt.compile(g, "cpu", config=folder)(np.ones((4, 30), "f"))[0], full)
print(len(list(__import__("pathlib").Path({str(tmp_path)!r}).rglob("*"))) > 1)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr[-2000:]


def test_large_files_are_written_in_pieces_and_come_back(tmp_path: Path) -> None:
    numbers = np.arange(PIECE, dtype="float64")
    rows = write_weights(tmp_path, [numbers, numbers[:3]])
    for given, array in zip((numbers, numbers[:3]), read_weights(tmp_path, rows), strict=True):
        np.testing.assert_array_equal(array, given)
    sizes: list[int] = []
    write_pieces(SimpleNamespace(write=lambda data: sizes.append(len(data))), bytes(2 * PIECE + 5))  # type: ignore[arg-type]
    assert sizes == [PIECE, PIECE, 5]
