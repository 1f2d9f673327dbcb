"""Results as tables in Markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, Section, distinct
from benchmarks.timing import Ratio, mean
from partita.accelerators.process.atomic import write_text

Cells = Sequence[object]


def markdown(header: Cells, lines: Iterable[Cells]) -> str:
    """A table; the first column to the left, the rest to the right, and wide enough to be read as text too."""
    table = [[str(cell) for cell in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*table)]
    rule = [":" + "-" * (w - 1) if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    aligned = [
        [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))] for line in table
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (aligned[0], rule, *aligned[1:]))


def merge(page: Path, name: str, header: Cells, lines: Iterable[Cells]) -> None:
    """Put lines into the table between `<!-- table:NAME -->` and `<!-- /table:NAME -->`.

    A line replaces the one that has the same first cell; the others stay.
    """
    begin, end = f"<!-- table:{name} -->\n", f"<!-- /table:{name} -->"
    before, _, rest = page.read_text().partition(begin)
    old, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"error: {page} has no marks {begin.strip()} and {end}")
    kept = [[cell.strip() for cell in line.strip("|").split("|")] for line in old.strip().splitlines()[2:]]
    new = {str(line[0]): [str(cell) for cell in line] for line in lines}
    table = markdown(header, {**{line[0]: line for line in kept}, **new}.values())
    write_text(page, f"{before}{begin}\n{table}\n\n{end}{after}")


def about(section: Section) -> str:
    """One sentence on where the figures come from."""
    said = section.about
    others = said.get("others_cores")
    versions = ", ".join(f"{name} {version}" for name, version in said["versions"].items())
    busy = "" if others is None else f"; other programs kept {others:.1f} cores busy meanwhile"
    return (
        f"Measured {said['date'][:10]} at commit {said['commit']} on {said['processor']}, {said['cores']} cores, "
        f"{said['memory_gib']:.0f} GiB, {said['system']} ({versions}){busy}."
    )


def measured(section: Section) -> str:
    """The day and the machine in one short sentence."""
    said = section.about
    return f"Measured {said['date'][:10]} on {said['processor']}, {said['cores']} cores."


def by_case(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], dict[str, Row]]:
    """Rows by these parts of their case, and then by engine."""
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault(tuple(row.case[key] for key in keys), {})[row.engine] = row
    return cases


def seconds(value: float) -> str:
    """A time in words, with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def in_short(row: Row) -> str:
    """A row in the progress of a long run."""
    if row.times is None:
        return f"{row.engine}: {row.note}"
    times, note = row.times, f", {row.note}" if row.note else ""
    against = f", ratio {row.ratio}" if row.ratio else ""
    least = f"least {seconds(times.minimum)}, ±{times.spread:.0%} in {times.rounds} rounds"
    return f"{row.engine}: {seconds(times.median)} s ({least}{against}{note})"


# -- partitioning ----------------------------------------------------------------------------------------


def partition(section: Section) -> str:
    """Seconds and groups of each engine, and below them what was in the way."""
    engines = distinct(row.engine for row in section.rows)
    notes = Footnotes()
    lines = []
    for (shape, nodes), row_of in by_case(section.rows, "shape", "nodes").items():
        cells = [_partition_cell(row_of[name], notes) if name in row_of else "" for name in engines]
        peers = [row for row in row_of.values() if row.is_sound and row.ratio and not row.engine.startswith("partita")]
        best = min(peers, key=lambda row: row.times.median if row.times else 0, default=None)
        lines.append([f"{shape} {nodes:,}", *cells, f"{best.ratio}" if best else "–"])
    table = markdown(["shape, nodes", *engines, "ratio"], lines)
    says = (
        "Seconds of a whole partitioning pass, medians, and the number of groups in parentheses; the last column is the time of"
        f" Partita's {PARTITIONS} over that of the fastest other engine whose result is sound."
    )
    return f"{says}\n\n{table}\n\n{notes}{about(section)}"


PARTITIONS = "`largest`"
"""The growth that is compared."""


def _partition_cell(row: Row, notes: Footnotes) -> str:
    if row.times is None:
        return notes.mark(row.note)
    mark = f" {row.note}" if row.note else f" ({row.extra['groups']})"
    return f"{seconds(row.times.median)}{mark}"


class Footnotes:
    """Reasons too long for a cell, numbered."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """The cell's text, with a mark if there is a note."""
        if len(text) <= 12:
            return text
        if text not in self.texts:
            self.texts.append(text)
        return f"[{self.texts.index(text) + 1}]"

    def __str__(self) -> str:
        return "".join(f"[{i + 1}]: {text}  \n" for i, text in enumerate(self.texts)) + ("\n" if self.texts else "")


