"""Search for the smallest group of a subgraph's ops that is wrong by itself, by moving a cut.

A prefix of the topological order is convex, and so is the part between two cuts. Bisection over the prefixes finds the last op
that is needed (log2(n) compilations); then that op is tried alone, with each op that it reads, and with more before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from partita.insight.trial import NUMBERS, RIGHT, Trial, Trials

LIMITS = (1.0, 0.1, 0.01)
"""Fractions of the allowed error at which the search is repeated if it found no node or pair."""

MOST_DROPPED = 12
"""Maximum number of ops left out of a larger group, one at a time, to find unneeded ones."""


@attrs.frozen(slots=True, eq=False)
class Blamed:
    """Result of the search."""

    trial: Trial
    """The smallest group that is wrong by itself."""
    tries: int
    """Number of groups compiled."""


def first_wrong(trials: Trials) -> Trial | None:
    """The first op with wrong values by itself, when it reads the trusted run's values."""
    for member, excess in enumerate(trials.alone()):
        if excess > 1:
            trial = trials([member])
            if trial.kind in NUMBERS:
                return trial
    return None


def search(trials: Trials, whole: Trial) -> Blamed:
    """The smallest group with the same error as the whole."""
    return _FaultSearch(trials, whole).run()


class _FaultSearch:
    def __init__(self, trials: Trials, whole: Trial) -> None:
        self.trials = trials
        self.whole = whole
        self.cutter = trials.cutter
        trials.add(whole)

    def run(self) -> Blamed:
        return Blamed(self._smallest(), len(self.trials.tried) - 1 + self.trials.whole)

    def _smallest(self) -> Trial:
        """A node or a pair if the error begins there; else as many ops as needed."""
        for number, limit in enumerate(self._limits()):
            last = self._last_op(limit)
            group = self._near(last) or (self._of_all() or self._beside(last) if not number else None)
            if group is not None:
                return group
        return self._grown(self._last_op(1.0))

    def _limits(self) -> tuple[float, ...]:
        """Limits on the excess above which a prefix counts as wrong, to be tried in turn: far above rounding if the whole is far
        off, then the allowed error, and less, since an error may shrink on its way."""
        if self.whole.kind not in NUMBERS:
            return (1.0,)
        far = math.sqrt(self.whole.excess)
        return (far, *LIMITS) if far > 1 else LIMITS

    def _is_bad(self, trial: Trial, limit: float = 1.0) -> bool:
        """True if it has the same error as the whole."""
        if self.whole.kind in NUMBERS:
            return trial.kind in (RIGHT, *NUMBERS) and (trial.excess > limit or trial.excess == math.inf)
        return trial.kind == self.whole.kind

    def _last_op(self, limit: float) -> int:
        """The last op of the shortest prefix that is wrong."""
        right, wrong = 0, len(self.whole.members)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self._is_bad(self.trials(range(middle)), limit):
                wrong = middle
            else:
                right = middle
        return wrong - 1

    def _near(self, last: int) -> Trial | None:
        """The op, if it is wrong by itself, or with one that it reads.

        If it reads several, pairs come first: a right pair clears both its ops."""
        producers = self._likeliest(last)
        is_right = False
        if len(producers) == 1 and self._is_bad(self.trials([last])):
            return self.trials([last])
        for producer in producers:
            pair = self.trials(self.cutter.closed([producer, last]))
            if self._is_bad(pair):
                if not is_right and self._is_bad(self.trials([last])):
                    return self.trials([last])
                before = self.trials.tried.get(tuple(range(last)))
                if before is not None and self._is_bad(before) and self._is_bad(self.trials([producer])):
                    return self.trials([producer])  # an op such as Mod amplifies a small error
                return self._without_some(pair) if len(pair.members) > 2 else pair
            is_right = is_right or pair.kind == RIGHT
        return self.trials([last]) if self._is_bad(self.trials([last])) else None

    def _of_all(self) -> Trial | None:
        """The first of all ops that is wrong by itself; for wrong values, one graph tests them all."""
        wrong = first_wrong(self.trials) if self.whole.kind in NUMBERS else None
        return wrong if wrong is not None and self._is_bad(wrong) else None

    def _beside(self, last: int) -> Trial | None:
        """The op with one that reads the same values, since devices may merge these."""
        siblings = self.cutter.siblings(last)
        trial = self.trials(self.cutter.closed([*siblings, last])) if siblings else None
        while trial is not None and self._is_bad(trial):
            if len(siblings) == 1:
                return self._without_some(trial) if len(trial.members) > 2 else trial
            half = len(siblings) // 2
            for part in (siblings[:half], siblings[half:]):
                trial = self.trials(self.cutter.closed([*part, last]))
                if self._is_bad(trial):
                    siblings = part
                    break
        return None

    def _likeliest(self, last: int) -> list[int]:
        """The ops that it reads, first those that nothing else reads: devices fuse these."""
        return sorted(self.cutter.producers[last], key=lambda one: (len(self.cutter.consumers[one]), -one))

    def _grown(self, last: int) -> Trial:
        """The op with a group of earlier ops that doubles at each step: first those that it needs, then any earlier ones."""
        for ordered in (sorted(self.cutter.before(last)), list(range(last + 1))):
            right, size = 1, 2
            while right < len(ordered):
                size = min(size, len(ordered))
                if self._is_bad(self.trials(ordered[-size:])):
                    return self._without_some(self._shortest(ordered, right, size))
                right, size = size, size * 2
        return self.whole

    def _shortest(self, ordered: Sequence[int], right: int, wrong: int) -> Trial:
        """The shortest suffix of these ops that is wrong."""
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self._is_bad(self.trials(ordered[-middle:])):
                wrong = middle
            else:
                right = middle
        return self.trials(ordered[-wrong:])

    def _without_some(self, trial: Trial) -> Trial:
        """The group without unneeded ops: single ops at its edges are removed."""
        tries = 0
        waiting = list(trial.members)
        while waiting and tries < MOST_DROPPED:
            one = waiting.pop(0)
            rest = [member for member in trial.members if member != one]
            if not rest or self.cutter.closed(rest) != set(rest):
                continue
            tries += 1
            smaller = self.trials(rest)
            if self._is_bad(smaller):
                trial = smaller
                waiting = [member for member in trial.members if member != one]
        return trial
