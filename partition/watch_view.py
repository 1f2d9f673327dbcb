"""How a watch is shown: as text, as a picture of one step, and in a notebook as a picture to step through."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from graph.pictures.html import cut
from graph.pictures.layered import layered_svg

if TYPE_CHECKING:
    from partition.watching import Frame, Watch

MOST_LINES = 300
"""The number of steps that are printed."""

MOST_STEPS, MOST_OPS = 200, 80
"""Longer watches and larger graphs are text in a notebook too."""

SELECTED, REJECTED = "#fdbf6f", "#fb9a99"
"""Colours of the growing subgraph, and of what it refused."""

FINISHED = ("#a6cee3", "#b2df8a", "#cab2d6", "#8dd3c7", "#d9d9d9", "#fccde5")
"""Colours of complete subgraphs, in turn."""


def text(watch: Watch) -> str:
    """A line for each step, and the two sets."""
    lines = [f"{watch.graph.name}: growth {watch.growth}, {len(watch.frames)} steps"]
    for i, frame in enumerate(watch.frames[:MOST_LINES], 1):
        sets = f"{_set(frame.selected)}" + (f"  rejected {_set(frame.rejected)}" if frame.rejected else "")
        lines.append(f"{i:>4}  {frame.text}" + (f"  →  {sets}" if frame.selected or frame.rejected else ""))
    if len(watch.frames) > MOST_LINES:
        lines += [f"      ... {len(watch.frames) - MOST_LINES:,} more steps", f"      {watch.frames[-1].text}"]
    return "\n".join(lines)


def svg(watch: Watch, step: int) -> str:
    """The graph after that step."""
    frame = watch.frames[step]
    classes = _classes(watch, "w")
    return layered_svg(
        watch.graph, lambda node: None, class_of=lambda node: classes.get(node.name), style=_rules(frame, classes, ".layered")
    )


def mimebundle(watch: Watch) -> dict[str, str]:
    """Text; and HTML where it is not too much."""
    ops = sum(node.is_op for node in watch.graph.nodes)
    if len(watch.frames) > MOST_STEPS or ops > MOST_OPS:
        return {"text/plain": text(watch)}
    return {"text/plain": text(watch), "text/html": html(watch)}


def html(watch: Watch) -> str:
    """A picture, a button for each step, and what happened in it. Styles alone do the work: there is no program in it."""
    mark = "w" + hashlib.sha256(text(watch).encode()).hexdigest()[:10]
    classes = _classes(watch, mark)
    drawn = layered_svg(watch.graph, lambda node: None, class_of=lambda node: classes.get(node.name))
    inputs, labels, steps, rules = [], [], [], [_layout(mark)]
    for i, frame in enumerate(watch.frames):
        name = f"{mark}-{i}"
        checked = " checked" if not i else ""
        inputs.append(f'<input type="radio" name="{mark}" id="{name}"{checked} aria-label="step {i + 1}">')
        labels.append(f'<label for="{name}" title="{escape(cut(frame.text))}">{i + 1}</label>')
        sets = f"selected {_set(frame.selected)} · rejected {_set(frame.rejected)}"
        steps.append(f'<p class="{name}"><b>{i + 1}. {escape(cut(frame.text))}</b><br>{escape(cut(sets))}</p>')
        on = f"#{name}:checked~"
        rules.append(f"{on}div p.{name}{{display:block}}{on}div label[for={name}]{{background:#333;color:white}}")
        rules.append(_rules(frame, classes, f"{on}div .layered"))
    parts = [f"<style>{''.join(rules)}</style>", *inputs, f'<div class="{mark}-steps">{"".join(labels)}</div>']
    return f'<div class="{mark}">{"".join(parts)}<div>{"".join(steps)}{_legend()}{drawn}</div></div>'


def _layout(mark: str) -> str:
    return (
        f".{mark} input{{position:absolute;opacity:0}}.{mark} p{{display:none;margin:6px 0;min-height:3em}}"
        f".{mark}-steps{{display:flex;flex-wrap:wrap;gap:3px}}"
        f".{mark}-steps label{{min-width:2em;text-align:center;border:1px solid #999;border-radius:4px;cursor:pointer}}"
        f".{mark} input:focus-visible~.{mark}-steps{{outline:2px solid #0b63ce}}"
    )


def _legend() -> str:
    def swatch(colour: str, says: str) -> str:
        return f'<span style="background:{colour};color:#222;padding:0 8px;border-radius:4px;margin-right:8px">{says}</span>'

    return f"<div>{swatch(SELECTED, 'selected')}{swatch(REJECTED, 'rejected')}{swatch(FINISHED[0], 'a finished subgraph')}</div>"


def _classes(watch: Watch, mark: str) -> dict[str, str]:
    return {node.name: f"{mark}-n{i}" for i, node in enumerate(watch.graph.nodes) if node.is_op}


def _rules(frame: Frame, classes: dict[str, str], within: str) -> str:
    """Styles that colour the boxes as they are after a step."""
    coloured = {name: FINISHED[k % len(FINISHED)] for k, group in enumerate(frame.finished) for name in group}
    coloured |= dict.fromkeys(frame.rejected, REJECTED) | dict.fromkeys(frame.selected, SELECTED)
    by_colour: dict[str, list[str]] = {}
    for name, colour in coloured.items():
        by_colour.setdefault(colour, []).append(f"{within} .{classes[name]} rect")
    return "".join(f"{','.join(chosen)}{{fill:{colour}}}" for colour, chosen in by_colour.items())


def _set(names: Sequence[str]) -> str:
    return "{" + ", ".join(names) + "}"
