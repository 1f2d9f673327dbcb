"""Caches and disks as they should not be: full, read-only, somebody else's, in pieces, shared by versions and processes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import partita as pt
from partita.accelerators.store import store
from tests.soak.children import HANG, End, ended, forked, start
from tests.soak.figures import Figures, rounds_for
from tests.soak.nets import Net

PROCESSES = 8
"""The number of processes that use one cache at once."""

ROOT = Path(__file__).parents[2]

NOBODY = 65534
"""A user who owns nothing."""


def attack(seconds: float, seed: int) -> Figures:
    """One fault after the other, each with a cache of its own."""
    figures, chance = Figures(), random.Random(seed)
    kinds = [_disk_is_full, _nobodys_cache, _no_home, _something_in_the_way, _several_versions, _bytes_are_changed]
    for number in rounds_for(seconds, at_least=len(kinds)):
        with tempfile.TemporaryDirectory(prefix="partita-faults-") as name:
            kinds[number % len(kinds)](Path(name), chance, figures)
    return figures


def _note(figures: Figures, end: End, what: str) -> None:
    figures.tried += 1
    if end.wrong:
        figures.failed(end.wrong, f"{what}: status {end.status}: {end.printed[-400:]}")


def _right(net: Net, device: str = "cpu") -> bool:
    """Whether the model's answer is right; a warning that nothing is cached may come with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return net.is_right(pt.compile(net.graph(), device)(net.x)[0])


def _in(folder: Path, action: Callable[[], bool]) -> Callable[[], bool]:
    """The action, done with the cache in this folder."""

    def inside() -> bool:
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "home")):
            return action()

    return inside


FULL = """
import os, sys, warnings
from pathlib import Path
import partita as pt
from tests.soak.nets import Net
warnings.simplefilter("ignore")
disk, net = Path(sys.argv[1]), Net(int(sys.argv[2]))
path = disk / "net.partita"
for folder in ("tmp", "home"):
    (disk / folder).mkdir()
try:
    pt.compile(net.graph(), "reference").export(path)
except pt.AcceleratorError as error:
    assert "No space left on device" in str(error), error
before = path.read_bytes() if path.exists() else None
try:
    model = pt.compile(net.graph(), "cpu")
    assert net.is_right(model(net.x)[0])
    model.export(path)
except pt.AcceleratorError as error:
    assert "No space left on device" in str(error) or "cannot be exported" in str(error) or "cannot link" in str(error), error
    assert (path.read_bytes() if path.exists() else None) == before
try:
    assert not path.exists() or net.is_right(pt.import_model(path)(net.x)[0])
except pt.AcceleratorError as error:
    assert "No space left on device" in str(error), error
assert not [item.name for item in disk.iterdir() if item.name.endswith(".part")]
"""


def _disk_is_full(folder: Path, chance: random.Random, figures: Figures) -> None:
    disk_is_full(folder, chance.randrange(9), chance.choice((16, 32, 64, 100, 200, 400, 1000, 3000)), figures)


def disk_is_full(folder: Path, number: int, kilobytes: int, figures: Figures) -> None:
    """A disk of some kilobytes for exports, the cache and temporary files: each step is right, or one error that leaves the old
    file. (Skipped where this user may mount nothing.)"""
    disk = folder / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {disk} && exec"
    unshared = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None:
        return
    if subprocess.run([*unshared, f"{mount} true"], check=False, capture_output=True).returncode:
        return
    command = [*unshared, f'{mount} "$@"', "sh", sys.executable, "-c", FULL, str(disk), str(number)]
    environment = {**os.environ, "TMPDIR": str(disk / "tmp"), "XDG_CACHE_HOME": str(disk / "home")}
    figures.tried += 1
    what = f"a disk of {kilobytes} kB"
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    except subprocess.TimeoutExpired:
        figures.failed("hangs", what)
        return
    if done.returncode:
        kind = "crashes" if done.returncode < 0 or "Error" not in done.stderr.rpartition("\n  ")[2] else "differences"
        figures.failed(kind, f"{what}: status {done.returncode}: {done.stderr[-500:]}")


