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
from partita.graph.types import TensorType, Type, numpy_dtype


def export(compiled: CompiledSteps) -> bytes:
    """The subgraph as bytes, without its weights."""
    steps, binaries = compiled.step_list, compiled.all_binaries()
    more = {
        "source": compiled.source_to_export(),
        **(written_open(steps) if isinstance(steps, OpenSteps) else _written_list(steps)),
        "binaries": {driver: len(binary) for driver, binary in binaries.items()},
    }
    return packed(compiled, more, *binaries.values())


def _written_list(steps: StepList) -> dict[str, Any]:
    return {
        "blocks": steps.blocks,
        "values": [[attrs.astuple(slot) for slot in slots] for slots in (steps.inputs, steps.outputs)],
        "steps": [_written(step) for step in steps.steps],
        "parts": [attrs.astuple(part) for part in steps.parts],
    }


def _written(step: Step) -> list[Any]:
    arguments = [[a.dtype, a.value] if isinstance(a, Number) else a for a in step.arguments]
    return [step.number, step.kernel, arguments, step.groups, step.local, step.shared]


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
        steps = read_open(words) if "calls" in words else _step_list(words)
        sizes = {str(name): int(size) for name, size in words["binaries"].items()}
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        cause = "its list of launches is not what this version of Partita writes"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again") from None
    if isinstance(steps, OpenSteps):
        _check_open(steps, said, graph, where)
    else:
        _check(steps, said, graph, where)
    again = compiling_again(graph, compile_again, "its kernels cannot be shown: it was exported without its body")
    compiled = kind(Assembled(steps, said.weights, (), said.outputs, said.checks), said.launches, again, runs_on, perf_count)
    for name, size in sizes.items():
        compiled.binaries[name], code = bytes(code[:size]), code[size:]
    compiled.notes = said.notes
    return compiled


def _step_list(words: Mapping[str, Any]) -> StepList:
    inputs, outputs = ([Slot(block, tuple(shape), dtype) for block, shape, dtype in slots] for slots in words["values"])
    steps = [Step(number, kernel, tuple(map(_argument, arguments)), _size(groups), _size(local), *map(int, shared))
             for number, kernel, arguments, groups, local, *shared in words["steps"]]
    blocks = tuple(map(int, words["blocks"]))
    parts = tuple([Part(int(block), int(first), int(size)) for block, first, size in words.get("parts", ())])
    return StepList((str(words["source"]),), blocks, tuple(inputs), tuple(outputs), tuple(steps), parts)


def _argument(written: Any) -> int | Number:
    return Number(*written) if isinstance(written, list) else int(written)


