"""Display of a watch: as text, as a picture of one step, and in a notebook as a picture to step through."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from html import escape
from itertools import chain, groupby
from typing import TYPE_CHECKING

import attrs

from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.pictures.html import cut
from partita.graph.pictures.layered import layered_svg
from partita.partition.errors import PartitionError

if TYPE_CHECKING:
    from partita.partition.watching import Frame, Watch

MOST_LINES = 300
"""Maximum number of steps that are printed."""

MOST_STEPS = 200
"""Maximum number of steps in a picture. If there are more, or more than MOST_OPS ops, a single growth is shown."""

PLAIN = "white"
"""The colour of an op without an event."""

SELECTED, REJECTED = "#fdbf6f", "#fb9a99"
"""Colours of the growing subgraph, and of refused ops."""

FINISHED = ("#a6cee3", "#b2df8a", "#cab2d6", "#8dd3c7", "#d9d9d9", "#fccde5")
"""Colours of complete subgraphs, in turn."""


def text(watch: Watch) -> str:
    """One line per step, with both sets."""
    lines = [f"{watch.graph.name}: growth {watch.growth}, {len(watch.frames)} steps"]
    for i, frame in enumerate(watch.frames[:MOST_LINES], 1):
        sets = f"{_set(frame.selected)}" + (f"  rejected {_set(frame.rejected)}" if frame.rejected else "")
        lines.append(f"{i:>4}  {frame.text}" + (f"  →  {sets}" if frame.selected or frame.rejected else ""))
    if len(watch.frames) > MOST_LINES:
        lines += [f"      ... {len(watch.frames) - MOST_LINES:,} more steps", f"      {watch.frames[-1].text}"]
    return "\n".join(lines)


def svg(watch: Watch, step: int) -> str:
    """The graph after that step."""
    classes = _classes(watch, "w")
    return _drawn(watch, classes, _rules(watch.frames[step], classes, ".layered"))


def _drawn(watch: Watch, classes: dict[str, str], style: str = "") -> str:
    """The picture of the shown ops, each with its class."""
    return layered_svg(
        watch.graph,
        lambda node: None,
        class_of=lambda node: classes.get(node.name),
        style=style,
        only=None if watch.ops is None else lambda node: node.name in classes,
    )


def mimebundle(watch: Watch) -> dict[str, str]:
    """The text of all steps, and HTML: with the first growth only if the whole is too large for one picture."""
    ops = sum(node.is_op for node in watch.graph.nodes)
    if watch.ops is not None or (len(watch.frames) <= MOST_STEPS and ops <= MOST_OPS):
        return {"text/plain": text(watch), "text/html": html(watch)}
    begun = seeds(watch.frames)
    if not begun:
        return {"text/plain": text(watch)}
    says = (
        f"{counted(ops, 'op')}, {counted(len(watch.frames), 'step')} and {counted(len(begun), 'growth')} are too many for one "
        f"picture. This is the growth that began at {cut(begun[0])!r}, and what lies around it; around({cut(begun[-1])!r}) of "
        "this object shows another, and print lists all steps."
    )
    return {"text/plain": text(watch), "text/html": f"<p>{escape(says)}</p>{html(watch.around())}"}


def html(watch: Watch) -> str:
    """A picture, and a button and text per step. Implemented by CSS alone, without scripts."""
    mark = "w" + hashlib.sha256(text(watch).encode()).hexdigest()[:10]
    classes, frames = _classes(watch, mark), watch.frames[:MOST_STEPS]
    inputs, labels, steps, rules = [], [], [], [_layout(mark), _playing(mark, frames, classes)]
    for i, frame in enumerate(frames):
        name = f"{mark}-{i}"
        checked = " checked" if not i else ""
        inputs.append(f'<input type="radio" name="{mark}" id="{name}"{checked} aria-label="step {i + 1}">')
        labels.append(f'<label for="{name}" title="{escape(cut(frame.text))}">{i + 1}</label>')
        sets = f"selected {_set(frame.selected)} · rejected {_set(frame.rejected)}"
        beside = _turn(mark, (i - 1) % len(frames), "◀ back") + _turn(mark, (i + 1) % len(frames), "forth ▶")
        steps.append(f'<span class="{name}">{beside}</span>')
        steps.append(f'<p class="{name}"><b>{i + 1}. {escape(cut(frame.text))}</b><br>{escape(cut(sets))}</p>')
        on = f"#{name}:checked~"
        rules.append(f"{on}div .{name}{{display:block}}{on}div label[for={name}]{{background:#333;color:white}}")
        rules.append(_rules(frame, classes, f"{on}div .layered"))
    if len(watch.frames) > len(frames):
        steps.append(f"<div>The growth has {counted(len(watch.frames) - len(frames), 'more step')}; print lists them.</div>")
    play = f'<input type="checkbox" id="{mark}-play" aria-label="play all steps">'
    buttons = f'<label class="{mark}-play" for="{mark}-play"></label>{"".join(labels)}'
    parts = [f"<style>{''.join(rules)}</style>", play, *inputs, f'<div class="{mark}-steps">{buttons}</div>']
    texts = f'<div class="{mark}-texts">{"".join(steps)}</div>'
    return f'<div class="{mark}">{"".join(parts)}<div>{texts}{_legend()}{_drawn(watch, classes)}</div></div>'


def _turn(mark: str, step: int, says: str) -> str:
    return f'<label class="{mark}-turn" for="{mark}-{step}">{says}</label>'


def _layout(mark: str) -> str:
    return (
        f".{mark} input{{position:absolute;opacity:0}}.{mark} p{{margin:6px 0;min-height:3em}}"
        f".{mark}-texts span,.{mark}-texts p{{display:none}}"
        f".{mark}-steps{{display:flex;flex-wrap:wrap;gap:3px}}"
        f".{mark}-steps label,.{mark}-turn{{min-width:2em;text-align:center;border:1px solid #999;border-radius:4px}}"
        f".{mark} label{{cursor:pointer}}"
        f".{mark}-turn{{padding:0 8px;margin:6px 6px 0 0;display:inline-block}}.{mark}-play{{padding:0 8px}}"
        f'.{mark}-play::after{{content:"▶ play"}}#{mark}-play:checked~div .{mark}-play::after{{content:"■ stop"}}'
        f".{mark} input:focus-visible~.{mark}-steps{{outline:2px solid #0b63ce}}"
    )


def _playing(mark: str, frames: Sequence[Frame], classes: dict[str, str]) -> str:
    """CSS that shows one step after the other while "play" is on, one second each: the texts overlap, and each box
    is animated through the colours of all steps."""
    on, once = f"#{mark}-play:checked~div", f"{len(frames)}s step-end infinite"
    end = f"{100 / len(frames):.4f}%"
    rules = [
        f"@keyframes {mark}-text{{0%{{visibility:visible}}{end},100%{{visibility:hidden}}}}",
        f"@keyframes {mark}-lit{{0%{{background:#333;color:white}}{end},100%{{background:none;color:inherit}}}}",
        f"{on} .{mark}-texts span{{display:none!important}}{on} .{mark}-texts{{display:grid}}",
        f"{on} .{mark}-texts p{{display:block!important;grid-area:1/1;visibility:hidden;animation:{mark}-text {once}}}",
        f"{on}.{mark}-steps label[for]:not(.{mark}-play){{background:none;color:inherit;animation:{mark}-lit {once}}}",
    ]
    for i in range(len(frames)):
        name = f"{mark}-{i}"
        rules.append(f"{on} .{mark}-texts p.{name},{on}.{mark}-steps label[for={name}]{{animation-delay:{i}s}}")
    for name, changes in _changes(frames, classes).items():
        stops = "".join(f"{100 * i / len(frames):.4f}%{{fill:{colour}}}" for i, colour in changes)
        box = classes[name]
        rules.append(f"@keyframes {box}{{{stops}}}{on} .layered .{box} rect{{animation:{box} {once}}}")
    return "".join(rules)


def _changes(frames: Sequence[Frame], classes: dict[str, str]) -> dict[str, list[tuple[int, str]]]:
    """The colour changes of each op, as (step, colour)."""
    changes: dict[str, list[tuple[int, str]]] = {}
    for i, frame in enumerate(frames):
        coloured = _colours(frame, classes)
        for name in dict.fromkeys((*changes, *coloured)):
            known = changes.setdefault(name, [(0, PLAIN)])
            if known[-1][1] != coloured.get(name, PLAIN):
                known.append((i, coloured.get(name, PLAIN)))
    return changes


def _legend() -> str:
    def swatch(colour: str, says: str) -> str:
        return f'<span style="background:{colour};color:#222;padding:0 8px;border-radius:4px;margin-right:8px">{says}</span>'

    return f"<div>{swatch(SELECTED, 'selected')}{swatch(REJECTED, 'rejected')}{swatch(FINISHED[0], 'a finished subgraph')}</div>"


def _classes(watch: Watch, mark: str) -> dict[str, str]:
    """The CSS class of each shown op."""
    ops = None if watch.ops is None else set(watch.ops)
    shown = ((i, node) for i, node in enumerate(watch.graph.nodes) if node.is_op and (ops is None or node.name in ops))
    return {node.name: f"{mark}-n{i}" for i, node in shown}


def _colours(frame: Frame, classes: dict[str, str]) -> dict[str, str]:
    """The colour of each shown op that has one after a step."""
    coloured = {name: FINISHED[k % len(FINISHED)] for k, group in enumerate(frame.finished) for name in group}
    coloured |= dict.fromkeys(frame.rejected, REJECTED) | dict.fromkeys(frame.selected, SELECTED)
    return {name: colour for name, colour in coloured.items() if name in classes}


def _rules(frame: Frame, classes: dict[str, str], within: str) -> str:
    """CSS for the colours of the boxes after a step."""
    by_colour: dict[str, list[str]] = {}
    for name, colour in _colours(frame, classes).items():
        by_colour.setdefault(colour, []).append(f"{within} .{classes[name]} rect")
    return "".join(f"{','.join(chosen)}{{fill:{colour}}}" for colour, chosen in by_colour.items())


def _set(names: Sequence[str]) -> str:
    return "{" + ", ".join(names) + "}"


MOST_OPS = 80
"""Maximum number of ops in a picture of a growth: first those that the growth met, then those nearest to its seed."""

REACH = 2
"""Ops up to this many edges away from those that the growth reached are shown too."""


def around(watch: Watch, name: str | None = None) -> Watch:
    """The growth that began at this op, or else the first that accepted or refused it; without a name, the first of all.

    Linear in the graph and in the steps."""
    run = _run(watch, name)
    ops = tuple(_window(watch.graph, _came_to(run)))
    return attrs.evolve(watch, frames=tuple(run), ops=ops)


def seeds(frames: Sequence[Frame]) -> list[str]:
    """The ops at which growths began, in order."""
    return list(dict.fromkeys(frame.seed for frame in frames if frame.seed))


def _run(watch: Watch, name: str | None) -> list[Frame]:
    """The consecutive steps of one growth."""
    runs = [(seed, list(run)) for seed, run in groupby(watch.frames, key=lambda frame: frame.seed) if seed]
    if name is None and runs:
        return runs[0][1]
    begun = [run for seed, run in runs if seed == name]
    met = [run for _, run in runs if name in set(_came_to(run))]
    if not begun and not met:
        raise _not_met(watch, name, [seed for seed, _ in runs])
    return (begun or met)[0]


def _not_met(watch: Watch, name: str | None, begun: Sequence[str]) -> PartitionError:
    if not begun:
        return PartitionError("no growth began: the selector starts at no op", where="around", remedy="print(steps) lists each")
    if name is not None and name in watch.graph and watch.graph[name].is_op:
        cause = f"no growth reached {name!r}"
    else:
        cause = f"graph {watch.graph.name!r} has no op {name!r}"
    near = ", ".join(map(repr, get_close_matches(str(name), begun, 3, 0.5) or begun[:3]))
    return PartitionError(cause, where="around", remedy=f"Growths began at {near} ({len(set(begun))} in all)")


def _came_to(run: Sequence[Frame]) -> list[str]:
    """The ops that a growth accepted or refused, in order."""
    return list(dict.fromkeys(chain.from_iterable(chain((frame.seed,), frame.selected, frame.rejected) for frame in run)))


def _window(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    """These ops and those around them, up to the limit of a picture."""
    shown = dict.fromkeys(names[:MOST_OPS])
    rim: list[Node] = [graph[name] for name in shown]
    for _ in range(REACH):
        rim = [node for node in _beside(graph, rim) if node.name not in shown][: MOST_OPS - len(shown)]
        shown |= dict.fromkeys(node.name for node in rim)
    return iter(shown)


def _beside(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """The producers and consumers of these ops, each once."""
    beside: dict[Node, None] = {}
    for node in nodes:
        beside |= dict.fromkeys(entry.node for entry in node.reads if entry.node.is_op)
        beside |= dict.fromkeys(reader for reader in graph.consumers(node) if reader.is_op)
    return list(beside)
