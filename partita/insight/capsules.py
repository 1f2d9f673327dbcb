"""`capsule`: a subgraph of a model, or the fault of a diagnosis, as a self-contained folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from partita.accelerators import AcceleratorError, CompiledModel, compile
from partita.accelerators.building.units import Unit
from partita.accelerators.interface.inlining import unplaced
from partita.accelerators.interface.keys import Key, callback, natural, texts
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.store.capsules.anonymous import anonymous as made_anonymous
from partita.accelerators.store.capsules.capsule import Capsule, device_class, told_config, write_capsule
from partita.compare import check_tolerance, compare
from partita.graph.errors import PartitaError, did_you_mean
from partita.graph.formatting import first_line
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.insight.diagnosis import Fault
from partita.insight.trusted import Trusted, TrustedWalk, call_arrays


@at_a_device()
def capsule(
    source: Graph | CompiledModel | Fault,
    folder: str | os.PathLike[str],
    subgraph: int | str = 0,
    devices: str | Sequence[str] | None = None,
    inputs: Any = None,
    *,
    against: str | Sequence[str] = "reference",
    config: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    anonymous: bool = False,
    keep: Sequence[str] = (),
    review: Callable[[Sequence[str]], object] | None = None,
    seed: int = 0,
) -> Path:
    """Write one subgraph into a folder, with its inputs, the expected outputs, its plan, all versions, and a script `run.py` that
    runs it again. Nothing else of the model is needed or included.

    `source` is a diagnosis's fault, or else a model: then `subgraph` is the number or the name of one of its subgraphs, and its
    inputs come from a run of the model on the devices `against`.

    With `anonymous`, constants, inputs and tables in attributes are replaced by random ones with the same statistics or range,
    texts by random letters, and names and symbols by numbers. What has to stay is listed before anything is written: `review`
    is called with the lines and may stop it by an exception; without `review` they are logged. `keep` names attributes of
    custom ops whose text stays."""
    check_tolerance(tolerance, "capsule")
    seed = Key(0, natural).read("seed", seed, "capsule")
    keep = Key((), texts).read("keep", keep, "capsule")
    review = Key(None, callback).read("review", review, "capsule")
    target = _path(folder)
    trusted = Trusted(against)
    if isinstance(source, Fault):
        kept = _of_fault(source)
        tolerance = source.tolerance if tolerance is None else tolerance
    else:
        kept = _of_model(source, subgraph, devices, inputs, trusted, config, seed)
    kept = attrs.evolve(kept, tolerance=_tolerance(kept, tolerance))
    if anonymous:
        kept, stays = _anonymous(kept, trusted, seed, keep)
        (review or _log)(stays)
    return write_capsule(kept, target)


def _path(folder: Any) -> Path:
    """The caller's folder as a path."""
    if not isinstance(folder, (str, bytes, os.PathLike)):
        cause = f"a folder is a path, not {type(folder).__name__}"
    elif "\0" in os.fsdecode(folder):
        cause = f"there is a zero in the name {folder!r:.80}"
    else:
        return Path(os.fsdecode(folder))
    raise AcceleratorError(cause, where="capsule, option folder", remedy="Name another folder")


def _of_fault(fault: Fault) -> Capsule:
    reason = f"{fault.kind}: {fault.message}" if fault.message else fault.kind
    plan = {"subgraph": fault.subgraph, "ops": fault.among}
    return Capsule(unplaced(fault.graph), fault.inputs, fault.expected, fault.target, fault.config, reason, plan=plan)


def _of_model(
    source: Graph | CompiledModel, subgraph: int | str, devices: Any, inputs: Any, trusted: Trusted,
    config: Mapping[str, Any] | None, seed: int,
) -> Capsule:
    model = (source if isinstance(source, CompiledModel) else compile(source, devices, config)).wait()
    number = _number(model.units, subgraph)
    unit = model.units[number]
    walk = TrustedWalk(model.graph, [one.body for one in model.units], call_arrays(model.graph, inputs, seed), trusted)
    border = next(border for i, border in enumerate(walk) if i == number)
    ops = [node.name for node in unit.body.nodes if node.is_op]
    why = [model.report.why(name) for name in ops if name in getattr(model.report, "placement", ())]
    plan = {"subgraph": unit.name, "number": number, "ops": len(ops), "why": why}
    return Capsule(unplaced(unit.body), border.given, border.expected, unit.device, unit.config, "asked for", plan=plan)


def _number(units: Sequence[Unit], subgraph: int | str) -> int:
    """Index of the subgraph that is meant."""
    names = [unit.name for unit in units]
    if isinstance(subgraph, int) and 0 <= subgraph < len(units):
        return subgraph
    if subgraph in names:
        return names.index(str(subgraph))
    remedy = did_you_mean(f"{subgraph!s:.80}", names) or f"They are 0 to {len(names) - 1}: {', '.join(names[:8])}"
    raise AcceleratorError(f"there is no subgraph {subgraph!r:.80}", where="capsule, option subgraph", remedy=remedy)


def _tolerance(kept: Capsule, asked: float | None) -> float:
    """The allowed error: the caller's, or else that of the element types."""
    precision = str(kept.config.get("PRECISION") or "f32")
    differences = compare(kept.graph, kept.expected, kept.expected, asked, precision, inner=True)
    return float(max((one.tolerance for one in differences), default=0.0))


def _anonymous(kept: Capsule, trusted: Trusted, seed: int, keep: Sequence[str]) -> tuple[Capsule, list[str]]:
    """The capsule with other weights and inputs and their outputs; and a line for each part of the model that stays in it."""
    hidden = made_anonymous(kept.graph, kept.inputs, seed, keep)
    is_run = len(hidden.inputs) == len(hidden.graph.inputs) and bool(kept.expected)
    try:
        expected = trusted.outputs(hidden.graph, hidden.inputs) if is_run else []
    except PartitaError as error:
        cause, place = f"with other values {trusted.devices} cannot run it: {first_line(error)}", "capsule, option anonymous"
        raise AcceleratorError(cause, where=place, remedy="Write it as it is, or reduce it first") from error
    reason = kept.reason.partition(":")[0]
    changed = attrs.evolve(kept, graph=hidden.graph, inputs=hidden.inputs, expected=expected, reason=reason, plan={})
    kind = device_class(kept.device.accelerator)
    settings = ", ".join(f"{key} = {value!r}" for key, value in told_config(changed).items())
    device = f"the device: {kept.device.label}, {kind.__module__}.{kind.__qualname__}{f' with {settings}' if settings else ''}"
    return changed, ["the ops with their order, their shapes and the integers of their attributes", *hidden.stays, device]


def _log(stays: Sequence[str]) -> None:
    logger("capsules").warning("what stays in the capsule of the model:\n%s", "\n".join(f"  {line}" for line in stays))