def _size(written: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = map(int, written)
    return x, y, z


def _check(steps: StepList, said: ExportedWords, graph: Graph, where: str) -> None:
    """AcceleratorError if a value does not fit its memory, differs in type from the body's input or the weight, or is an output
    that does not exist."""
    types, wanted = _wanted(said, graph)
    blocks = range(len(steps.blocks))
    used = [a for step in steps.steps for a in step.arguments if not isinstance(a, Number)]
    fits = all(s.block in blocks and _bytes(s) <= steps.blocks[s.block] for s in (*steps.inputs, *steps.outputs))
    fits = fits and all(
        p.block in blocks and p.first >= 0 and 0 < p.bytes <= steps.blocks[p.block] - p.first for p in steps.parts
    )
    ends, memory = range(-len(types), len(steps.outputs)), range(len(steps.blocks) + len(steps.parts))
    fits = fits and all(origin in ends for origin in said.outputs if isinstance(origin, int))
    if wanted != [(slot.dtype, slot.shape) for slot in steps.inputs] or not fits or not all(number in memory for number in used):
        cause = "its list of launches is for other inputs or weights, or for less memory"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again")


def _wanted(said: ExportedWords, graph: Graph) -> tuple[list[Type | None], list[Any]]:
    """The types of the body's inputs, and the element types and shapes that the inputs of the launches should have."""
    types = [node[0].type for node in graph.inputs]
    wanted: list[Any] = [(t.dtype, t.shape) if isinstance(t, TensorType) else None for t in types]
    return types, wanted + [(str(weight.dtype), tuple(weight.shape)) for weight in said.weights]


def _check_open(steps: OpenSteps, said: ExportedWords, graph: Graph, where: str) -> None:
    """AcceleratorError if a launch uses a value that does not exist, an input differs in type from the body's or the weight's, or
    an output does not exist."""
    types, wanted = _wanted(said, graph)
    values, ends = range(len(steps.sizes)), range(-len(types), len(steps.outputs))
    used = [a for step in steps.steps for a in step.arguments if not isinstance(a, Number)]
    used += [value for call in steps.calls for value in call]
    used += [slot.value for slot in (*steps.inputs, *steps.outputs)]
    used += [value for part in steps.inside for value in (part.value, part.whole)]
    fits = all(origin in ends for origin in said.outputs if isinstance(origin, int)) and all(value in values for value in used)
    fits = fits and all(_size_of(slot) == steps.sizes[slot.value] for slot in (*steps.inputs, *steps.outputs))
    fits = fits and all(_is_within(part, steps.sizes) for part in steps.inside)
    if wanted != [(slot.dtype, slot.shape) for slot in steps.inputs] or not fits:
        cause = "its list of launches is for other inputs or weights, or for less memory"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again")


def _size_of(slot: OpenSlot) -> Size:
    size: Size = numpy_dtype(slot.dtype).itemsize
    return reduce(mul, slot.shape, size)


def _is_within(part: Inside, sizes: Sequence[Size]) -> bool:
    """True if the part lies within the whole."""
    own, whole = sizes[part.value], sizes[part.whole]
    return isinstance(own, int) and isinstance(whole, int) and 0 <= part.first <= whole - own


def _bytes(slot: Slot) -> int:
    return math.prod(slot.shape) * numpy_dtype(slot.dtype).itemsize


def written_open(steps: OpenSteps) -> dict[str, Any]:
    """Description of the launches for an export."""
    return {
        "sizes": [_formula_words(size) for size in steps.sizes],
        "calls": steps.calls,
        "values": [
            [[slot.value, [_formula_words(size) for size in slot.shape], slot.dtype] for slot in slots]
            for slots in (steps.inputs, steps.outputs)
        ],
        "steps": [
            [
                step.number, step.kernel,
                [[a.dtype, _formula_words(a.value)] if isinstance(a, Number) else a for a in step.arguments],
                [_formula_words(count) for count in step.groups], step.local, step.shared,
            ]
            for step in steps.steps
        ],
        "inside": [[part.value, part.whole, part.first] for part in steps.inside],
    }


def read_open(words: Mapping[str, Any]) -> OpenSteps:
    """The launches of a description; ValueError, TypeError, KeyError or IndexError if it is malformed."""
    inputs, outputs = (
        tuple([OpenSlot(int(value), tuple(map(_open_size, shape)), str(dtype)) for value, shape, dtype in slots])
        for slots in words["values"]
    )
    steps = [
        OpenStep(int(number), str(kernel), tuple(map(_open_argument, arguments)), _three(map(_formula, groups)),
                 _three(map(int, local)), int(shared))
        for number, kernel, arguments, groups, local, shared in words["steps"]
    ]
    calls = tuple([tuple(map(int, call)) for call in words["calls"]])
    inside = tuple([Inside(*map(int, part)) for part in words.get("inside", ())])
    sizes = tuple(map(_open_size, words["sizes"]))
    return OpenSteps((str(words["source"]),), sizes, calls, inputs, outputs, tuple(steps), inside)


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
        raise TypeError(f"{written!r} is no number")
    return written


def _open_size(written: Any) -> Size:
    size = _formula(written)
    if not isinstance(size, (int, Extent)):
        raise TypeError(f"{written!r} is no size")
    return size


def _open_argument(written: Any) -> int | Number:
    return Number(str(written[0]), _formula(written[1])) if isinstance(written, list) else int(written)


def _three(counts: Any) -> Any:
    x, y, z = counts
    return x, y, z
