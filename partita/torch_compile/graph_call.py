"""One graph of torch's as a function: exported when it is first called with inputs of a kind, then run by a compiled model.

Parameters and buffers become constants that share torch's memory. Each call checks whether torch changed one since, and then
recompiles."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.compiling import compile as compiled
from partita.accelerators.process.forking import Guard
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.graph.logs import logger
from partita.torch_compile.captured import Captured
from partita.torch_compile.constants import Constants
from partita.torch_compile.exporting import Exported, NotExported, SizesFixed, export_graph
from partita.torch_compile.tensors import as_array, as_tensor

if TYPE_CHECKING:
    import torch

KEPT = 8
"""Maximum number of compiled models for each set of constants, for inputs of different kinds."""

NUMBERS = 3
"""Maximum number of different (sets of) numbers for which a graph is compiled; for all others torch runs it."""


@attrs.frozen(eq=False)
class Ready:
    """A graph that was compiled for inputs of one kind."""

    exported: Exported
    model: CompiledModel | None
    """None if the graph only returns its inputs, or views of them."""
    constants: Constants
    """Parameters and buffers that are constants of the model."""
    others: tuple[int, ...]
    """Positions of all other inputs."""
    kind: tuple[Any, ...]
    """Key of the other inputs on which the model depends."""

    def fits(self, inputs: Sequence[Any], captured: Captured, dynamic: bool) -> bool:
        """True if these inputs are of its kind, with unchanged constants.

        torch itself checks whether the constants still have their shapes, and captures another graph if not. There may be
        hundreds of them, all checked in each call."""
        given = [inputs[i] for i in self.exported.fixed]
        return self.constants.are(given) and captured.kind(inputs, dynamic, self.others) == self.kind

    def run(self, inputs: Sequence[Any], captured: Captured) -> tuple[Any, ...]:
        """Outputs of the captured graph."""
        arrays: Sequence[np.ndarray] = ()
        exported = self.exported
        if self.model is not None:
            arrays = self.model(*[as_array(inputs[i]) for i in exported.fed])
        computed = {k: as_tensor(arrays[out.position], out.dtype, out.order, out.repeated) for k, out in exported.computed}
        if exported.views is None:
            return tuple(computed.values())
        views = exported.views(*captured.with_numbers(inputs), *computed.values())
        return tuple([computed[k] if k in computed else views[output.position] for k, output in enumerate(exported.outputs)])


class GraphCall:
    """A graph that Partita runs as a whole."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        devices: str | Sequence[str],
        config: Mapping[str, Any] | None,
        models: list[CompiledModel] | None = None,
    ) -> None:
        self._models = models
        self._captured = Captured.of(module)
        self._forward = module.forward
        """The graph as torch runs it."""
        self._devices = devices
        self._config = config
        self._dynamic = self._captured.is_dynamic
        self._has_one_result = self._captured.has_one_result
        self._lock = Guard()
        self._ready: OrderedDict[Any, Ready] = OrderedDict()
        self._last: Ready | None = None
        self._numbers = set[tuple[Any, ...]]()
        """Numbers for which the graph was compiled."""
        self._refused: deque[Any] = deque(maxlen=KEPT)
        """Recent kinds of inputs for which the graph has no form in ONNX."""
        self._said = False
        """True if it was logged that torch runs the graph for further numbers."""

    def __call__(self, *inputs: Any) -> Any:
        ready = self._or_none(inputs)
        if ready is None:
            return self._forward(*inputs)
        results = ready.run(inputs, self._captured)
        return results[0] if self._has_one_result else results

    def why_not(self, inputs: Sequence[Any]) -> str | None:
        """Why the graph has no form in ONNX; None if it has, and then it is compiled for such inputs."""
        try:
            self._for(inputs)
        except NotExported as error:
            return error.cause
        return None

    def _or_none(self, inputs: Sequence[Any]) -> Ready | None:
        """The model for such inputs; None if torch has to run the graph for them."""
        try:
            return self._for(inputs)
        except NotExported as error:
            logger("torch").info("torch runs a graph for some inputs: %s", error.cause)
            self._refused.append(self._captured.kind(inputs, self._dynamic))
            return None

    def _for(self, inputs: Sequence[Any]) -> Ready | None:
        """The model for such inputs; NotExported if the graph has no form in ONNX for them. None if that is already known, or if
        too many numbers differ from those for which it was compiled."""
        last = self._last
        if last is not None and last.fits(inputs, self._captured, self._dynamic):
            return last
        with self._lock.lock:
            key = self._captured.kind(inputs, self._dynamic)
            if key in self._refused:
                return None
            ready = self._ready.get(key)
            if ready is None or not ready.fits(inputs, self._captured, self._dynamic):
                if self._has_too_many_numbers(inputs):
                    return None
                ready = self._compiled(inputs)
                key = self._captured.kind(inputs, self._dynamic)
                self._ready[key] = ready
                self._forget(ready.constants)
            self._ready.move_to_end(key)
            self._last = ready
            return ready

    def _has_too_many_numbers(self, inputs: Sequence[Any]) -> bool:
        """True if the numbers in such a call are new, and the graph was already compiled for the maximum of numbers.

        They are constants of a model: one whose numbers change with each call would be compiled at each."""
        numbers = self._captured.constant_numbers(inputs, self._dynamic)
        if numbers in self._numbers or len(self._numbers) < NUMBERS:
            self._numbers.add(numbers)
            return False
        if not self._said:
            text = "torch runs a graph for numbers other than the first %d, since each would be compiled; use tensors instead"
            logger("torch").info(text, NUMBERS)
            self._said = True
        return True

    def _forget(self, constants: Constants) -> None:
        """Drop the models whose constants no longer exist, and the oldest with these constants if there are too many.

        torch uses one graph for all modules of a class, say the layers of a model that are compiled one by one: each has its own
        constants and models."""
        for key in [key for key, ready in self._ready.items() if ready.constants.are_gone]:
            del self._ready[key]
        alike = [key for key, ready in self._ready.items() if ready.constants.identities == constants.identities]
        for key in alike[:-KEPT]:
            del self._ready[key]

    def _compiled(self, inputs: Sequence[Any]) -> Ready:
        """A model compiled for such inputs."""
        exported = self._exported(inputs)
        # A write to them during compilation is detected at the next call.
        constants = Constants.of([inputs[i] for i in exported.fixed])
        model = None if exported.graph is None else compiled(exported.graph, self._devices, self._config)
        if model is not None and self._models is not None:
            self._models.append(model)
        fixed = set(exported.fixed)
        others = tuple(i for i in range(len(inputs)) if i not in fixed)
        kind = self._captured.kind(inputs, self._dynamic, others)
        return Ready(exported, model, constants, others, kind)

    def _exported(self, inputs: Sequence[Any]) -> Exported:
        """Our graph; the sizes and integers that torch's exporter fixes become static."""
        while self._dynamic:
            try:
                return export_graph(self._captured, inputs, dynamic=True)
            except SizesFixed as error:
                self._captured = self._captured.with_fixed(error.fixed)
                self._dynamic = self._captured.is_dynamic
            except NotExported:
                self._dynamic = False
        return export_graph(self._captured, inputs, dynamic=False)