# -- latency ---------------------------------------------------------------------------------------------

OURS = "partita"


def latency(section: Section) -> str:
    """A table for each batch and number of threads, then the geometric means."""
    engines = distinct(row.engine for row in section.rows)
    notes = Footnotes()
    parts = [
        "Milliseconds, median and least; the last column is Partita's time over the best other engine's, and how far from it"
        " the true one may be. Outputs of all engines were compared in the same run."
    ]
    for setting, rows in settings(section).items():
        lines = []
        for (model,), row_of in by_case(rows, "model").items():
            cells = [_latency_cell(row_of[name], notes) if name in row_of else "" for name in engines]
            best = best_peer(row_of)
            lines.append([model, *cells, f"{best.ratio}" if best else "–"])
        lines.append(["geometric mean", *[""] * len(engines), _mean_cell(rows)])
        parts.append(f"**{setting}**\n\n{markdown(['model', *engines, 'ratio'], lines)}")
    return "\n\n".join([*parts, f"{notes}{about(section)}"])


def ratios(section: Section) -> str:
    """The ratios of each model to the best other engine, a column for each batch and number of threads."""
    cells: dict[str, list[object]] = {}
    columns = settings(section)
    for rows in columns.values():
        for (model,), row_of in by_case(rows, "model").items():
            best = best_peer(row_of)
            cells.setdefault(model, []).append(best.ratio if best else "–")
    cells["geometric mean"] = [_mean_cell(rows) for rows in columns.values()]
    return markdown(["model", *columns], [[model, *ratio_of] for model, ratio_of in cells.items()])


def settings(section: Section) -> dict[str, list[Row]]:
    """The rows by their batch and threads."""
    rows_of: dict[str, list[Row]] = {}
    for row in section.rows:
        batch, threads = row.case["batch"], row.case["threads"]
        where = f"batch {batch}, " + (f"{threads} thread{'s' * (threads != 1)}" if threads else "GPU")
        rows_of.setdefault(where, []).append(row)
    return rows_of


def best_peer(row_of: Mapping[str, Row]) -> Row | None:
    """The fastest sound engine that is not ours, if ours is sound too."""
    ours = row_of.get(OURS)
    peers = [row for row in row_of.values() if row.engine != OURS and row.is_sound and row.ratio]
    if ours is None or not ours.is_sound or not peers:
        return None
    return min(peers, key=lambda row: row.times.median if row.times else 0)


def mean_ratio(rows: Iterable[Row]) -> tuple[Ratio | None, int, int]:
    """The geometric mean of the ratios to the best peer, of how many models, of how many in all."""
    by_model = by_case(rows, "model")
    best = [best_peer(engines) for engines in by_model.values()]
    ratios = [row.ratio for row in best if row and row.ratio and not row.ratio.is_inconclusive]
    return mean(ratios) if ratios else None, len(ratios), len(by_model)


def _mean_cell(rows: Iterable[Row]) -> str:
    ratio, counted, models = mean_ratio(rows)
    left_out = "" if counted == models else f" ({counted} of {models})"
    return "–" if ratio is None else f"{ratio}{left_out}"


def _latency_cell(row: Row, notes: Footnotes) -> str:
    if row.times is None:
        return notes.mark(row.note)
    mark = f" {notes.mark(row.note)}" if row.note else ""
    return f"{seconds(row.times.median * 1e3)} ({seconds(row.times.minimum * 1e3)}){mark}"


# -- compiling -------------------------------------------------------------------------------------------


def compiling(section: Section) -> str:
    """Seconds to a model that is ready to run."""
    engines = distinct(row.engine for row in section.rows)
    compared = distinct(row.engine for row in section.rows if row.ratio)
    notes = Footnotes()
    lines = []
    for (model,), row_of in by_case(section.rows, "model").items():
        cells = [_compile_cell(row_of[name], notes) if name in row_of else "" for name in engines]
        exported = row_of["partita import"].extra.get("MiB") if "partita import" in row_of else None
        ratios = [row_of[name].ratio if name in row_of else None for name in compared]
        lines.append([model, *cells, "" if exported is None else f"{exported:.1f}", *(ratio or "–" for ratio in ratios)])
    table = markdown(["model", *engines, "export MiB", *(f"over {name}" for name in compared)], lines)
    says = (
        "Seconds from the ONNX file to the first output, in a fresh process, the package already imported. The last columns are"
        " ratios: Partita's cold time over OpenVINO's, its warm time over OpenVINO's, and that of its import over onnxruntime's."
    )
    return f"{says}\n\n{table}\n\n{notes}{about(section)}"


