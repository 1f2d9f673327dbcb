"""Processes killed at random moments of compiling, exporting, writing the cache, and tuning: what they leave is whole."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import partita as pt
from partita.accelerators.store.folder import Damaged
from partita.accelerators.store.store import Store
from tests.soak.children import forked
from tests.soak.figures import Figures, rounds_for
from tests.soak.nets import Net

Round = Callable[[Path, random.Random, Figures], None]


def attack(seconds: float, seed: int) -> Figures:
    """One kill of each kind after the other."""
    figures, chance = Figures(), random.Random(seed)
    kinds: list[Round] = [_while_compiling, _while_exporting, _while_writing, _while_tuning]
    with tempfile.TemporaryDirectory(prefix="partita-kills-") as name:
        for number in rounds_for(seconds, at_least=len(kinds)):
            kinds[number % len(kinds)](Path(name), chance, figures)
    return figures


def _killed(figures: Figures, folder: Path, action: Callable[[], object], after: float) -> None:
    end = forked(action, folder, kill_after=after)
    figures.kills += end.killed
    if end.wrong:
        figures.failed(end.wrong, f"status {end.status} before it was killed: {end.printed[-300:]}")


def _right(figures: Figures, folder: Path, check: Callable[[], object], what: str) -> None:
    figures.tried += 1
    end = forked(check, folder)
    if end.wrong:
        figures.failed(end.wrong, f"after a kill while {what}: {end.printed[-300:]}")


def _compile(net: Net, folder: Path) -> bool:
    return net.is_right(pt.compile(net.graph(), "cpu", config={"CACHE_DIR": str(folder / "cache")})(net.x)[0])


def _while_compiling(folder: Path, chance: random.Random, figures: Figures) -> None:
    """Kill a process while it imports TVM, compiles, writes or reads the entry; the next one gives the right answer."""
    net = Net(chance.randrange(6), chance.choice((8, 16, 24)))
    _killed(figures, folder, lambda: _compile(net, folder), chance.random() * chance.choice((0.3, 1.0, 3.0)))
    _right(figures, folder, lambda: _compile(net, folder), "compiling")
    if chance.random() < 0.3:
        Store(folder / "cache").clear()


def _while_exporting(folder: Path, chance: random.Random, figures: Figures) -> None:
    """The path holds the old file or the new one."""
    path, net = folder / "net.partita", Net(1)
    if not path.exists():
        pt.compile(net.graph(), "reference").export(path)

    def exports() -> None:
        model = pt.compile(net.graph(), "reference")
        while True:
            model.export(path)

    _killed(figures, folder, exports, 0.02 + chance.random() * 0.15)
    _right(figures, folder, lambda: net.is_right(pt.import_model(path)(net.x)[0]), "exporting")


def _while_writing(folder: Path, chance: random.Random, figures: Figures) -> None:
    """Whether each entry is whole: its code and its weights are of one round."""
    where = folder / "store"

    def writes() -> None:
        store, number = Store(where), 0
        while True:
            number += 1
            for i in range(4):
                key = f"{i:02x}" * 32
                with store.locked(key):
                    store.write(key, {"names": [], "round": number}, bytes([i]) * 200_000, [np.full(50_000, i + number % 3)])

    def whole() -> bool:
        store = Store(where)
        for name in store.names():
            try:
                entry = store.read(name)
            except Damaged as error:
                raise AssertionError(f"a half-written entry is there: {error}") from None
            i = int(name[:2], 16)
            if entry is not None and (entry.code != bytes([i]) * 200_000 or entry.weights[0][0] != i + entry.meta["round"] % 3):
                return False
        return True

    _killed(figures, folder, writes, 0.01 + chance.random() * 0.1)
    _right(figures, folder, whole, "writing the cache")


def _while_tuning(folder: Path, chance: random.Random, figures: Figures) -> None:
    """What was found is read or made anew, and what is compiled by it is right."""
    net = Net(3, 24)
    config = {"CACHE_DIR": str(folder / "tuned")}

    def tunes() -> None:
        model = pt.compile(net.graph(), "cpu", config=config)
        while True:
            pt.tune(model, 1.0, progress=False)

    _killed(figures, folder, tunes, chance.random() * 3)
    _right(figures, folder, lambda: net.is_right(pt.compile(net.graph(), "cpu", config=config)(net.x)[0]), "tuning")
