"""Serialization of subgraphs for GPUs: their launches, and the programs built of their source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.tvm.code.launch_sizes import ARITHMETIC, Formula, Joined
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.launch_list import Inside, OpenSlot, OpenStep, OpenSteps, Part, Slot, Step, StepList
from partita.accelerators.tvm.compiled.serialization import ExportedWords, compiling_again, packed, read_words, unpacked
from partita.accelerators.tvm.compiled.stepwise import CompiledSteps
from partita.accelerators.tvm.compiled.subgraph import RunsOn
from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.graph import Graph
from partita.graph.types import TensorType, numpy_dtype


def export(compiled: CompiledSteps) -> bytes:
    """The subgraph as bytes, without its weights."""
    steps, binaries = compiled.step_list, compiled.all_binaries()
    more = {
        "source": compiled.source_to_export(),
        **_written(steps),
        "binaries": {driver: len(binary) for driver, binary in binaries.items()},
    }
    return packed(compiled, more, *binaries.values())


def _written(steps: StepList | OpenSteps) -> dict[str, Any]:
    """Description of the launches for an export."""
    words = {
        "values": [[_slot_words(slot) for slot in slots] for slots in (steps.inputs, steps.outputs)],
        "steps": [_step_words(step) for step in steps.steps],
    }
    if isinstance(steps, StepList):
        return {**words, "blocks": steps.blocks, "parts": [attrs.astuple(part) for part in steps.parts]}
    inside = [attrs.astuple(part) for part in steps.inside]
    return {**words, "sizes": [_formula_words(size) for size in steps.sizes], "calls": steps.calls, "inside": inside}


def _slot_words(slot: Slot | OpenSlot) -> list[Any]:
    place, shape, dtype = attrs.astuple(slot, recurse=False)
    return [place, [_formula_words(size) for size in shape], dtype]


def _step_words(step: Step | OpenStep) -> list[Any]:
    arguments = [[a.dtype, _formula_words(a.value)] if isinstance(a, Number) else a for a in step.arguments]
    return [step.number, step.kernel, arguments, [_formula_words(count) for count in step.groups], step.local, step.shared]


def read(
    kind: type[CompiledSteps],
    data: bytes,
    weights: Sequence[Any],
    graph: Graph,
    runs_on: RunsOn,
    perf_count: bool,
    compile_again: Callable[[], CompiledSteps],
) -> CompiledSteps:
    """The subgraph that `export` wrote. Nothing of it is built before it is needed."""
    where = f"subgraph {graph.name!r}"
    words, code = unpacked(data, where, "compiled for a GPU")
    said = read_words(words, weights, where)
    try:
        steps = _read(words)
        sizes = {str(name): int(size) for name, size in words["binaries"].items()}
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        cause = "its list of launches is not what this version of Partita writes"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again") from None
    _check(steps, said, graph, where)
    again = compiling_again(graph, compile_again, "its kernels cannot be shown: it was exported without its body")
    compiled = kind(Assembled(steps, said.weights, (), said.outputs, said.checks), said.launches, again, runs_on, perf_count)
    for name, size in sizes.items():
        compiled.binaries[name], code = bytes(code[:size]), code[size:]
    compiled.notes = said.notes
    return compiled


def _read(words: Mapping[str, Any]) -> StepList | OpenSteps:
    """The launches of a description; ValueError, TypeError, KeyError or IndexError if it is malformed."""
    is_open = "calls" in words
    kinds: Any = (_open_size, _formula, OpenSlot, OpenStep) if is_open else (int, int, Slot, Step)
    size, formula, slot, step = kinds
    source = (str(words["source"]),)
    inputs, outputs = (
        tuple([slot(int(place), tuple(map(size, shape)), str(dtype)) for place, shape, dtype in listed])
        for listed in words["values"]
    )
    steps = tuple([
        step(int(number), str(kernel), tuple(map(_argument, arguments)), _three(map(formula, groups)), _three(map(int, local)),
             *map(int, shared))
        for number, kernel, arguments, groups, local, *shared in words["steps"]
    ])
    if not is_open:
        parts = tuple([Part(*map(int, part)) for part in words.get("parts", ())])
        return StepList(source, tuple(map(int, words["blocks"])), inputs, outputs, steps, parts)
    calls = tuple([tuple(map(int, call)) for call in words["calls"]])
    inside = tuple([Inside(*map(int, part)) for part in words.get("inside", ())])
    return OpenSteps(source, tuple(map(_open_size, words["sizes"])), calls, inputs, outputs, steps, inside)


def _check(steps: StepList | OpenSteps, said: ExportedWords, graph: Graph, where: str) -> None:
    """AcceleratorError if a value does not fit its memory, differs in type from the body's input or the weight, or does not
    exist."""
    types = [node[0].type for node in graph.inputs]
    wanted: list[Any] = [(t.dtype, t.shape) if isinstance(t, TensorType) else None for t in types]
    wanted += [(str(weight.dtype), tuple(weight.shape)) for weight in said.weights]
    ends = range(-len(types), len(steps.outputs))
    fits = _fits(steps) if isinstance(steps, StepList) else _fits_any_size(steps)
    fits = fits and all(origin in ends for origin in said.outputs if isinstance(origin, int))
    if not fits or wanted != [(slot.dtype, slot.shape) for slot in steps.inputs]:
        cause = "its list of launches is for other inputs or weights, or for less memory"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again")


def _fits(steps: StepList) -> bool:
    """True if launches use memory that exists, and each value fits its memory."""
    blocks, memory = range(len(steps.blocks)), range(len(steps.blocks) + len(steps.parts))
    return (
        all(s.block in blocks and _bytes(s) <= steps.blocks[s.block] for s in (*steps.inputs, *steps.outputs))
        and all(p.block in blocks and p.first >= 0 and 0 < p.bytes <= steps.blocks[p.block] - p.first for p in steps.parts)
        and all(number in memory for number in _used(steps))
    )


def _fits_any_size(steps: OpenSteps) -> bool:
    """True if launches use values that exist, and each value inside another fits there."""
    values, slots = range(len(steps.sizes)), (*steps.inputs, *steps.outputs)
    used = [*_used(steps), *(value for call in steps.calls for value in call), *(slot.value for slot in slots)]
    used += [value for part in steps.inside for value in (part.value, part.whole)]
    return (
        all(value in values for value in used)
        and all(_size_of(slot) == steps.sizes[slot.value] for slot in slots)
        and all(_is_within(part, steps.sizes) for part in steps.inside)
    )


def _used(steps: StepList | OpenSteps) -> list[int]:
    """The memory or values that launches use."""
    return [argument for step in steps.steps for argument in step.arguments if not isinstance(argument, Number)]


def _size_of(slot: OpenSlot) -> Size:
    size: Size = numpy_dtype(slot.dtype).itemsize
    return reduce(mul, slot.shape, size)


def _is_within(part: Inside, sizes: Sequence[Size]) -> bool:
    """True if the part lies within the whole."""
    own, whole = sizes[part.value], sizes[part.whole]
    return isinstance(own, int) and isinstance(whole, int) and 0 <= part.first <= whole - own


def _bytes(slot: Slot) -> int:
    return math.prod(slot.shape) * numpy_dtype(slot.dtype).itemsize


def _formula_words(formula: Formula) -> Any:
    if isinstance(formula, Extent):
        return {"terms": [[count, *monomial] for monomial, count in formula.terms.items()]}
    if isinstance(formula, Joined):
        return {"join": formula.operator, "of": [_formula_words(formula.left), _formula_words(formula.right)]}
    return formula


def _formula(written: Any) -> Formula:
    if not isinstance(written, dict):
        return _number(written)
    if "terms" in written:
        return Extent({tuple(map(str, names)): int(count) for count, *names in written["terms"]})
    left, right = map(_formula, written["of"])
    if written["join"] not in ARITHMETIC:
        raise ValueError(f"nothing joins numbers by {written['join']}")
    return Joined(written["join"], left, right)


def _number(written: Any) -> int | float:
    if not isinstance(written, (int, float)):
        raise TypeError(f"{written!r} is not a number")
    return written


def _open_size(written: Any) -> Size:
    size = _formula(written)
    if not isinstance(size, (int, Extent)):
        raise TypeError(f"{written!r} is not a size")
    return size


def _argument(written: Any) -> int | Number:
    return Number(str(written[0]), _formula(written[1])) if isinstance(written, list) else int(written)


def _three(counts: Any) -> Any:
    x, y, z = counts
    return x, y, z
