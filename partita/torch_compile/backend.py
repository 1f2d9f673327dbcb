"""The function that torch calls with each captured graph: `torch.compile(module, backend="partita")`.

Partita runs inference. A graph that needs gradients, or tensors that are not on the processor, runs in torch, with one
warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.forking import Guard
from partita.graph.logs import logger
from partita.torch_compile.captured import let_go_of_tensors, powers_of_negatives
from partita.torch_compile.graph_call import GraphCall
from partita.torch_compile.splitting import split

if TYPE_CHECKING:
    import torch

    from partita.accelerators.runtime.compiled_model import CompiledModel

DEVICES = "HETERO:cpu,reference"
"""Default devices."""

WHERE = 'torch.compile(backend="partita")'

Call = Callable[..., Any]


@attrs.frozen
class Options:
    """The `options` of `torch.compile`."""

    devices: str | Sequence[str] = DEVICES
    """Devices, as `pt.compile` takes them."""
    config: Mapping[str, Any] | None = None
    """Configuration of the devices, as `pt.compile` takes it."""
    models: list[CompiledModel] | None = None
    """A list to which each compiled model is added."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """The options by name; AcceleratorError for one that does not exist."""
        known = [field.name for field in attrs.fields(cls)]
        unknown = next((name for name in given or {} if name not in known), None)
        if unknown is not None:
            raise AcceleratorError(f"there is no option {unknown!r}", where=WHERE, remedy=f"Options are {', '.join(known)}")
        options = cls(**dict(given or {}))
        if not isinstance(options.models, list | None):
            raise AcceleratorError("models is a list, to which each compiled model is added", where=WHERE, remedy="Pass []")
        return options


def backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Call:
    """A function that computes the captured graph: on Partita's devices, or in torch if these cannot."""
    if mode not in (None, "default"):
        raise AcceleratorError(f"there is no mode {mode!r}", where=WHERE, remedy="Leave mode out; options name the devices")
    chosen = Options.of(options)
    powers_of_negatives(module)
    reason = why_in_torch(example_inputs)
    if reason is not None:
        warnings.warn(f"partita leaves a graph of {len(module.graph.nodes)} nodes in torch: {reason}", stacklevel=2)
        return module.forward
    logger("torch").info("a graph of %d nodes was captured", len(module.graph.nodes))
    return _Lazy(module, chosen)


def why_in_torch(inputs: Sequence[Any]) -> str | None:
    """Why a graph with such inputs runs in torch; None if Partita may run it."""
    import torch

    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "it needs gradients, and Partita runs inference; call the module under torch.no_grad() or torch.inference_mode()"
    elsewhere = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), None)
    return None if elsewhere is None else f"its tensors are on {elsewhere}, and Partita takes tensors on the processor"


class _Lazy:
    """A captured graph that is compiled when it is first called, since all sizes and weights are known then."""

    def __init__(self, module: torch.fx.GraphModule, options: Options) -> None:
        self._module = module
        self._options = options
        self._call: Call | None = None
        self._guard = Guard(RLock)

    def __call__(self, *inputs: Any) -> Any:
        if self._call is None:
            with self._guard.lock:
                # Another thread may have compiled it meanwhile.
                self._call = self._call or self._made(inputs)
        return self._call(*inputs)

    def _made(self, inputs: Sequence[Any]) -> Call:
        """The whole graph as one call, or parts of it if torch has to run others."""
        options = self._options
        let_go_of_tensors(self._module)
        whole = GraphCall(self._module, options.devices, options.config, options.models)
        reason = whole.why_not(inputs)
        if reason is None:
            return whole
        logger("torch").info("a graph is cut, since it has no form in ONNX as a whole: %s", reason)
        return split(self._module, inputs, lambda part: GraphCall(part, options.devices, options.config, options.models))
