"""Files made wrong, for every reader: see tests/fuzz/files."""

from __future__ import annotations

from tests.fuzz.files.__main__ import BATCH, Campaign
from tests.fuzz.files.readers import READERS
from tests.soak.figures import Figures, rounds_for

APART = 100_000_000
"""The distance between the first files of two seeds of the soak."""


def attack(seconds: float, seed: int) -> Figures:
    """Try some files of each reader in turn."""
    campaign = Campaign()
    try:
        for number in rounds_for(seconds):
            for name in READERS:
                campaign.try_seeds(name, seed * APART + number * BATCH, BATCH)
    finally:
        campaign.close()
    figures = Figures(tried=sum(campaign.tally.tried.values()))
    for name, number, what in campaign.tally.findings:
        kind = "crashes" if what.startswith("it crashed") else "hangs" if what.startswith("it hung") else "differences"
        again = f"python -m tests.fuzz.files --readers {name} --start {number} --count 1"
        figures.failed(kind, f"{what[:200]!r}; again: {again}")
    return figures
