"""What changed between two results files, and by how much: python -m benchmarks.compare OLD.json NEW.json [--all]

Where both files have a ratio (Partita's time over a peer's, taken side by side) these are compared, for what the machine did to
both is in them; else the times. A change counts where it is more than the two spreads together; --all shows the rest too.
The last line says whether the two runs agree: one ratio in twenty may differ by chance."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from benchmarks import results, tables
from benchmarks.results import Row
from benchmarks.timing import geometric_mean


@attrs.frozen
class Change:
    """One figure from both files, before and after."""

    section: str
    """The benchmark."""
    name: str
    """Case and engine."""
    what: str
    """"ratio", or "seconds"."""
    old: float
    """Before."""
    new: float
    """After."""
    allowed: float
    """The difference that the spreads explain."""

    @property
    def counts(self) -> bool:
        """Is it more than the spreads explain?"""
        return abs(self.new - self.old) > self.allowed

    @property
    def relative(self) -> float:
        """The difference as a part of the old figure."""
        return self.new / self.old - 1

    def cells(self) -> list[str]:
        """The cells of a line of the table."""
        remark = "" if self.counts else "within the spread"
        return [f"{self.section}: {self.name}", self.what, f"{self.old:.3g}", f"{self.new:.3g}", f"{self.relative:+.0%}", remark]


def changes(old: dict[str, results.Section], new: dict[str, results.Section]) -> Iterator[Change]:
    """Every figure that both files have."""
    for section, newer in new.items():
        before = {tables.case_key(row): row for row in old[section].rows} if section in old else {}
        for row in newer.rows:
            was = before.get(tables.case_key(row))
            difference = was and change(section, was, row)
            if difference:
                yield difference


def change(section: str, old: Row, new: Row) -> Change | None:
    """The change of one row; None where there is nothing to compare."""
    name = f"{tables.case_text(new.case)}: {new.engine}"
    if old.ratio and new.ratio and not (old.ratio.is_inconclusive or new.ratio.is_inconclusive):
        allowed = old.ratio.value * old.ratio.spread + new.ratio.value * new.ratio.spread
        return Change(section, name, "ratio", old.ratio.value, new.ratio.value, allowed)
    if old.ratio or new.ratio or not (old.times and new.times):
        return None
    allowed = old.times.median * old.times.spread + new.times.median * new.times.spread
    return Change(section, name, "seconds", old.times.median, new.times.median, allowed)


def differences(old: dict[str, results.Section], new: dict[str, results.Section]) -> list[str]:
    """Rows whose notes changed: what is wrong, cut off or missing now and was not, or the other way round."""
    said = []
    for section, newer in new.items():
        before = {tables.case_key(row): row.note for row in old[section].rows} if section in old else {}
        for row in newer.rows:
            was = before.get(tables.case_key(row), row.note)
            if was != row.note:
                said.append(f"{section}: {tables.case_text(row.case)}: {row.engine}: {was or 'fine'} -> {row.note or 'fine'}")
    return said


def report(old: dict[str, results.Section], new: dict[str, results.Section], everything: bool) -> str:
    """The changes, largest first, how much agrees, and the verdict."""
    compared = sorted(changes(old, new), key=lambda change: -abs(change.relative))
    shown = [change for change in compared if everything or change.counts]
    lines = [c.cells() for c in shown]
    parts = [tables.markdown(["figure", "kind", "old", "new", "change", "remark"], lines)] if lines else []
    for what in ("ratio", "seconds"):
        of_kind = [c for c in compared if c.what == what]
        if of_kind:
            agree = sum(not c.counts for c in of_kind)
            name = "ratios" if what == "ratio" else "times"
            drift = geometric_mean([c.new / c.old for c in of_kind])
            parts.append(f"{agree} of {len(of_kind)} {name} agree within their spreads; on average they are {drift - 1:+.1%}.")
    return "\n\n".join([*parts, *differences(old, new), verdict([c for c in compared if c.what == "ratio"])])


EXPECTED = 0.05
"""The part of all ratios that may differ by chance: a spread holds the true value with 95 % probability."""


def verdict(ratios: Sequence[Change]) -> str:
    """One sentence: are the two runs the same, as far as their spreads say?"""
    if not ratios:
        return "Nothing to compare: the two have no ratio in common that is worth anything."
    differ = sum(change.counts for change in ratios)
    if differ <= EXPECTED * len(ratios):
        chance = f"; {differ} of {len(ratios)} that differ are no more than chance explains" if differ else ""
        return f"The two runs agree{chance}."
    return f"The two runs differ: {differ} of {len(ratios)} ratios changed by more than their spreads explain."


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="show what agrees too")
    args = parser.parse_args()
    print(report(results.read(args.old), results.read(args.new), args.all))


if __name__ == "__main__":
    main()
