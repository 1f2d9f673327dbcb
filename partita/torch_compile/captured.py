"""What torch captured: which inputs of the graph are tensors, numbers, sizes of other inputs, and fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import torch


@attrs.frozen(eq=False)
class Captured:
    """A graph of torch's, looked through once."""

    module: torch.fx.GraphModule
    """The graph; a number that torch handed over as a tensor is read as a number."""
    numbers: frozenset[int]
    """The inputs that are such numbers."""
    sizes: Mapping[int, tuple[int, int]]
    """By input that is a size: the tensor among the inputs, and the dimension, that have it."""
    dynamic: Mapping[int, frozenset[int]]
    """By input that is a tensor: the dimensions that may change from call to call."""
    loose: frozenset[int]
    """The inputs that are numbers and may change from call to call, and that are no sizes of a tensor."""

    @classmethod
    def of(cls, module: torch.fx.GraphModule) -> Captured:
        """What the graph and the notes of torch on its inputs say."""
        import torch

        module = torch.fx.GraphModule(module, deepcopy(module.graph))
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        numbers = frozenset(i for i, node in enumerate(inputs) if node.users and all(map(_is_item, node.users)))
        for i in numbers:
            for item in list(inputs[i].users):
                item.replace_all_uses_with(inputs[i])
                module.graph.erase_node(item)
        module.recompile()
        examples = [node.meta.get("example_value", node.meta.get("val")) for node in inputs]
        dynamic, owners = {}, {}
        for i, example in enumerate(examples):
            if isinstance(example, torch.Tensor):
                symbols = {d: str(size) for d, size in enumerate(example.shape) if isinstance(size, torch.SymInt)}
                dynamic[i] = frozenset(symbols)
                owners.update({symbol: (i, d) for d, symbol in symbols.items() if symbol not in owners})
        sizes = {
            i: owners[str(example)]
            for i, example in enumerate(examples)
            if isinstance(example, torch.SymInt) and str(example) in owners
        }
        changing = {i for i, example in enumerate(examples) if isinstance(example, (torch.SymInt, torch.SymFloat))}
        return cls(module, numbers, sizes, dynamic, numbers | (changing - sizes.keys()))

    @property
    def has_one_result(self) -> bool:
        """Is the result a tensor, and no tuple?"""
        (results,) = next(node for node in self.module.graph.nodes if node.op == "output").args
        return not isinstance(results, (tuple, list))

    @property
    def is_dynamic(self) -> bool:
        """May a size change from call to call?"""
        return any(self.dynamic.values())

    def with_numbers(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as `module` takes them: tensors that stand for numbers are numbers."""
        return [value.item() if i in self.numbers else value for i, value in enumerate(inputs)]

    def kind(self, inputs: Sequence[Any], dynamic: bool, positions: Sequence[int] | None = None) -> tuple[Any, ...]:
        """What a compiled model depends on of the inputs, or of those at these positions.

        With `dynamic` that is not the sizes that may change."""
        return tuple([self._kind(i, inputs[i], dynamic) for i in (range(len(inputs)) if positions is None else positions)])

    def _kind(self, i: int, value: Any, dynamic: bool) -> Any:
        import torch

        if not isinstance(value, torch.Tensor):
            return None if dynamic and i in self.sizes else value
        if i in self.numbers:
            return value.item()
        shape: Sequence[int] = value.shape
        if dynamic:
            shape = [-1 if d in self.dynamic.get(i, ()) else size for d, size in enumerate(shape)]
        return tuple(shape), value.dtype, id(value) if is_fixed(value) else None


def results_of(module: torch.fx.GraphModule) -> list[Any]:
    """The results of the graph; a part of a graph may have a single one that stands in no tuple."""
    (results,) = next(node for node in module.graph.nodes if node.op == "output").args
    return list(results) if isinstance(results, (tuple, list)) else [results]


def is_fixed(value: Any) -> bool:
    """Is it a parameter or a buffer of the user's module? Of one made under inference_mode torch counts no changes: it is an
    input like any other."""
    import torch

    is_static = isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None
    return is_static and not value.is_inference()


def _is_item(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"