def compile_seconds(section: Section) -> str:
    """The seconds of each engine alone, for the documentation."""
    engines = distinct(row.engine for row in section.rows)
    lines = []
    for (model,), row_of in by_case(section.rows, "model").items():
        known = [row_of[name].times if name in row_of else None for name in engines]
        lines.append([model, *("–" if times is None else seconds(times.median) for times in known)])
    says = "Seconds from the ONNX file to the first output, in a fresh process with the package already imported:"
    return f"{says}\n\n{markdown(['model', *engines], lines)}\n\n{measured(section)}"


def _compile_cell(row: Row, notes: Footnotes) -> str:
    return notes.mark(row.note) if row.times is None else seconds(row.times.median)


# -- threads ---------------------------------------------------------------------------------------------

SLOW = 1.2
"""A process whose median is so many times that of the fastest tenth is slow: it may be in another mode."""


def threads(section: Section) -> str:
    """The table of what fresh processes, a rival and several callers do to both engines."""
    engines = distinct(row.engine for row in section.rows)
    lines = []
    for (model, situation), row_of in by_case(section.rows, "model", "situation").items():
        known = [row_of[name] for name in engines]
        cells = [seconds(row.times.median * 1e3) if row.times else "" for row in known]
        modes = [_modes(row.times.processes) if row.times else "" for row in known]
        slower = [f"{row.extra['over_alone']:.2f}" for row in known]
        lines.append([f"{model}, {situation}", *cells, row_of[engines[-1]].ratio or "–", *slower, *modes])
    header = [
        "", *(f"{name} ms" for name in engines), "ratio",
        *(f"{name} / alone" for name in engines), *(f"{name}: worst process" for name in engines),
    ]
    says = (
        f"Fresh processes ({section.about['processes']} of each model), all cores: milliseconds for each call that is answered,"
        " Partita's over the other's, each over what it takes alone, and the slowest process's median over the median of all; in"
        f" parentheses how many processes took over {SLOW} times as long as the fastest tenth: with two modes there are several."
    )
    return f"{says}\n\n{markdown(header, lines)}\n\n{about(section)}"


def _modes(processes: Sequence[float]) -> str:
    """The worst over the median, and how many are slow."""
    ordered = sorted(processes)
    fast = ordered[len(ordered) // 10]
    slow = sum(taken > SLOW * fast for taken in ordered)
    return f"{ordered[-1] / statistics.median(ordered):.2f} ({slow} of {len(ordered)} slow)"


# -- all -------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[Section], str]] = {
    "partition": partition,
    "latency": latency,
    "compile": compiling,
    "gpu": latency,
    "threads": threads,
}
"""The function that shows each section."""

BRIEF: dict[str, tuple[str, Callable[[Section], str]]] = {
    "ratios": ("latency", ratios),
    "gpu_ratios": ("gpu", ratios),
    "compile_seconds": ("compile", compile_seconds),
}
"""By mark, a section and the function that shows it to readers of the documentation."""


def summary(latest: Mapping[str, Section]) -> str:
    """A few lines for the README."""
    parts = []
    if "latency" in latest:
        ratio_of = {where: mean_ratio(rows) for where, rows in settings(latest["latency"]).items()}
        lines = [[where, "–" if ratio is None else f"{ratio}", f"{n} of {of}"] for where, (ratio, n, of) in ratio_of.items()]
        parts.append(
            "Partita's time on `cpu` divided by that of the fastest of onnxruntime, OpenVINO, torch and TVM's default pipeline"
            f" (geometric mean over the models; below 1, Partita is faster):\n\n{markdown(['', 'ratio', 'models'], lines)}\n\n"
            f"{measured(latest['latency'])}"
        )
    if "partition" in latest:
        section = latest["partition"]
        largest = max(row.case["nodes"] for row in section.rows)
        rows = [row for row in section.rows if row.case["nodes"] == largest]
        engines = distinct(row.engine for row in rows)
        lines = [
            [shape, *("–" if (t := ratio_of[e].times) is None else seconds(t.median) for e in engines)]
            for (shape,), ratio_of in by_case(rows, "shape").items()
        ]
        parts.append(
            f"Seconds to partition a graph of {largest:,} nodes (– did not finish within a minute, or would not have):\n\n"
            f"{markdown(['shape', *engines], lines)}"
        )
    return "\n\n".join(parts)


def case_text(case: Mapping[str, Any]) -> str:
    """The case in words, on one line."""
    return ", ".join(str(value) if isinstance(value, str) else f"{key} {value:,}" for key, value in case.items())


def case_key(row: Row) -> str:
    """The key that identifies a row."""
    return json.dumps([row.case, row.engine])
