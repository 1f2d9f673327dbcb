"""From scheduled kernels to machine code, each structure once in a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.importing import quiet, refused
from accelerators.tvm.library import lock, part, tvm
from accelerators.tvm.lowering import Lowered, lower, nameless
from accelerators.tvm.machine import Machine


@attrs.frozen(slots=True, eq=False)
class Built:
    """A body's kernels as machine code."""

    lowered: Lowered
    """What they were made of."""
    library: Any
    """The runtime module that holds them."""


def build(body: Body, machine: Machine) -> Built:
    """The body's machine code; a body of equal structure is compiled once, and the last CACHED stay known."""
    key = (body.key, machine)
    with _guard:
        known = _built.get(key)
        if known is not None:
            _built.move_to_end(key)
            return known
    lowered = lower(body, machine)
    made = Built(lowered, compile_kernels(lowered.kernels(), machine.target))
    with _guard:
        _built[key] = made
        while len(_built) > CACHED:
            _built.popitem(last=False)
    return made


def is_built(body: Body, machine: Machine) -> bool:
    """Is the machine code of this structure there already?"""
    with _guard:
        return (body.key, machine) in _built


def compile_kernels(kernels: Mapping[str, Any], target: Any) -> Any:
    """A runtime module of these kernels under their names."""
    named = {name: nameless(kernel).with_attr("global_symbol", name) for name, kernel in kernels.items()}
    with lock, quiet(), refused("code generation"):
        return part("tirx").build(tvm().IRModule(named), target=target)


CACHED = 2048
"""How many bodies' machine code stays in memory."""

_guard = threading.Lock()
_built: OrderedDict[tuple[str, Machine], Built] = OrderedDict()


def forget() -> None:
    """Empty the cache."""
    with _guard:
        _built.clear()
