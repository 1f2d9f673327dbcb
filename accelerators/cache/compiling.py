"""Compiling through the cache: what was compiled before, in whichever process, is read instead."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from accelerators.cache.damage import Damaged
from accelerators.cache.folder import chosen_folder
from accelerators.cache.key import Key, make_key
from accelerators.cache.store import Store, Stored
from accelerators.errors import AcceleratorError, BadConfig, NotSupported
from accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from graph.graph import Graph


def compile_cached(
    accelerator: Accelerator, graph: Graph, config: Mapping[str, Any], compile: Callable[[], CompiledSubgraph]
) -> CompiledSubgraph:
    """What `compile` returns, or what it returned when the same subgraph was compiled before.

    Whoever compiles a subgraph that another thread or process is just compiling waits for it."""
    folder = chosen_folder(config.get("CACHE_DIR"))
    if folder is None or not accelerator.may_cache(graph):
        return compile()
    try:
        store = Store(folder)
    except AcceleratorError as error:
        if config.get("CACHE_DIR") is not None:
            raise BadConfig(error.cause, where=error.where, remedy=error.remedy) from error
        warnings.warn(f"nothing is cached: {error}", stacklevel=2)
        return compile()
    return _Caching(accelerator, graph, config, store).run(compile)


class _Caching:
    def __init__(self, accelerator: Accelerator, graph: Graph, config: Mapping[str, Any], store: Store) -> None:
        self.accelerator = accelerator
        self.graph = graph
        self.config = config
        self.store = store
        self.key = make_key(accelerator, graph, config)
        self.damage: str | None = None

    def run(self, compile: Callable[[], CompiledSubgraph]) -> CompiledSubgraph:
        made = self.read()
        if made is not None:
            return made
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.store.locked(self.key.digest))
            except AcceleratorError as error:
                self.warn(error)
                return compile()
            made = self.read()
            if made is not None:
                return made
            start = time.perf_counter()
            made = compile()
            if not self.write(made, time.perf_counter() - start):
                return made
        del made  # Its weights go; what is read maps them from disk, and its code needs no more work when it first runs.
        return self.read() or compile()

    def read(self) -> CompiledSubgraph | None:
        """The entry, ready to run; None if there is none, or if it is damaged: then it goes."""
        try:
            found = self.store.read(self.key.digest)
            return None if found is None else self.imported(found)
        except (Damaged, AcceleratorError) as error:
            self.damage = str(error)
            with contextlib.suppress(OSError):  # Where it cannot go, it is not used either.
                self.store.remove(self.key.digest)
            return None

    def imported(self, found: Stored) -> CompiledSubgraph:
        more = (found.weights,) if found.weights else ()
        made = self.accelerator.import_(found.code, self.graph, self.config, *more)
        names = _op_names(self.graph)
        if list(found.meta["names"]) != names:
            made.rename_nodes(dict(zip(found.meta["names"], names)))
        return made

    def write(self, made: CompiledSubgraph, seconds: float) -> bool:
        """Keep it, if that can be: a model that runs is worth more than a cache that works."""
        try:
            code, weights = made.export(), made.export_weights()
        except NotSupported as error:
            self.warn(error)
            return False
        names = _op_names(self.graph)
        changed, because = self.reason()
        meta = {
            "key": attrs.asdict(self.key),
            "subgraph": self.graph.name,
            "names": names,
            "made": time.time(),
            "seconds": seconds,
            "changed": changed,
            "because": because,
            "process": os.getpid(),
        }
        try:
            self.store.write(self.key.digest, meta, code, weights)
        except (AcceleratorError, OSError) as error:
            self.warn(error)
            return False
        return True

    def warn(self, error: Exception) -> None:
        """A cache that does not work stops nobody, and is not silent."""
        warnings.warn(f"subgraph {self.graph.name!r} is not cached: {error}", stacklevel=3)

    def reason(self) -> tuple[tuple[str, ...], str]:
        """Why it had to be compiled: the parts of the key that differ from the entry most like it, and in words."""
        if self.damage is not None:
            return (), f"its entry was damaged: {self.damage}"
        closest: tuple[str, ...] | None = None
        other: Key | None = None
        for name in reversed(self.store.names()):
            try:
                meta = self.store.meta(name)
                key = Key(**meta["key"])
            except (Damaged, OSError, KeyError, TypeError):
                continue
            if key.device != self.key.device or not (key.body == self.key.body or meta["subgraph"] == self.graph.name):
                continue
            differing = self.key.differences(key)
            if differing and (closest is None or len(differing) < len(closest)):
                closest, other = differing, key
        if closest is None or other is None:
            return (), "it is the first of its kind"
        return closest, "; ".join(_change(part, getattr(other, part), getattr(self.key, part)) for part in closest)


def _change(part: str, before: str, now: str) -> str:
    if part in ("body", "weights"):
        return f"its {part} {'differs' if part == 'body' else 'differ'}"
    between = {"target": "; ", "options": " "}.get(part, "\n")
    old, new = before.split(between), now.split(between)
    told = [between.join(word for word in words if word not in same) or "nothing" for words, same in ((old, new), (new, old))]
    return f"{part}: {told[0]} became {told[1]}"


def _op_names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.is_op]
