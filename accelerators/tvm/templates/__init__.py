"""Schedules of our own, one file per kind of body; each file says its idea first.

A template looks at a body and either declines or drafts its kernel. The first that does not decline wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine

Array = np.ndarray[Any, Any]


@attrs.frozen(slots=True, eq=False)
class Draft:
    """A template's kernel."""

    function: Any
    """The scheduled TensorIR function: the body's inputs, then its outputs."""
    schedule: str
    """The schedule's name."""
    packs: Mapping[int, Callable[[Array], Array]] = attrs.field(factory=dict)
    """By input, how a weight is laid out for the kernel."""
    shapes: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """By input, the shape that the kernel takes, where it is not the body's."""
    results: Sequence[tuple[int, ...]] = ()
    """The shapes that the kernel makes, where they are not the body's."""


Template = Callable[[Body, Machine], "Draft | None"]

_templates: dict[str, list[tuple[frozenset[str], Template]]] = {"cpu": [], "cuda": []}


def template(*kinds: str, ops: frozenset[str] = frozenset()) -> Callable[[Template], Template]:
    """Register a template for these kinds of machine, for bodies that hold one of the ops (none: any body)."""

    def register(function: Template) -> Template:
        for kind in kinds:
            _templates[kind].append((ops, function))
        return function

    return register


def find_template(body: Body, machine: Machine) -> Draft | None:
    """The kernel of the first template that takes the body."""
    from accelerators.tvm.templates import catalogue  # noqa: F401  importing it registers them

    held = {f"{node.domain}.{node.op}" if node.domain else str(node.op) for node in body.ops}
    for ops, function in _templates[machine.kind]:
        if not ops or ops & held:
            made = function(body, machine)
            if made is not None:
                return made
    return None
