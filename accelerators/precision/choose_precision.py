"""`choose_precision`: which ops of a model may run in a lower precision, by measuring the error and the gain of each.

A single model is compiled in which each op's result can be replaced from outside. It yields the values for calibration, and then
the error if one op alone is rounded. The chosen plan is checked against the tolerance by running the resulting model."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.device_plan import DevicePlan
from partita.accelerators.precision.lowered_ops import KEPT, with_channel_scales
from partita.accelerators.precision.op_costs import Measuring
from partita.accelerators.precision.options import UNITS, Target, batches_of, check_options, locked_of
from partita.accelerators.precision.precision_plan import PrecisionPlan, PrecisionRow, amount
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.runtime.compiled_model import CompiledModel
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
    batches = batches_of(graph, inputs, "choose_precision")
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


@attrs.frozen(slots=True)
class Option:
    """An op in one lower precision."""

    node: str
    precision: str
    error: float
    """The error of the output if the op alone is lowered."""
    gain: float


def choose(
    measuring: Measuring, options: Sequence[Option], locked: Mapping[str, str], tolerance: float, most: int
) -> tuple[dict[str, str], dict[str, str], float]:
    """The precisions of lowered ops, the reason of every op, and the error of the whole."""
    chosen = dict(locked)
    error = measuring.measured(chosen)
    if error > tolerance:
        raise AcceleratorError(
            f"what is locked moves the answer by {error:.2g} already, and {tolerance:g} is allowed",
            where=f"graph {measuring.graph.name!r}", remedy="Lock fewer ops, or allow more",
        )
    reasons = {node.name: _refusal(node.name, options, measuring.refused, tolerance) for node in measuring.ops}
    reasons |= dict.fromkeys(locked, "set from outside")
    later: dict[str, list[Option]] = {}
    for option in sorted((option for option in options if _is_worth_it(option, tolerance)), key=_gain, reverse=True):
        later.setdefault(option.node, []).append(option)
    queue, left = sorted([choices.pop(0) for choices in later.values()], key=_benefit, reverse=True), most
    while queue:
        good, bad, size, off = 0, len(queue) + 1, len(queue), np.inf
        while bad - good > 1 and left:
            measured, left = measuring.measured(chosen | _precisions(queue[:size])), left - 1
            if measured <= tolerance:
                good, error = size, measured
            else:
                bad, off = size, measured
            size = (good + bad) // 2
        chosen |= _precisions(queue[:good])
        reasons |= {
            option.node: f"it wins {amount(option.gain, UNITS[measuring.win])}, and alone moves the answer by {option.error:.2g}"
            for option in queue[:good]
        }
        rejected, queue = queue[good:bad], queue[bad:]
        if bad - good > 1:
            reasons |= {option.node: f"not tried: {most} models were measured" for option in (*rejected, *queue)}
            break
        for option in rejected:
            reasons[option.node] = f"with it in {option.precision} the whole answer is off by {off:.2g}"
            queue += later[option.node][:1]
            del later[option.node][:1]
    return {name: precision for name, precision in chosen.items() if precision != KEPT}, reasons, error


def _is_worth_it(option: Option, tolerance: float) -> bool:
    return option.gain > 0 and option.error <= tolerance


def _refusal(name: str, options: Sequence[Option], refusals: Mapping[tuple[str, str], str], tolerance: float) -> str:
    """The reasons why an op is not lowered at all, from each of its options."""
    own = [option for option in options if option.node == name]
    refused = [f"{precision}: {why}" for (node, precision), why in refusals.items() if node == name]
    costly = [f"{o.precision} alone moves the answer by {o.error:.2g}" for o in own if o.error > tolerance]
    useless = [f"{o.precision} wins nothing" for o in own if o.error <= tolerance and o.gain <= 0]
    return "; ".join([*refused, *costly, *useless]) or "no lower precision was asked for"


def _gain(option: Option) -> float:
    return option.gain


def _benefit(option: Option) -> float:
    """The gain per error."""
    return option.gain / max(option.error, 1e-9)


def _precisions(options: Iterable[Option]) -> dict[str, str]:
    return {option.node: option.precision for option in options}


@attrs.frozen(slots=True, eq=False)
class Candidate:
    """One whole model."""

    precisions: Mapping[str, str]
    """The precisions of the lowered ops."""
    placement: Mapping[str, str] | None
    """The device of each op; None if devices are not chosen."""

    @property
    def title(self) -> str:
        """The number of ops by device and precision, in words."""
        devices = Counter((self.placement or {}).values()).items()
        lowered = Counter(self.precisions.values()).items()
        there = ", ".join(f"{counted(count, 'op')} on {label}" for label, count in devices)
        return f"{there}; {', '.join(f'{count} in {precision}' for precision, count in lowered) or 'none lowered'}"


@attrs.frozen(slots=True)
class Best:
    """The fastest model within the tolerance."""

    precisions: dict[str, str]
    """The precisions of the lowered ops."""
    error: float
    """The error of its output against float32."""
    devices: DevicePlan | None
    """The devices of its ops, and how they were found; None if devices are not chosen."""


def fastest(
    measuring: Measuring, chosen: Mapping[str, str], locked: Mapping[str, str], tolerance: float, error: float
) -> Best:
    """The fastest of the models with the chosen precisions and with the locked ones alone, on each placement worth measuring."""
    without = {name: precision for name, precision in locked.items() if precision != KEPT}
    distinct = [without] if chosen == without else [without, dict(chosen)]
    candidates = [Candidate(of, placement) for of in distinct for placement in measuring.placements(of)]
    if len(candidates) == 1 and candidates[0].placement is None:
        return Best(without, error, None)
    contest = _Contest(measuring, tolerance)
    refused = []
    for one in candidates:
        try:
            contest.enter(one, measuring.lowered(one.precisions, one.placement))
        except NotSupported as error:
            if one.placement is None or (one is candidates[-1] and not contest.errors):
                raise
            refused.append(f"{one.title} cannot be compiled: {error.cause}")
    winner = contest.winner
    devices = _devices(measuring, winner, [*contest.sentences(), *refused])
    return Best(dict(winner.precisions), contest.errors[winner], devices)


class _Contest:
    """Compares whole models. Only the fastest so far is kept; each other one is dropped once it has lost."""

    def __init__(self, measuring: Measuring, tolerance: float) -> None:
        self.measuring = measuring
        self.tolerance = tolerance
        self.errors: dict[Candidate, float] = {}
        self.seconds: dict[Candidate, float] = {}
        self._fastest: tuple[Candidate, CompiledModel] | None = None
        """The fastest within the tolerance."""

    @property
    def winner(self) -> Candidate:
        """The fastest within the tolerance; the first of all if there is none."""
        return next(iter(self.errors)) if self._fastest is None else self._fastest[0]

    def enter(self, one: Candidate, model: CompiledModel) -> None:
        """Measures a model, alternating with the fastest so far, and keeps the faster of the two."""
        plain = one.placement is None and not one.precisions
        self.errors[one] = 0.0 if plain else self.measuring.error(model)
        fits = self.errors[one] <= self.tolerance
        if self._fastest is None or not fits:
            (self.seconds[one],) = self.measuring.seconds([model])
            self._fastest = self._fastest or ((one, model) if fits else None)
            return
        other, fastest = self._fastest
        before, self.seconds[one] = self.measuring.seconds([fastest, model])
        self.seconds[other] = min(self.seconds[other], before)
        if self.seconds[one] < before:
            self._fastest = one, model

    def sentences(self) -> list[str]:
        """The result of each model, a sentence each."""
        return [_sentence(one, self.seconds[one], error, one is self.winner) for one, error in self.errors.items()]


def _devices(measuring: Measuring, candidate: Candidate, measured: Sequence[str]) -> DevicePlan | None:
    """The devices of the chosen model."""
    placement, choice, offered = candidate.placement, measuring.devices, measuring.open
    if placement is None or choice is None or offered is None:
        return None
    times = {
        name: {
            label: {precision: of[name] for (other, precision), of in choice.times.items() if other == label and name in of}
            for label in offered.preferred
        }
        for name in placement
    }
    refusals = {name: reasons for name, reasons in offered.refusals.items() if reasons}
    return DevicePlan(measuring.target.labels, dict(placement), times, refusals, set(offered.pinned), tuple(measured))


def _sentence(one: Candidate, seconds: float, error: float, taken: bool) -> str:
    """The time and error of a whole model, in words."""
    tail = ", which is the choice" if taken else ""
    return f"{one.title}: {seconds * 1e6:,.1f} µs, off by {error:.2g}{tail}"
