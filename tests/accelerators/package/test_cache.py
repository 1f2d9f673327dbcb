"""The cache: what one process compiled another reads; the oldest entries go; each says why it was made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.store import clear, explain, list_entries
from partita.accelerators.store.folder import chosen_folder, default_folder, keep, read_kept
from partita.accelerators.store.store import Store
from partita.page.collect import collect
from tests.accelerators.package.models import in_new_process, run
from tests.graphs import pages
from tests.graphs.networks import dynamic_net, inputs_of, small_net

ELSEWHERE = """
from partita.accelerators.interface.registry import accelerator
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
    from partita.graph.rewrite import rewrite

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
        (lambda: run(dynamic_net().evolve(name=small_net().name)), "its body differs"),
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


def test_an_entry_is_compared_once_and_read_again_once_it_is_another(compiles, monkeypatch):
    read = []
    meta = Store.meta
    monkeypatch.setattr(Store, "meta", lambda store, name: [read.append(name), meta(store, name)][1])
    for seed in (1, 2, 3, 4):
        run(small_net(seed=seed))
    assert len(read) == len(set(read)) == 3
    (newest,) = {entry.name for entry in default_folder().glob("entries/*")} - set(read)
    read.clear()
    path = default_folder() / "entries" / newest
    path.write_bytes(path.read_bytes() + b"more")
    run(small_net(seed=5))
    run(small_net(seed=6))
    assert len(read) == 2 and newest in read
    assert "its weights differ" in explain().splitlines()[-1]


def test_files_are_looked_at_again_once_much_was_written(tmp_path, monkeypatch):
    trimmed = []
    monkeypatch.setattr(Store, "trim", lambda store, keep: trimmed.append(keep))
    for limit, count in ((100_000, 1), (5000, 8)):
        trimmed.clear()
        store = Store(tmp_path / str(limit), limit)
        for i in range(8):
            store.write(f"{i:064x}", {"names": []}, bytes(40), [])
        assert len(trimmed) == count, "when this process first writes, and after each 256th of the limit"


def test_what_dead_processes_left_goes(tmp_path):
    store = Store(tmp_path / "here")
    old, new = (tmp_path / "here" / "entries" / f".partita-{age}.part" for age in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.write("ab" * 32, {"names": []}, b"code", [])
    assert (old.exists(), new.exists(), store.names()) == (False, False, ["ab" * 32]), "no process is at work on either"


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


@pytest.mark.parametrize("size", [4, "n"])
def test_a_named_folder_that_others_may_write_to_is_one_error(size, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    x = pt.variable("x", "float32", (size,))
    graph = pt.Graph([pt.op("Relu", x, name="y")])
    with pytest.raises(pt.BadConfig, match="others may write to it, and code is loaded from it"):
        pt.compile(graph, "HETERO:cpu,reference", {"cpu": {"CACHE_DIR": str(tmp_path / "open")}})


def test_no_small_file_of_the_cache_is_written_through_a_link(tmp_path):
    own, other = tmp_path / "cache", tmp_path / "other"
    other.write_text("mine")
    keep(own / "auto" / "one", b"a")
    (own / "auto" / "two").symlink_to(other)
    keep(own / "auto" / "two", b"b")
    assert other.read_text() == "mine" and read_kept(own / "auto" / "two") == b"b"