def _nobodys_cache(folder: Path, chance: random.Random, figures: Figures) -> None:
    """A cache that can only be read, or that is another user's."""
    net = Net(chance.randrange(9))
    os.chmod(folder, 0o755)
    filled = chance.random() < 0.5
    if filled:
        _note(figures, forked(_in(folder, lambda: _right(net)), folder), "to fill the cache")

    def action() -> bool:
        pt.compile(Net(1, 8).graph(), "cpu", config={"CACHE_DIR": "off"})  # What is installed may be root's alone: import it now.
        if os.getuid() == 0:
            os.setuid(NOBODY)
        else:
            for inner, _, _ in os.walk(folder / "home"):
                os.chmod(inner, 0o500)
        return _right(net)

    _note(figures, forked(_in(folder, action), folder), f"a cache that cannot be written to, {'filled' if filled else 'empty'}")
    for inner, _, _ in os.walk(folder / "home"):
        os.chmod(inner, 0o700)


def _no_home(folder: Path, chance: random.Random, figures: Figures) -> None:
    net = Net(chance.randrange(9))
    (folder / "a file").write_text("")
    homes = [{"HOME": str(folder / "a file" / "below")}, {"HOME": ""}, {"HOME": str(folder / "a file")}]
    home = chance.choice([*homes, {"XDG_CACHE_HOME": "here"}])

    def action() -> bool:
        with mock.patch.dict(os.environ, home):
            if "XDG_CACHE_HOME" not in home:
                del os.environ["XDG_CACHE_HOME"]
            os.chdir(folder)
            return _right(net)

    _note(figures, forked(action, folder), f"no home: {home}")


def _something_in_the_way(folder: Path, chance: random.Random, figures: Figures) -> None:
    """A file where a folder should be, a folder where a file should be, or a link that leads nowhere."""
    net = Net(chance.randrange(9))
    if chance.random() < 0.7:
        _note(figures, forked(_in(folder, lambda: _right(net)), folder), "to fill the cache")
    places = [folder / "home", folder / "home" / "partita", *(folder / "home").rglob("*")]
    position, kind = chance.choice(places), chance.choice(("file", "folder", "link", "pipe"))
    if position.is_dir():
        shutil.rmtree(position)
    else:
        position.unlink(missing_ok=True)
    position.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        position.write_bytes(b"in the way")
    elif kind == "folder":
        (position / "inner").mkdir(parents=True)
    elif kind == "link":
        position.symlink_to(folder / "nothing" / "there")
    else:
        os.mkfifo(position)
    _note(figures, forked(_in(folder, lambda: _right(net)), folder), f"a {kind} in the place of {position.relative_to(folder)}")


def _bytes_are_changed(folder: Path, chance: random.Random, figures: Figures) -> None:
    """Cut some files of the cache short, or change a byte of them."""
    net = Net(chance.randrange(9))
    _note(figures, forked(_in(folder, lambda: _right(net)), folder), "to fill the cache")
    files = [path for path in (folder / "home").rglob("*") if path.is_file() and path.stat().st_size]
    for path in chance.sample(files, chance.randint(1, len(files))):
        data = bytearray(path.read_bytes())
        if chance.random() < 0.5:
            data = data[: chance.randrange(len(data))]
        else:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    _note(figures, forked(_in(folder, lambda: _right(net)), folder), "files of the cache were damaged")


def _several_versions(folder: Path, chance: random.Random, figures: Figures) -> None:
    """Processes of two versions, whose entries have other heads and other keys, on one cache at once."""
    nets = [Net(chance.randrange(3)) for _ in range(PROCESSES)]

    def action(number: int) -> Callable[[], bool]:
        if number % 2:
            return _in(folder, lambda: _right(nets[number]))

        def other_version() -> bool:
            magic = mock.patch.object(store, "MAGIC", b"partita entry 2\n")
            source = mock.patch("partita.accelerators.store.key.source_digest", lambda: "0" * 64 if number % 4 else "as it is")
            with magic, source:
                return _right(nets[number])

        return _in(folder, other_version)

    children = [start(action(number), folder) for number in range(PROCESSES)]
    for child in children:
        _note(figures, ended(child), "eight processes of two versions on one cache")
