"""The second level: a box for each kernel, around the ops that it computes."""

from __future__ import annotations

from typing import Any

from partita.accelerators import CompiledModel
from partita.accelerators.errors import MEND, DeviceMistake
from partita.accelerators.interface.compile_story import KernelWork
from partita.accelerators.running.profile import PLAIN
from partita.graph.formatting import in_code
from partita.page.boxes import Boxes
from partita.page.scene import Item
from partita.page.sections import children


def add_kernels(boxes: Boxes, model: CompiledModel) -> None:
    """Put ops that share a kernel into one box, in subgraphs whose devices report their kernels. Linear."""
    inside = children(boxes.items)
    sources = _sources(boxes)
    units = {unit.name: unit for unit in reversed(model.units)}  # With MULTI several devices may have a subgraph of that name.
    for box, call in boxes.calls:
        unit = units[call.name]
        kernels, story = unit.kernels(), unit.compiled.story
        odd = next((kernel for kernel in kernels if not (hasattr(kernel, "name") and hasattr(kernel, "nodes"))), None)
        if odd is not None:
            raise DeviceMistake(f"its kernels hold {in_code(odd)}, which has no name and nodes", where=unit.title, remedy=MEND)
        work = {one.kernel: one for one in story.kernels} if story is not None else {}
        if story is not None:
            boxes.items[box].details += (str(story),)
        by_name = {boxes.items[i].name: i for i in inside.get(box, ())}
        kernel_of: dict[int, int] = {}
        for k, kernel in sorted(enumerate(kernels), key=lambda numbered: -len(numbered[1].nodes)):
            for name in kernel.nodes:  # An op whose result another kernel only moves belongs to the kernel that computes it.
                if name in by_name:
                    kernel_of.setdefault(by_name[name], k)
        for i in inside.get(box, ()) if kernels else ():
            if i not in kernel_of and len(sources.get(i, ())) == 1:
                (source,) = sources[i]
                if source in kernel_of:  # the op was folded into the constants of the ops that it reads
                    kernel_of[i] = kernel_of[source]
        members: dict[int, list[int]] = {}
        for i, k in sorted(kernel_of.items()):
            members.setdefault(k, []).append(i)
        for k, ops in members.items():
            for i in ops:
                boxes.items[i].details += _precision(kernels[k])
            if len(ops) > 1:
                _enclose(boxes, box, kernels[k], ops, work.get(kernels[k].name))


def _sources(boxes: Boxes) -> dict[int, set[int]]:
    """Boxes that each box reads from."""
    sources: dict[int, set[int]] = {}
    for value, reader in boxes.edges:
        sources.setdefault(reader, set()).add(boxes.values[value].source)
    return sources


def _enclose(boxes: Boxes, call: int, kernel: Any, ops: list[int], work: KernelWork | None) -> None:
    shown = [boxes.items[i].label for i in ops if boxes.items[i].name in kernel.nodes]
    what = "+".join(shown[:4]) + ("+…" if len(shown) > 4 else "")
    cost = () if work is None else (f"compiled: {work.cost}",)
    details = (f"schedule {kernel.schedule}", *_precision(kernel), *cost)
    boxes.items.append(Item("kernel", kernel.symbol, what, call, boxes.items[call].owner, details))
    for i in ops:
        boxes.items[i].parent = len(boxes.items) - 1


def _precision(kernel: Any) -> tuple[str, ...]:
    """Element types of the kernel, unless all are float32, and why it does not compute in a narrower type."""
    types, why = getattr(kernel, "types", ""), getattr(kernel, "why_wide", "")
    return (*(() if types in PLAIN else (f"its kernel: {types}",)), *((f"in float32, since {why}",) if why else ()))
