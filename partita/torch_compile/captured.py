"""Analysis of a graph that torch captured: which inputs are tensors, numbers, sizes of other inputs, and fixed."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import attrs

from partita.torch_compile.constants import is_constant

if TYPE_CHECKING:
    import torch


@attrs.frozen(eq=False)
class Captured:
    """A graph of torch's with the roles of its inputs."""

    module: torch.fx.GraphModule
    """The graph; a number that torch passed as a tensor is read as a number."""
    numbers: frozenset[int]
    """Indices of inputs that are such numbers."""
    sizes: Mapping[int, tuple[int, int]]
    """For each input that is a size: index of the tensor among the inputs, and dimension."""
    dynamic: Mapping[int, frozenset[int]]
    """For each input that is a tensor: the dimensions that may change from call to call."""
    integers: frozenset[int]
    """Indices of inputs that are integers, may change from call to call, and are not sizes of a tensor."""
    loose: frozenset[int]
    """Indices of inputs that are numbers, may change from call to call, and are not sizes of a tensor."""

    @classmethod
    def of(cls, module: torch.fx.GraphModule) -> Captured:
        """The graph with the roles of its inputs, from torch's metadata."""
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
        integers = frozenset(i for i, example in enumerate(examples) if isinstance(example, torch.SymInt) and i not in sizes)
        floats = {i for i, example in enumerate(examples) if isinstance(example, torch.SymFloat)}
        return cls(module, numbers, sizes, dynamic, integers, numbers | integers | floats)

    @property
    def has_one_result(self) -> bool:
        """True if the result is a single tensor, not a tuple."""
        (results,) = next(node for node in self.module.graph.nodes if node.op == "output").args
        return not isinstance(results, (tuple, list))

    @property
    def is_dynamic(self) -> bool:
        """True if a size or an integer may change from call to call."""
        return bool(self.integers) or any(self.dynamic.values())

    def constant_numbers(self, inputs: Sequence[Any], dynamic: bool) -> tuple[Any, ...]:
        """The numbers that a model for such inputs has as constants; a `dynamic` model takes integers as inputs."""
        values = self.with_numbers(inputs)
        return tuple([distinct(values[i]) for i in sorted(self.loose - (self.integers if dynamic else frozenset()))])

    def with_fixed(self, fixed: Collection[tuple[int, int | None]]) -> Captured:
        """The graph with these sizes, given by input and dimension, and these integers, given without dimension, fixed."""
        dynamic = {i: frozenset(d for d in dims if (i, d) not in fixed) for i, dims in self.dynamic.items()}
        return attrs.evolve(self, dynamic=dynamic, integers=frozenset(i for i in self.integers if (i, None) not in fixed))

    def with_numbers(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as `module` takes them, with numbers in place of tensors that stand for numbers."""
        return [value.item() if i in self.numbers else value for i, value in enumerate(inputs)]

    def kind(self, inputs: Sequence[Any], dynamic: bool, positions: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Key of all that a compiled model depends on in the inputs, or in those at these positions.

        With `dynamic` it does not include sizes and integers that may change."""
        return tuple([self._kind(i, inputs[i], dynamic) for i in (range(len(inputs)) if positions is None else positions)])

    def _kind(self, i: int, value: Any, dynamic: bool) -> Any:
        import torch

        if not isinstance(value, torch.Tensor):
            return None if dynamic and (i in self.sizes or i in self.integers) else distinct(value)
        if i in self.numbers:
            return distinct(value.item())
        shape: Sequence[int] = value.shape
        if dynamic:
            shape = [-1 if d in self.dynamic.get(i, ()) else size for d, size in enumerate(shape)]
        return tuple(shape), value.dtype, id(value) if is_constant(value) else None


def results_of(module: torch.fx.GraphModule) -> list[Any]:
    """Results of the graph; a part of a graph may have a single result without a tuple."""
    (results,) = next(node for node in module.graph.nodes if node.op == "output").args
    return list(results) if isinstance(results, (tuple, list)) else [results]


def let_go_of_tensors(module: torch.fx.GraphModule) -> None:
    """Drop torch's weak references to inputs in the graph's metadata: `torch.utils.swap_tensors` refuses tensors with any."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = (node.meta.get("example_value", node.meta.get("val")) for node in inputs)
    for mode in {value.fake_mode for value in values if hasattr(value, "fake_mode")}:
        mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()


def powers_of_negatives(module: torch.fx.GraphModule) -> None:
    """Use torch.pow for negative numbers: torch would write (-2) ** x into the graph's code as -2 ** x."""
    import torch

    for node in module.graph.nodes:
        if node.target is operator.pow and isinstance(node.args[0], (int, float)) and node.args[0] < 0:
            node.target = torch.pow
    module.recompile()


def distinct(value: Any) -> Any:
    """A key that is equal only for identical values: 0.0 and -0.0 differ, as do 1, 1.0 and True, and NaN equals NaN."""
    return (type(value), repr(value)) if isinstance(value, (int, float, complex)) else value


def _is_item(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"
