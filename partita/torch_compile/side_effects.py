"""What an op of a captured graph does beside computing its result: ops that write to what they are given, and that set a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

OPERATORS = ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor",
             "ilshift", "irshift")
"""The functions of Python's module `operator` that write to their first argument."""

MODES = ("_enter_", "_exit_", "_set_", "set_", "_disable_", "_push_", "_pop_")
"""How the functions are named by which torch sets a mode, in the modules whose names begin with `OF_MODES`."""

OF_MODES = ("torch._C", "torch._functorch", "torch.amp", "torch.autograd")


def changes_in_place(node: torch.fx.Node) -> bool:
    """Does the op write to a tensor that it is given?"""
    target = node.target
    if any(schema.is_mutable for schema in _schemas(target)):
        return True
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    is_named_so = (name.endswith("_") and not name.endswith("__")) or name in OPERATORS
    return is_named_so or bool(node.kwargs.get("inplace")) or node.kwargs.get("out") is not None


def sets_a_mode(node: torch.fx.Node) -> bool:
    """Does the op change how torch runs those that follow: autocast, gradients, a level of `vmap`?"""
    if node.op != "call_function":
        return False
    name, home = str(getattr(node.target, "__name__", "")), str(getattr(node.target, "__module__", ""))
    return name.endswith("_nesting") or (home.startswith(OF_MODES) and name.startswith(MODES))


def _schemas(target: Any) -> list[Any]:
    """What torch says of an op's arguments; of all its overloads but those for `out`, where it is not said which one runs."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name)._schema for name in target.overloads() if not name.endswith("out")]
    return []
