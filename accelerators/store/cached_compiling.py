"""Compiles through the cache: a subgraph that any process has compiled before is read instead."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators.arrays.sharing import each_read_once, kept_by
from partita.accelerators.errors import AcceleratorError, BadConfig, DeviceMistake
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.compile_story import CompileStory, read_work
from partita.accelerators.process.forking import Guard
from partita.accelerators.store.folder import Damaged, chosen_folder
from partita.accelerators.store.key import EntryKey, Metadata, make_key, read_metadata
from partita.accelerators.store.store import Store, Stored
from partita.graph.graph import Graph
from partita.graph.logs import logger

_log = logger("cache")

COMPARED = 500
"""Maximum number of entries that a missing entry is compared with; this takes some hundredths of a second."""


def compile_cached(
    accelerator: Accelerator,
    graph: Graph,
    config: Mapping[str, Any],
    compile: Callable[[], CompiledSubgraph],
    model: str,
) -> CompiledSubgraph:
    """The result of `compile`, or of an earlier compilation of the same subgraph. `model` is the name of its model, for the list
    of entries.

    If another thread or process is compiling the same subgraph, waits for it."""
    folder = chosen_folder(config.get("CACHE_DIR"))
    if folder is None:
        return _told(compile, "there is no cache")
    if not accelerator.may_cache(graph):
        return _told(compile, f"{accelerator.name!r} keeps nothing in the cache")
    reason = accelerator.why_no_export()
    if reason is not None:
        warnings.warn(f"nothing that {accelerator.name!r} compiles is cached: {reason}", stacklevel=2)
        return _told(compile, reason)
    try:
        store = _store(folder, config)
    except BadConfig:
        raise
    except AcceleratorError as error:
        warnings.warn(f"nothing is cached: {error}", stacklevel=2)
        return _told(compile, f"the cache does not work: {error.cause}")
    with each_read_once():
        return _Caching(accelerator, graph, config, store, model).run(compile)


def check_folder(accelerator: Accelerator, graph: Graph, config: Mapping[str, Any]) -> None:
    """Raises BadConfig, before compilation, if the result cannot be kept in the folder that the configuration names."""
    named = config.get("CACHE_DIR")
    folder = None if named is None else chosen_folder(named)
    if folder is None or not accelerator.may_cache(graph):
        return
    try:
        _store(folder, config)
    except BadConfig:
        if accelerator.why_no_export() is None:
            raise


def _store(folder: Path, config: Mapping[str, Any]) -> Store:
    """The cache in this folder; BadConfig if the configuration names the folder and it is unusable."""
    try:
        return Store(folder)
    except AcceleratorError as error:
        if config.get("CACHE_DIR") is None:
            raise
        raise BadConfig(error.cause, where=error.where, remedy=error.remedy) from error


def _told(compile: Callable[[], CompiledSubgraph], because: str) -> CompiledSubgraph:
    """Compiles, and records the reason and the time."""
    start = time.perf_counter()
    compiled = compile()
    compiled.story = CompileStory(False, because, time.perf_counter() - start, tuple(compiled.work))
    return compiled


class _Caching:
    def __init__(
        self, accelerator: Accelerator, graph: Graph, config: Mapping[str, Any], store: Store, model: str
    ) -> None:
        self.accelerator = accelerator
        self.graph = graph
        self.config = config
        self.store = store
        self.model = model
        self.key = make_key(accelerator, graph, config)
        self.damage: str | None = None

    def run(self, compile: Callable[[], CompiledSubgraph]) -> CompiledSubgraph:
        compiled = self.read_and_log()
        if compiled is not None:
            return compiled
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.store.locked(self.key.digest))
            except AcceleratorError as error:
                self.warn(error)
                return _told(compile, f"the cache does not work: {error.cause}")
            compiled = self.read_and_log()
            if compiled is not None:
                return compiled
            changed, because = self.reason()
            with kept_by(self.store.keep_weight):  # so that its weights are never all in memory
                compiled = _told(compile, because)
            story = compiled.story
            assert story is not None
            if not self.write(compiled, story, changed):
                return compiled
        del compiled  # frees its weights: the entry maps them from disk, and its code is ready to run
        compiled = self.read()
        if compiled is None:
            return _told(compile, f"its entry was gone at once: {self.damage or 'somebody removed it'}")
        compiled.story = story
        return compiled

    def read_and_log(self) -> CompiledSubgraph | None:
        """The entry, if there is one, and a line in the log."""
        compiled = self.read()
        if compiled is not None:
            _log.info("%s: read from the cache of %s", self.graph.name, self.accelerator.name)
        return compiled

    def read(self) -> CompiledSubgraph | None:
        """The entry, ready to run; None if there is no entry, no room to unpack it, or if it is damaged; a damaged entry is
        removed."""
        try:
            stored = self.store.read(self.key.digest)
            return None if stored is None else self.imported(stored)
        except OSError:
            return None
        except DeviceMistake:
            raise
        except (Damaged, AcceleratorError) as error:
            if isinstance(error.__cause__, OSError):
                return None
            self.damage = str(error)
            with contextlib.suppress(OSError):  # an entry that cannot be removed is not used either
                self.store.remove(self.key.digest)
            return None

    def imported(self, stored: Stored) -> CompiledSubgraph:
        more = (stored.weights,) if stored.weights else ()
        meta, names = read_metadata(stored.meta), _op_names(self.graph)
        if meta.key != self.key:
            raise Damaged("it was written for another subgraph: its key is not the one that its name stands for")
        try:
            renamed = dict(zip(meta.names, names, strict=True))
            story = CompileStory(True, meta.because, float(meta.seconds), read_work(stored.meta["work"], renamed))
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise Damaged(f"its metadata cannot be read: {error}") from None
        compiled = self.accelerator.import_(stored.code, self.graph, self.config, *more)
        if list(renamed) != names:
            compiled.rename_nodes(renamed)
        compiled.story = story
        return compiled

    def write(self, compiled: CompiledSubgraph, story: CompileStory, changed: tuple[str, ...]) -> bool:
        """Writes the entry if possible; a failure only causes a warning, since the model runs without the cache."""
        try:
            code, weights = compiled.export(), compiled.export_weights()
        except DeviceMistake:
            raise
        except AcceleratorError as error:
            self.warn(error)
            return False
        names = _op_names(self.graph)
        meta = {
            "key": attrs.asdict(self.key),
            "model": self.model,
            "subgraph": self.graph.name,
            "names": names,
            "ops": [node.op for node in self.graph.nodes if node.is_op],
            "made": time.time(),
            "seconds": story.seconds,
            "changed": changed,
            "because": story.because,
            "work": [attrs.astuple(work) for work in story.kernels],
            "process": os.getpid(),
        }
        try:
            self.store.write(self.key.digest, meta, code, weights)
        except (AcceleratorError, OSError) as error:
            self.warn(error)
            return False
        _log.info("%s: compiled for %s, because %s; kept", self.graph.name, self.accelerator.name, story.because)
        return True

    def warn(self, error: Exception) -> None:
        """Warns that the subgraph is not cached."""
        warnings.warn(f"subgraph {self.graph.name!r} is not cached: {error}", stacklevel=3)

    def reason(self) -> tuple[tuple[str, ...], str]:
        """The reason for its compilation: the parts of the key that differ from the most similar entry of the same model, and a
        text. Only recently used entries are compared."""
        if self.damage is not None:
            return (), f"its entry was damaged: {self.damage}"
        closest: tuple[str, ...] | None = None
        other: EntryKey | None = None
        ops: Counter[str] = Counter()
        for name, version in reversed(self.store.versions()[-COMPARED:]):
            entry = _compared(self.store, name, version)
            if entry is None or entry.key.device != self.key.device or entry.model != self.model:
                continue
            if entry.key.body != self.key.body and entry.subgraph != self.graph.name:
                continue
            differing = self.key.differences(entry.key)
            if differing and (closest is None or len(differing) < len(closest)):
                closest, other, ops = differing, entry.key, Counter(entry.ops)
        if closest is None or other is None:
            return (), "it is the first of its kind"
        own = Counter(str(node.op) for node in self.graph.nodes if node.is_op)
        changes = {"body": f"its body differs{_other_ops(ops, own)}", "weights": "its weights differ"}
        return closest, "; ".join(
            changes.get(part) or _change(part, getattr(other, part), getattr(self.key, part)) for part in closest
        )


_entries: OrderedDict[tuple[Path, str, tuple[int, int]], Metadata | None] = OrderedDict()
"""Recently compared entries, by folder, name and version; None for one that cannot be read."""

_guard = Guard()


def _compared(store: Store, name: str, version: tuple[int, int]) -> Metadata | None:
    """The entry's metadata, which is read once per process."""
    place = (store.folder, name, version)
    with _guard.lock:
        if place in _entries:
            _entries.move_to_end(place)
            return _entries[place]
    try:
        entry = read_metadata(store.meta(name))
    except (Damaged, OSError):
        entry = None
    with _guard.lock:
        _entries[place] = entry
        while len(_entries) > 2 * COMPARED:
            _entries.popitem(last=False)
    return entry


def _other_ops(before: Counter[str], now: Counter[str]) -> str:
    """The differences in op counts, in words."""
    if before == now:
        return " in how its ops are connected, or in their attributes"
    came, went = [", ".join(f"{count} {op}" for op, count in sorted(ops.items())) for ops in (now - before, before - now)]
    return ": " + ", ".join([*([f"{came} more"] if came else []), *([f"{went} fewer"] if went else [])])


def _change(part: str, before: str, now: str) -> str:
    between = {"target": "; ", "options": " ", "versions": ", "}.get(part, "\n")
    old, new = before.split(between), now.split(between)
    if part == "target":
        old, new = _features(old), _features(new)
    changes = [between.join(word for word in words if word not in same) or "nothing" for words, same in ((old, new), (new, old))]
    return f"{part}: {changes[0]} became {changes[1]}"


def _features(words: list[str]) -> list[str]:
    """The parts of the target, with each processor feature separate, so that common ones can be left out."""
    return [
        f"feature {one}" if word.startswith("features ") else one
        for word in words for one in (word.split()[1:] if word.startswith("features ") else [word])
    ]


def _op_names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.is_op]
