"""Where the time of a compilation goes: python -m benchmarks.stages MODEL BATCH, which `benchmarks.compiling --where` starts.

The functions of each stage are watched. A stage's seconds are those of the processor in all threads, without the stages that it
calls and without other processes; the linker is one, and has a row of its own. `twice` counts kernels that were generated more
than once."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

REST, OTHERS = "the rest", "other processes"
"""The rows that belong to no function."""


class Stages:
    """Watches functions, and adds up what each took."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._inside = threading.local()
        self._lock = threading.Lock()

    def watched(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts for the stage."""

        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            outer = getattr(self._inside, "nested", 0.0)
            self._inside.nested = 0.0
            start = time.thread_time()
            try:
                return function(*args, **named)
            finally:
                taken = time.thread_time() - start
                with self._lock:
                    self.seconds[stage] += taken - self._inside.nested
                    self.calls[stage] += 1
                self._inside.nested = outer + taken

        return timed

    def watch(self, stage: str, function: Callable[..., Any]) -> None:
        """Put the watched function wherever a module has the function."""
        replacement = self.watched(stage, function)
        for module in list(sys.modules.values()):
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, replacement)

    def watch_method(self, stage: str, owner: type, name: str) -> None:
        """Put the watched method into its class."""
        setattr(owner, name, self.watched(stage, vars(owner)[name]))


def main() -> None:
    """Print the stages of one cold compilation as JSON."""
    name, batch = sys.argv[1:]
    start = time.process_time()
    import partita as pt
    from benchmarks.models import model
    from partita.accelerators.placement import support_table
    from partita.accelerators.tvm.code import building, linking
    from partita.accelerators.tvm.compiled import assembling
    from partita.accelerators.tvm.device import TvmAccelerator
    from partita.accelerators.tvm.lower import lowering
    from partita.passes import infer

    imports = time.process_time() - start
    path, inputs = model(name, int(batch)).path, model(name, int(batch)).inputs()
    stages, generated = Stages(), Counter[str]()
    generate = building.generated

    def counting(batch: Any, machine: Any) -> Any:
        generated.update(symbol for lowered in batch for symbol in lowered.symbols.values())
        return generate(batch, machine)

    stages.watch("types", infer.infer)
    stages.watch("asking the device", support_table.ask)
    stages.watch_method("preparing", TvmAccelerator, "transform")
    stages.watch_method("laying out and choosing kernels", TvmAccelerator, "fused")
    stages.watch("writing kernels", lowering.lower)
    building.generated = counting
    stages.watch("machine code", counting)
    stages.watch("putting together", assembling.assemble)
    stages.watch("linking", linking.link)
    with tempfile.TemporaryDirectory(prefix="partita-bench-") as folder:
        began, clock = os.times(), time.perf_counter()
        load = stages.watched("the file", pt.load)
        compiled = pt.compile(load(path), "cpu", {"CACHE_DIR": str(Path(folder) / "cache")})
        wall, ended = time.perf_counter() - clock, os.times()
        stages.watched("the first call", compiled)(inputs)
    total = ended.user + ended.system - began.user - began.system
    rows = dict(sorted(stages.seconds.items(), key=lambda row: -row[1]))
    rows[REST] = total - sum(rows.values()) + rows["the first call"]
    rows[OTHERS] = ended.children_user + ended.children_system - began.children_user - began.children_system
    twice = sum(count - 1 for count in generated.values())
    said = {"imports": imports, **rows}
    print(json.dumps({"stages": said, "wall": wall, "kernels": len(generated), "twice": twice}))


if __name__ == "__main__":
    main()
