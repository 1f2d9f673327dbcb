"""Kernels of `cpu` between guard pages: see tests/fuzz/guard."""

from __future__ import annotations

import itertools
import time

from tests.fuzz.guard.__main__ import Campaign, models
from tests.soak.figures import Figures

APART = 1_000_000
"""The distance between the first models of two seeds of the soak."""


def attack(seconds: float, seed: int) -> Figures:
    """Try each kind and op, then ONNX's node tests, then the kinds and ops of further seeds."""
    campaign, end = Campaign(), time.monotonic() + seconds
    further = ((name, number) for number in itertools.count(1) for name, _ in models(1, nodes=False))
    try:
        for name, number in itertools.chain(models(1, nodes=True), further):
            campaign.try_model(name, seed * APART + number)
            if time.monotonic() > end:
                break
    finally:
        campaign.close()
    figures = Figures(tried=sum(campaign.tally.outcomes.values()), calls=campaign.tally.kernels)
    for what in campaign.tally.failures:
        kind = "crashes" if ": crashed" in what else "hangs" if ": hung" in what else "differences"
        figures.failed(kind, f"{what[:200]!r}; again: python -m tests.fuzz.guard")
    return figures
