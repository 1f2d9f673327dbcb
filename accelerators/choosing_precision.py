"""`choose_precision`: which ops of a model may run in a lower precision, by measuring the error and the gain of each.

A single model is compiled in which each op's result can be replaced from outside. It yields the values for calibration, and then
the error if one op alone is rounded. The chosen plan is checked against the tolerance by running the resulting model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.choosing.op_costs import Measuring
from partita.accelerators.choosing.options import UNITS, batches_of, check_options, locked_of
from partita.accelerators.choosing.target import Target
from partita.accelerators.choosing.whole_models import fastest
from partita.accelerators.choosing.within_tolerance import Option, choose
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.lowered_ops import KEPT, with_channel_scales
from partita.accelerators.precision.precision_plan import PrecisionPlan, PrecisionRow
from partita.accelerators.process.exit_barrier import at_a_device
from partita.graph.formatting import counted
from partita.graph.graph import Graph, require_graph
from partita.partition.fingerprint import fingerprint
from partita.passes.infer import infer

ENOUGH = 30
"""Number of inputs from which on no warning says that a new one may behave differently."""

MOST = 24
"""Default limit on the number of whole models that are compiled and measured."""


@at_a_device()
def choose_precision(
    graph: Graph,
    inputs: Any,
    tolerance: float = 1e-2,
    device: str | Sequence[str] = "cpu",
    config: Mapping[str, Any] | None = None,
    *,
    precisions: Sequence[str] = ("int8",),
    calibration: str = "minmax",
    win: str = "time",
    lock: Mapping[str, str] | None = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    most: int = MOST,
) -> PrecisionPlan:
    """The plan that lowers the precision of as many ops as gain from it, while the output stays within the tolerance.

    `inputs` are the arrays of one call, or a list of such: arrays, tuples or dictionaries by name. The error is the largest
    |a - b| over the largest |b| of an output, against float32 on the same device; it is measured with the whole plan applied.
    Every second input sets the ranges of integers; the others are held out, so that the error applies to new inputs too. It has
    to stay below the tolerance by a factor of 1 + 1 / sqrt(held-out inputs); with fewer than 30 inputs a warning says so.
    `win` is "time" or "memory" (bytes of weights). `lock` fixes the precision of ops, by names or patterns of names. If several
    devices are given and `win` is "time", each op's device is chosen too, among those that run it and that `pin` and `forbid` (as
    for `compile`) allow. `calibration` is minmax, percentile or entropy; at most `most` whole models are measured."""
    require_graph(graph)
    check_options(tolerance, precisions, calibration, win, most)
    tolerance, most = float(tolerance), int(most)
    batches = batches_of(graph, inputs)
    margin = 1 + 1 / math.sqrt(max(1, len(batches) // 2))
    allowed = tolerance / margin
    if len(batches) < ENOUGH:
        few = f"choose_precision is given {counted(len(batches), 'input')}"
        remedy = f"give {ENOUGH} or more that are typical"
        warnings.warn(f"{few}: answers to others may be off by more than {tolerance:g}; {remedy}", stacklevel=3)
    typed = infer(with_channel_scales(graph), {name: array.shape for name, array in batches[0].items()}, strict=False)
    locked = locked_of(typed, lock or {})
    measuring = Measuring(typed, batches, Target(device, config), calibration, win, pin, forbid)
    ops, errors = [node.name for node in measuring.ops], measuring.errors((*precisions, *locked.values()))
    gains = measuring.gains(precisions, locked)
    options = [
        Option(name, precision, errors[name, precision], gains[name, precision])
        for name in ops for precision in precisions if name not in locked and (name, precision) in errors
    ]
    chosen, reasons, error = choose(measuring, options, locked, allowed, most)
    devices = None
    if win == "time":
        best = fastest(measuring, chosen, locked, allowed, error)
        if chosen != best.precisions:
            left = [name for name in ops if name not in locked]
            reasons |= dict.fromkeys(left, "the model as a whole is not faster with what could be lowered")
        chosen, error, devices = best.precisions, best.error, best.devices
    rows = {
        node.name: PrecisionRow(
            node.name, str(node.op), chosen.get(node.name, KEPT), reasons[node.name],
            {p: e for (name, p), e in errors.items() if name == node.name},
            {p: g for (name, p), g in gains.items() if name == node.name},
            node.name in locked,
        )
        for node in measuring.ops
    }
    return PrecisionPlan(graph.name, fingerprint(graph), rows, measuring.ranges, tolerance, error, UNITS[win], devices)
