"""Random networks of any size a second time, each in a process of its own: from the cache, and from an export."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.types import Array
from tests.accelerators.package.models import in_new_process
from tests.accelerators.package.test_node_cases import How, in_fork
from tests.fuzz.sizes.networks import Network
from tests.fuzz.sizes.subjects import model_of, network_names, newer_names

CHECK = """
from pathlib import Path
from tests.fuzz.test_kept_networks import problems
print(json.dumps(problems(Path(args[0]), args[1])))
"""

WHERE = "HETERO:cpu,reference"

Answer = list[Array] | None
"""The outputs of a call; None if it was refused."""


def network_of(name: str) -> Network:
    """The network of "KIND SEED"."""
    kind, seed = name.split()
    model = model_of(f"network {kind}", int(seed), "as it is")
    assert isinstance(model, Network)
    return model


def answers(compiled: pt.CompiledModel, model: Network) -> list[Answer]:
    """What it returns at each of its sizes."""
    results: list[Answer] = []
    for shapes in model.sizes:
        with np.errstate(all="ignore"):
            try:
                results.append([np.asarray(array) for array in compiled(*model.fitted(shapes))])
            except PartitaError:
                results.append(None)
    return results


def keep(names: Sequence[str], folder: Path) -> None:
    """Compile the networks, and write their answers and exports into the folder, which holds the cache too."""
    for name in names:
        model, own = network_of(name), folder / name
        own.mkdir()
        compiled = pt.compile(model.graph, WHERE, _config(folder))
        for i, answer in enumerate(answers(compiled, model)):
            if answer is not None:
                np.savez(own / f"{i}.npz", *[array.reshape(-1).view(np.uint8) for array in answer])
        compiled.export(own / "model.partita")


def problems(folder: Path, how: How) -> dict[str, str]:
    """What is wrong with each network in the folder, or ""."""
    return {own.name: in_fork(lambda own=own: _problem(own, how)) for own in sorted(folder.iterdir()) if own.name != "cache"}


def _problem(own: Path, how: How) -> str:
    model = network_of(own.name)
    if how == "export":
        compiled = pt.import_model(own / "model.partita")
    else:
        compiled = pt.compile(model.graph, WHERE, _config(own.parent))
        if any(row.device == "cpu" and row.story is not None and not row.story.from_cache for row in compiled.report.subgraphs):
            return "it was compiled again"
    for i, answer in enumerate(answers(compiled, model)):
        path = own / f"{i}.npz"
        if path.exists() != (answer is not None):
            return f"call {i} was {'answered' if path.exists() else 'refused'} when it was compiled"
        if answer is not None:
            with np.load(path) as wanted:
                if [array.tobytes() for array in answer] != [array.tobytes() for array in wanted.values()]:
                    return f"call {i} has other values than when it was compiled"
    return ""


def _config(folder: Path) -> dict[str, dict[str, str]]:
    return {"cpu": {"CACHE_DIR": str(folder / "cache")}}


def check(names: Sequence[str], folder: Path) -> None:
    """From the cache and from exports the networks answer with the same bits, and refuse the same calls."""
    keep(names, folder)
    for how in ("cache", "export"):
        wrong: dict[str, str] = json.loads(in_new_process(CHECK, folder, how, seconds=3000).stdout)
        assert list(wrong) == sorted(names)
        assert not any(wrong.values()), wrong


@pytest.mark.slow
def test_a_few(tmp_path: Path) -> None:
    check(["cached 3", "quantized 2"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7))
def test_many(seed: int, tmp_path: Path) -> None:
    check([f"{name.split()[1]} {seed}" for name in [*network_names(), *newer_names()]], tmp_path)
