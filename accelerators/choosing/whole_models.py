"""Finds the fastest of the remaining models: in the chosen precisions or without, and on which devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from partita.accelerators.choosing.op_costs import Measuring
from partita.accelerators.errors import NotSupported
from partita.accelerators.precision.device_plan import DevicePlan
from partita.accelerators.precision.lowered_ops import KEPT
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.formatting import counted


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
