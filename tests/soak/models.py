"""Random models on every device, on random placements, through passes and files, against the reference: see tests/fuzz/models."""

from __future__ import annotations

from tests.fuzz.models.__main__ import Campaign
from tests.fuzz.models.check import SETTINGS
from tests.soak.figures import Figures, rounds_for

APART = 1_000_000
"""The distance between the first models of two seeds of the soak."""


def attack(seconds: float, seed: int) -> Figures:
    """Models one after the other."""
    campaign = Campaign(list(SETTINGS))
    try:
        for number in rounds_for(seconds):
            campaign.try_seed(seed * APART + number)
    finally:
        campaign.close()
    figures = Figures(tried=campaign.tally.models, calls=campaign.tally.runs)
    kinds = {"crashed": "crashes", "hung": "hangs"}
    for number, item in campaign.tally.unknown:
        again = f"python -m tests.fuzz.models --start {number} --count 1 --settings {item.setting}"
        figures.failed(kinds.get(item.what, "differences"), f"{item.what}: {item.detail[:200]!r}; again: {again}")
    return figures
