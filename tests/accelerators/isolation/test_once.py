"""Work that is done once."""

from __future__ import annotations

import pytest

from partita.accelerators.runtime.starting.work import DoneOnce


def test_an_error_is_kept_and_an_interruption_is_not() -> None:
    outcomes: list[BaseException] = [KeyboardInterrupt(), ValueError("first"), ValueError("second")]

    def work() -> None:
        raise outcomes.pop(0)

    once = DoneOnce[None]()
    with pytest.raises(KeyboardInterrupt):
        once(work)
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            once(work)
