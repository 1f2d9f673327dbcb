"""Several processes at once, and processes that are killed: nothing half-written is ever used."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.store.folder import Damaged
from partita.accelerators.store.store import LOCKS, Store
from tests.accelerators.package.models import ROOT
from tests.graphs.networks import inputs_of, small_net

HEAD = "import json, sys\nimport numpy as np\nargs = json.loads(sys.argv[1])\n"


def start(code, *args):
    command = [sys.executable, "-c", HEAD + code, json.dumps([str(arg) for arg in args])]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


COMPILE = """
import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.graphs.networks import inputs_of, small_net
kind, count = type(accelerator("cpu")), []
real = kind.compile
kind.compile = lambda self, graph, config: count.append(1) or real(self, graph, config)
graph = small_net()
np.save(args[0], pt.compile(graph, "cpu")(inputs_of(graph))[0])
print(len(count))
"""


def test_processes_compile_the_same_model_once(tmp_path):
    try:
        accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))
    running = [start(COMPILE, tmp_path / f"{i}.npy") for i in range(4)]
    result = [process.communicate(timeout=300) for process in running]
    assert sum(int(out) for out, _ in result) == 1, result
    listed = [np.load(tmp_path / f"{i}.npy") for i in range(4)]
    assert all(np.array_equal(listed[0], other) for other in listed)


WRITE = """
from pathlib import Path
from partita.accelerators.store.store import LOCKS, Store
store = Store(Path(args[0]))
print("ready", flush=True)
round = 0
while True:
    round += 1
    for i in range(4):
        key = f"{i:02x}" * 32
        with store.locked(key):
            store.write(key, {"names": [], "round": round}, bytes([i]) * 200_000, [np.full(50_000, i + round % 3)])
"""


def killed_while_writing(tmp_path, kills):
    rounds = random.Random(0)
    for _ in range(kills):
        process = start(WRITE, tmp_path / "here")
        process.stdout.readline()
        time.sleep(rounds.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = Store(tmp_path / "here")
        for name in store.names():
            try:
                loaded = store.read(name)
            except Damaged as error:
                pytest.fail(f"a half-written entry is there: {error}")
            i = int(name[:2], 16)
            assert loaded.code == bytes([i]) * 200_000
            assert loaded.weights[0][0] == i + loaded.meta["round"] % 3


EXPORT = """
import partita as pt
from tests.graphs.networks import small_net
model = pt.compile(small_net(), "reference")
print("ready", flush=True)
while True:
    model.export(args[0])
"""


def killed_while_exporting(tmp_path, kills):
    path, x = tmp_path / "net.partita", inputs_of(small_net())
    pt.compile(small_net(), "reference").export(path)
    rounds = random.Random(1)
    for _ in range(kills):
        process = start(EXPORT, path)
        process.stdout.readline()
        time.sleep(rounds.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert pt.import_model(path)(x)[0].shape == (1, 40)


def killed_while_compiling(tmp_path, kills):
    """At any moment from the start of the process on; afterwards the cache serves or compiles, and the answer is right."""
    graph = small_net()
    wanted = pt.compile(graph, "reference")(inputs_of(graph))[0]
    rounds = random.Random(2)
    for _ in range(kills):
        process = start(COMPILE, tmp_path / "y.npy")
        time.sleep(0.3 + rounds.random() * 3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        np.testing.assert_allclose(pt.compile(graph, "cpu")(inputs_of(graph))[0], wanted, rtol=1e-4)
        clear_sometimes(rounds)


def clear_sometimes(rounds):
    from partita.accelerators.store import clear

    if rounds.random() < 0.5:
        clear()


def test_a_killed_writer_leaves_whole_entries(tmp_path):
    killed_while_writing(tmp_path, 6)


def test_a_killed_export_leaves_a_whole_file(tmp_path):
    killed_while_exporting(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed, kills", [(killed_while_writing, 150), (killed_while_exporting, 100), (killed_while_compiling, 50)]
)
def test_three_hundred_kills(killed, kills, tmp_path):
    killed(tmp_path, kills)


WAIT = """
import partita as pt
from partita.accelerators.store.store import Store
from tests.graphs.networks import small_net
locked = Store.locked
Store.locked = lambda self, key: print("waits", flush=True) or locked(self, key)
pt.compile(small_net(), "cpu", config={"CACHE_DIR": args[0]})
"""


def test_an_interrupt_ends_a_process_that_waits_for_another(tmp_path):
    try:
        accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))
    store = Store(tmp_path / "here")
    with contextlib.ExitStack() as held:
        for i in range(LOCKS):
            held.enter_context(store.locked(f"{i:08x}"))
        process = start(WAIT, tmp_path / "here")
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.3)
        assert process.poll() is None, "it waits"
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=300)[1]
