"""Side effects of ops of a captured graph: writes to their arguments, and changes of torch's modes."""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING, Any

from partita.torch_compile.layouts import is_number, memory_of

if TYPE_CHECKING:
    import torch

OPERATORS = ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor",
             "ilshift", "irshift")
"""Functions of Python's module `operator` that write to their first argument."""

MODES = ("_enter_", "_exit_", "_set_", "set_", "_disable_", "_push_", "_pop_")
"""Prefixes of functions that set a mode of torch's, in modules with the prefixes `OF_MODES`."""

OF_MODES = ("torch._C", "torch._functorch", "torch.amp", "torch.autograd")


def changes_in_place(node: torch.fx.Node) -> bool:
    """True if the op writes to a tensor that it is given."""
    return bool(written(node))


def written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes to whose tensors the op writes."""
    import torch

    name = node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))
    is_keyword = keyword.iskeyword(name.removesuffix("_"))  # operator.and_ and its like
    is_named_so = (name.endswith("_") and not name.endswith("__") and not is_keyword) or name in OPERATORS
    if node.op not in ("call_function", "call_method"):
        return []
    targets = [target for schema in _schemas(node.target) for target in _written_arguments(node, schema)]
    if node.kwargs.get("out") is not None:
        targets.append(node.kwargs["out"])
    elif name == "instance_norm":  # writes its statistics without declaring it
        targets += [*node.args[1:3], node.kwargs.get("running_mean"), node.kwargs.get("running_var")]
    elif not targets and (is_named_so or node.kwargs.get("inplace")):
        targets.append(node.args[0] if node.args else node.kwargs.get("input"))
    leaves = torch.utils._pytree.tree_leaves(targets)
    return [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node) and not is_number(leaf)]


def writes_to_shared(module: torch.fx.GraphModule) -> torch.fx.Node | None:
    """The first op that writes to an input, or to memory of which a view exists; None if there is none.

    A part of the graph returns new tensors, so a view made by one part would not see what another part writes."""
    nodes = list(module.graph.nodes)
    writes = [(i, node, memory_of(target)) for i, node in enumerate(nodes) for target in written(node)]
    last = {memory: i for i, _, memory in writes}
    for _, node, memory in writes:
        if memory is None:
            return node
        owner, *others = [other for other in nodes[: last[memory]] if memory_of(other) == memory]
        if owner.op in ("placeholder", "get_attr") or not all(map(changes_in_place, others)):
            return node
    return None


def sets_a_mode(node: torch.fx.Node) -> bool:
    """True if the op changes how torch runs later ops: autocast, gradients, a level of `vmap`."""
    if node.op != "call_function":
        return False
    name, home = str(getattr(node.target, "__name__", "")), str(getattr(node.target, "__module__", ""))
    return name.endswith("_nesting") or (home.startswith(OF_MODES) and name.startswith(MODES))


def _written_arguments(node: torch.fx.Node, schema: Any) -> list[Any]:
    """The arguments to which an op of this schema writes."""
    given = dict(zip((argument.name for argument in schema.arguments), node.args)) | node.kwargs
    return [given.get(argument.name) for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write]


def _schemas(target: Any) -> list[Any]:
    """Schemas of an op; if its overload is unknown, those of all overloads except the `out` ones."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name)._schema for name in target.overloads() if not name.endswith("out")]
    return []
