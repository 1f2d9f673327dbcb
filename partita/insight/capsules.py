"""`capsule`: a subgraph of a model, or what a diagnosis blames, as a folder that can be mailed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accelerators import AcceleratorError, CompiledModel, compile
from accelerators.building.units import Unit
from accelerators.capsules.anonymous import anonymous as made_anonymous
from accelerators.capsules.anonymous import random_like
from accelerators.capsules.capsule import Capsule, write_capsule
from accelerators.process.ending import at_a_device
from graph.errors import did_you_mean
from graph.graph import Graph
from partita.compare import check_tolerance, compare
from partita.insight.borders import TrustedWalk
from partita.insight.call import call_arrays
from partita.insight.diagnosis import Fault
from partita.insight.trusted import Trusted
from partita.unplacing import unplaced


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
    seed: int = 0,
) -> Path:
    """Write one subgraph into a folder, with its inputs, the outputs that are expected, its plan, all versions, and a script
    `run.py` that runs it again: nothing else of the model is needed, or in it.

    `source` is a diagnosis's fault, or else a model: then `subgraph` is the number or the name of one of its subgraphs, whose
    inputs are what a run of the model on the devices `against` gives it. With `anonymous` weights and inputs are random numbers
    of the same statistics, and names are numbers."""
    check_tolerance(tolerance, "capsule")
    trusted = Trusted(against)
    if isinstance(source, Fault):
        kept = _of_fault(source)
        tolerance = source.tolerance if tolerance is None else tolerance
    else:
        kept = _of_model(source, subgraph, devices, inputs, trusted, config, seed)
    kept = attrs.evolve(kept, tolerance=_tolerance(kept, tolerance))
    return write_capsule(_anonymous(kept, trusted, seed) if anonymous else kept, Path(folder))


def _of_fault(fault: Fault) -> Capsule:
    reason = f"{fault.kind}: {fault.message}" if fault.message else fault.kind
    plan = {"subgraph": fault.subgraph, "ops": fault.among}
    return Capsule(unplaced(fault.graph), fault.inputs, fault.expected, fault.target, fault.config, reason, plan=plan)


def _of_model(
    source: Graph | CompiledModel,
    subgraph: int | str,
    devices: Any,
    inputs: Any,
    trusted: Trusted,
    config: Mapping[str, Any] | None,
    seed: int,
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
    """The position of the subgraph that is meant."""
    names = [unit.name for unit in units]
    if isinstance(subgraph, int) and 0 <= subgraph < len(units):
        return subgraph
    if subgraph in names:
        return names.index(str(subgraph))
    remedy = did_you_mean(str(subgraph), names) or f"They are 0 to {len(names) - 1}: {', '.join(names[:8])}"
    raise AcceleratorError(f"there is no subgraph {subgraph!r}", where="capsule, option subgraph", remedy=remedy)


def _tolerance(kept: Capsule, asked: float | None) -> float:
    """The error that is allowed: what was asked for, or else what the element types allow."""
    precision = str(kept.config.get("PRECISION") or "f32")
    differences = compare(kept.graph, kept.expected, kept.expected, asked, precision, inner=True)
    return max((one.tolerance for one in differences), default=0.0)


def _anonymous(kept: Capsule, trusted: Trusted, seed: int) -> Capsule:
    """The capsule with other weights and inputs, and what these give."""
    random = np.random.default_rng(seed)
    graph, inputs = made_anonymous(kept.graph, seed), [random_like(value, random) for value in kept.inputs]
    reason = kept.reason.partition(":")[0]
    return attrs.evolve(kept, graph=graph, inputs=inputs, expected=trusted.outputs(graph, inputs), reason=reason, plan={})
