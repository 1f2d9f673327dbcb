"""`pt.bench`: measures a model on some devices, side by side with others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators import AcceleratorError, CompiledModel, InputError, import_model
from partita.accelerators.interface.settings import check_config, with_key
from partita.compare import PRECISIONS
from partita.graph.errors import PartitaError
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.readers import load
from partita.graph.types import TensorType
from partita.measuring.batched import batched
from partita.measuring.bench_report import BenchReport, report
from partita.measuring.rounds import Effort, Rival, compiled, contender, measure, named, shared

PACKAGE = ".partita"
"""File extension of `CompiledModel.export`."""


def bench(
    model: Graph | CompiledModel | str | os.PathLike[str],
    devices: str | None = None,
    *,
    vs: Rival | Sequence[Rival] | Mapping[str, Rival] = (),
    config: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    iterations: int | None = None,
    warmup: int = 1,
    seconds: float = 5.0,
    batch: int | None = None,
    threads: int | None = None,
    streams: int = 1,
    precision: str | None = None,
    profile: bool = False,
) -> BenchReport:
    """Measure how fast a model runs on some devices, side by side with others.

    `model` is a graph, a compiled model, or what `load` or `import_model` reads. `vs` are the rivals, by name if it is a
    mapping: devices that run the same graph, compiled models, or functions that get the inputs by name. All take turns.
    Latency is measured for about `seconds`, or in exactly `iterations` runs of each, after `warmup` runs; throughput with
    `streams` concurrent calls. `batch` sets the first size of the inputs. `threads` and `precision` set NUM_THREADS and
    PRECISION of every device that has them; `config` is the first contender's configuration. `inputs` are random by default.
    With `profile` the report includes a profile of the first contender."""
    effort = _checked(Effort(seconds, iterations, warmup, streams))
    if batch is not None:
        _check_count("batch", batch, 1)
    if isinstance(model, (str, os.PathLike)):
        model = import_model(model) if os.fspath(model).endswith(PACKAGE) else load(model)
    if not isinstance(model, (Graph, CompiledModel)):
        raise AcceleratorError(
            f"it measures a graph or a compiled model, not a {type(model).__name__}",
            where="bench",
            remedy="pt.from_torch(module, inputs) makes a graph; other programs take part as functions: vs={'mine': function}",
        )
    if batch is not None and isinstance(model, CompiledModel):
        remedy = "Give the graph, or inputs of the sizes that you want"
        raise AcceleratorError("a compiled model runs with the sizes of its inputs", where="bench, option batch", remedy=remedy)
    subject = model if isinstance(model, CompiledModel) or batch is None else batched(model, batch)
    same = {"NUM_THREADS": threads, "PRECISION": precision}
    _check_precision(precision, [devices, *(rival for rival in named(vs).values() if isinstance(rival, str))])
    own = check_config({} if config is None else config, "bench, option config")
    first = contender(devices, subject, shared(own, devices, same))
    assert first.model is not None
    graph = subject if isinstance(subject, Graph) else subject.graph
    contenders, refused = [first], {}
    for name, rival in named(vs).items():
        try:
            contenders.append(contender(name, rival, {}) if not isinstance(rival, str) else compiled(name, rival, graph, same))
        except PartitaError as error:
            refused[name] = str(error)
    arrays = _inputs(first.model, inputs)
    measure(contenders, arrays, effort, precision or "f32")
    return report(contenders, arrays, effort, refused, profile)


def _checked(effort: Effort) -> Effort:
    if effort.iterations is not None:
        _check_count("iterations", effort.iterations, 1)
    _check_count("streams", effort.streams, 1)
    _check_count("warmup", effort.warmup, 0)
    seconds = effort.seconds
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise AcceleratorError(f"it is a number above zero, not {seconds!r}", where="bench, option seconds")
    return effort


def _check_count(option: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise AcceleratorError(f"it is a whole number from {least} on, not {value!r}", where=f"bench, option {option}")


def _check_precision(precision: str | None, devices: Sequence[str | None]) -> None:
    """Check that the precision is known, and that at least one of the devices offers it."""
    if precision is None:
        return
    where = "bench, option precision"
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise AcceleratorError(f"it is one of {', '.join(PRECISIONS)}, not {precision!r}", where=where)
    if not any(map(offers_precision, devices)):
        remedy = "`partita devices NAME` lists the keys of a device"
        raise AcceleratorError("none of the devices offers a PRECISION", where=where, remedy=remedy)


def offers_precision(devices: str | None) -> bool:
    """True if PRECISION is a key of one of these devices; False if one cannot be used, which is reported when it compiles."""
    try:
        return bool(with_key({}, devices, "PRECISION", "f32"))
    except PartitaError:
        return False


def _inputs(model: CompiledModel, given: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    names = [name for name, _ in model.properties.inputs]
    if isinstance(given, Mapping):
        return dict(given)
    if not (given is None or isinstance(given, Sequence)):
        raise InputError(f"they are a sequence, or a dictionary by name, not {given!r:.80}", where="bench, option inputs")
    if given is None and any(isinstance(kind, TensorType) and not kind.is_static for _, kind in model.properties.inputs):
        warnings.warn("sizes that are not fixed are taken for 1: give inputs, or the first size as batch", stacklevel=3)
    arrays = model.example_inputs() if given is None else list(given)
    if len(arrays) != len(names):
        raise InputError(f"there are {counted(len(names), 'input')}, and {len(arrays)} were given", where="bench, option inputs")
    return dict(zip(names, arrays))
