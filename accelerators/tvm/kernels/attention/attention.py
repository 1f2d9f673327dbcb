"""Attention in one kernel that never stores the full score matrix: chooses the kernel for a body."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.attention.any_length import AnyLength
from partita.accelerators.tvm.kernels.attention.few_rows import FewRows
from partita.accelerators.tvm.kernels.attention.fixed_length import FixedLength
from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.shared.heads import Heads, found_in
from partita.accelerators.tvm.kernels.shared.instructions import FMA, Instruction, instruction_for
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.panels import MANY, best_tile
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent


def attention(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one attention."""
    match = found_in(body, "Softmax", find_attention)
    if match is None:
        return None
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    if isinstance(rows, Extent) or isinstance(keys, Extent):
        return _of_any_length(body, match, machine)
    heads = Heads.of(body, "attention", tuple(batch))
    few = FewRows(match, heads, machine, rows, keys, depth, columns, rows)
    first, second = best_tile(rows, keys, machine, "scores"), best_tile(rows, columns, machine, "values")
    if few.is_worth_it:
        few.write(few.threads > 1)
    elif first is not None and second is not None:
        instruction = _instruction(match, heads, depth, machine)
        FixedLength(match, heads, machine, rows, keys, depth, columns, first, second, instruction).write()
    else:
        return None
    return heads.problem.draft(heads.kernel, "attention")


def _of_any_length(body: Body, match: Attention, machine: Machine) -> Draft | None:
    """The kernel for a dynamic number of queries or keys."""
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    first, second = best_tile(MANY, MANY, machine, "scores"), best_tile(MANY, columns, machine, "values")
    if first is None or second is None:
        return None
    heads = Heads.of(body, "attention", tuple(batch))
    AnyLength(match, heads, machine, rows, keys, depth, columns, first, second).write()
    return heads.problem.draft(heads.kernel, "attention")


def _instruction(match: Attention, heads: Heads, depth: int, machine: Machine) -> Instruction:
    """The instruction for both products: one that takes pairs if the layout of all matrices allows it, else FMA."""
    dtypes = {element_of(operand.source) for operand in match.operands}
    chosen = instruction_for(dtypes.pop(), machine) if len(dtypes) == 1 else FMA
    is_beside = heads.read(match.query).strides.steps[-1] == 1 and depth % chosen.group == 0
    return chosen if is_beside else FMA
