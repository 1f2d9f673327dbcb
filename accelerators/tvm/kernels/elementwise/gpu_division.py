"""Integers divided on a GPU: by zero the result is zero, as in numpy. A generic rule schedules the loops.

Processors have the same as a formula of chains, in `shared/formulas.py`."""

from __future__ import annotations

from typing import Any

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.numbers import INTEGERS
from accelerators.tvm.machine.library import part
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.schedules.choosing import schedule
from graph.node import Node, NodeEntry


def gpu_division(body: Body, machine: Machine) -> Draft | None:
    """The kernel for Div or Mod of integers; None for any other body."""
    node = body.ops[0]
    if len(body.ops) != 1 or element_of(node[0]) not in INTEGERS or 0 in shape_of(node[0]):
        return None
    scheduled, name = schedule(_function(body, node), machine)
    return Draft(scheduled, name)


def _function(body: Body, node: Node) -> Any:
    te, tirx = part("te"), part("tirx")
    tensors = {n[0]: te.placeholder(shape_of(n[0]), element_of(n[0]), n.name) for n in body.graph.inputs}

    def number(entry: NodeEntry | None, position: tuple[Any, ...]) -> Any:
        assert entry is not None
        if entry.node.value is not None:
            return tirx.const(entry.node.value.item(), element_of(entry))
        shape = shape_of(entry)
        own = position[len(position) - len(shape) :]
        return tensors[entry](*[0 if size == 1 else index for size, index in zip(shape, own, strict=True)])

    def at(*position: Any) -> Any:
        return _divided(node, *(number(entry, position) for entry in node.inputs))

    return te.create_prim_func([*tensors.values(), te.compute(shape_of(node[0]), at, name="out")])


def _divided(node: Node, a: Any, b: Any) -> Any:
    tirx, dtype = part("tirx"), element_of(node[0])
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    signed = dtype.startswith("int")
    minus = tirx.const(-1, dtype) if signed else one
    odd = tirx.any(b.equal(zero), b.equal(minus)) if signed else b.equal(zero)
    safe = tirx.Select(odd, one, b)
    if node.op == "Div":
        quotient = tirx.truncdiv(a, safe)
        return tirx.Select(b.equal(zero), zero, tirx.Select(b.equal(minus), zero - a, quotient) if signed else quotient)
    rest = tirx.truncmod(a, safe)
    if signed and not node.attrs.get("fmod", 0):
        other = tirx.any(tirx.all(rest < zero, b > zero), tirx.all(rest > zero, b < zero))
        rest = tirx.Select(other, rest + b, rest)
    return tirx.Select(odd, zero, rest)
