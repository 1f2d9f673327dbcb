"""Results as pictures: SVG files that are the same, byte for byte, for the same results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib

from benchmarks import tables
from benchmarks.results import Section, distinct

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "partita", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

from matplotlib import pyplot  # noqa: E402  after the choice above

COLORS = {"partita": "#c0392b", "partita largest": "#c0392b", "partita walk": "#e67e22", "partita waves": "#f1c40f"}
"""Ours in warm colors; the others take matplotlib's in turn."""

OTHERS = ("#2c3e50", "#2980b9", "#16a085", "#8e44ad", "#7f8c8d")


def color(engines: list[str], name: str) -> str:
    """The engine's own color."""
    rest = [engine for engine in engines if engine not in COLORS]
    return COLORS.get(name) or OTHERS[rest.index(name) % len(OTHERS)]


def growth(section: Section, folder: Path) -> dict[str, Path]:
    """Seconds over nodes on log axes, one picture for each shape; where a curve ends early, the engine was cut off."""
    engines, pictures = distinct(row.engine for row in section.rows), {}
    for (shape,), _ in tables.by_case(section.rows, "shape").items():
        figure, axes = pyplot.subplots(figsize=(6, 4))
        for name in engines:
            rows = [row for row in section.rows if row.engine == name and row.case["shape"] == shape and row.times]
            points = [(row.case["nodes"], row.times.median) for row in rows if row.times]
            if not points:
                continue
            line = axes.loglog(*zip(*points), marker="o", markersize=4, label=name, color=color(engines, name))
            wrong = [(row.case["nodes"], row.times.median) for row in rows if row.times and row.note]
            if wrong:
                axes.loglog(*zip(*wrong), "x", markersize=9, color=line[0].get_color(), label=f"{name}: cyclic")
        axes.set(title=f"Partitioning: {shape}", xlabel="nodes", ylabel="seconds")
        axes.grid(True, which="major", linewidth=0.3)
        axes.legend(fontsize=8)
        pictures[f"Partitioning time over nodes: {shape}"] = _save(figure, folder / f"partition-{shape}.svg")
    return pictures


def ratios(section: Section, folder: Path, prefix: str = "latency") -> dict[str, Path]:
    """Partita's time over each engine's, one picture for each batch and number of threads; below 1 Partita is faster."""
    pictures = {}
    for number, (setting, rows) in enumerate(tables.settings(section).items()):
        by_model = tables.by_case(rows, "model")
        peers = distinct(row.engine for row in rows if row.ratio and not row.ratio.is_inconclusive and row.ratio.value > FAR)
        figure, axes = pyplot.subplots(figsize=(8, 3.5))
        width = 0.8 / max(1, len(peers))
        for i, name in enumerate(peers):
            shown = [
                (at + i * width, row.ratio)
                for at, engines in enumerate(by_model.values())
                if (row := engines.get(name)) and row.is_sound and row.ratio and not row.ratio.is_inconclusive
            ]
            if not shown:
                continue
            heights = [value.value for _, value in shown]
            errors = [value.value * value.spread for _, value in shown]
            axes.bar([at for at, _ in shown], heights, width, yerr=errors, label=f"over {name}", color=color(peers, name),
                     error_kw={"linewidth": 0.7})
        axes.axhline(1, color="black", linewidth=0.8)
        middle = 0.4 - width / 2
        axes.set_xticks([at + middle for at in range(len(by_model))], [model for (model,) in by_model], rotation=40, ha="right")
        axes.set(title=f"Partita's time over others', {setting}: below 1 is faster", ylabel="ratio")
        if peers:
            axes.legend(fontsize=8)
        pictures[f"Latency ratios, {setting}"] = _save(figure, folder / f"{prefix}-{number + 1}.svg")
    return pictures


FAR = 0.05
"""An engine that is over twenty times slower has no bars: they could not be seen."""


def _save(figure: pyplot.Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


PLOTS: dict[str, Callable[[Section, Path], dict[str, Path]]] = {
    "partition": growth,
    "latency": ratios,
    "gpu": partial(ratios, prefix="gpu"),
}
"""The plotting function of each section."""
