"""Common part of the TVM devices: they query what TVM supports, fuse ops, lower each body, and assemble the kernels.

A device may be created long before it compiles, so its import is light: methods import what does the work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.interface.accelerator import (
    Accelerator,
    AnySize,
    CompiledSubgraph,
    CompileStatic,
    TunedKernel,
)
from partita.accelerators.interface.keys import Key, callback, flag, flag_or_auto
from partita.accelerators.interface.second_level import SecondLevel, second_level_of
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.machine.library import PACKAGE, why_no_compiler
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.run.runtime import runtime, version
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.bodies.body import Body
    from partita.accelerators.tvm.bodies.lifting import Lifted
    from partita.accelerators.tvm.code.building import Built
    from partita.accelerators.tvm.compiled.assembling import Assembled
    from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, RunsOn
    from partita.accelerators.tvm.machine.special import Used

NOTES = "partita.notes"
"""Graph attribute with notes on the layout for the compile report."""


class TvmAccelerator(Accelerator):
    """A device whose kernels TVM compiles."""

    compile_refuses = True
    loses_nothing = True
    isolates_itself = True
    """With ISOLATE each kernel is first compiled in a child process, which has ISOLATE_SECONDS for it; AUTO limits that to
    kernels that TVM's own schedules make."""
    dynamic_shapes = False
    """Kernels are made for static sizes: a body with symbols is compiled again for each size."""
    config_keys: ClassVar[Mapping[str, Any]] = {
        "PROGRESS": Key(None, callback),
        "ANY_SIZE": Key(True, flag),
    }
    """PROGRESS: called with (kernels done, kernels in all, name). With ANY_SIZE a subgraph with symbols is compiled once for all
    sizes, if all its kernels have a form for any."""

    def __init__(self) -> None:
        runtime()
        super().__init__()

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The machine that the configuration compiles for."""
        raise NotImplementedError("a TVM device has to define machine(config)")

    def transform(self, graph: Graph) -> Graph:
        """Infer shapes, fold constants, and expand functions of which TVM has only the parts. A graph for any size is ready."""
        from partita.accelerators.tvm.sizes.sizing import is_for_any_size

        if is_for_any_size(graph):
            return graph
        return self._prepared(graph, lambda settled: settled)

    def _prepared(self, graph: Graph, name: Callable[[Graph], Graph]) -> Graph:
        """Result of the last stage, where `name` replaces values that follow from sizes by constants."""
        from partita.accelerators.tvm.prepare.preparing import prepared

        with self._trials_as_configured():
            *_, result = prepared(graph, self.supports, name)
        return result

    def _ready(self, graph: Graph) -> tuple[Graph, tuple[str, ...]]:
        """The transformed graph, with constants for values that follow from sizes. For each of these it has an additional output,
        a flag other than 0 if the value differs. Also the error messages of these flags."""
        from partita.accelerators.tvm.prepare.implied import watch_implied
        from partita.accelerators.tvm.sizes.sizing import is_for_any_size

        complaints: list[str] = []

        def watch(settled: Graph) -> Graph:
            watched, words = watch_implied(settled)
            complaints.extend(words)
            return watched

        ready = graph if is_for_any_size(graph) else self._prepared(graph, watch)
        return ready, tuple(complaints)

    def any_size(self, graph: Graph, config: Mapping[str, Any], compile_static: CompileStatic) -> AnySize | str | None:
        """One set of kernels for all sizes, if every kernel of the graph has a form for any."""
        if not config["ANY_SIZE"]:
            return None
        from partita.accelerators.tvm.layouts.whole_sums import whole_sums
        from partita.accelerators.tvm.prepare.implied import watch_implied
        from partita.accelerators.tvm.run.kept_memory import kept_memory
        from partita.accelerators.tvm.sizes.any_size import SizedSubgraph
        from partita.accelerators.tvm.sizes.enough_rows import enough_rows
        from partita.accelerators.tvm.sizes.fits_apart import fits_apart
        from partita.accelerators.tvm.sizes.sizing import forms_for_any_size

        reason = ""
        try:
            transformed = self.configured(config).transform(graph)
            if watch_implied(transformed)[1]:
                return "compiled for each size: whether values agree with stated sizes is looked at for fixed sizes alone"
            for ready in forms_for_any_size(transformed):
                apart = fits_apart(graph, transformed, ready.inputs)
                is_gpu = self.machine(config).is_gpu
                ready = attrs.evolve(ready, conditions=(*ready.conditions, *whole_sums(ready.graph, is_gpu), *apart))
                if is_gpu:
                    ready = attrs.evolve(ready, conditions=(*ready.conditions, *ready.filled, *enough_rows(ready.graph)))
                try:
                    return SizedSubgraph(ready, compile_static(ready.graph), None if is_gpu else kept_memory.note)
                except _NO_FORM as error:
                    reason = _reason(error)
        except _NO_FORM as error:
            reason = reason or _reason(error)
        return f"compiled for each size: {reason}"

    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """Answer as all devices do; unless ISOLATE is False, an op that crashes TVM's compiler counts as one that the device does
        not run.
        """
        from partita.accelerators.tvm.prepare.preparing import types_alone

        with self._trials_as_configured(), types_alone():
            return super().query(graph)

    def _trials_as_configured(self) -> contextlib.AbstractContextManager[None]:
        if self._config["ISOLATE"] is False:
            return contextlib.nullcontext()
        from partita.accelerators.tvm.query.isolated_trials import isolated_trials

        return isolated_trials(self.machine(self._config), self._config["ISOLATE_SECONDS"])

    def stages(self, graph: Graph) -> Iterator[Graph]:
        """The steps of `transform`, and the treatment of values that follow from sizes in `compile`."""
        from partita.accelerators.tvm.prepare.preparing import prepared

        return prepared(graph, self.supports)

    def supports(self, node: Node, graph: Graph) -> bool | str:
        """True if TVM compiles the op correctly, otherwise the reason."""
        from partita.accelerators.tvm.query.support import supported

        return self.why_no_compiler() or supported(node, graph, self.machine(self._config))

    def why_no_compiler(self) -> str | None:
        """Why this device cannot compile here and only runs models that were compiled before; None if it can."""
        return why_no_compiler()

    def why_no_export(self) -> str | None:
        """The reason if there is no linker to make a library of the kernels."""
        from partita.accelerators.tvm.code.linking import MISSING, NEEDED, can_link

        return None if can_link() else f"{MISSING}. {NEEDED}"

    def add_extension(self, extension: Any) -> None:
        """Add a TvmExtension: a custom op, defined by TVM's tensor expressions."""
        extensions.add(extension)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledTvm:
        """Compile each second-level body alone, build it once for each structure, and assemble all."""
        from partita.accelerators.tvm.bodies_to_kernels import compile_lifted

        missing = self.why_no_compiler()
        if missing is not None:
            raise CompileError(missing, where=f"device {self.name!r}")
        machine = self.machine(config)
        lifted, notes, checks = self._lifted(graph, config, machine)
        del graph  # Its weights are freed as they are packed.
        compiled = compile_lifted(self, lifted, checks, config, machine)
        compiled.notes = (*notes, *compiled.notes)
        return compiled

    def _lifted(
        self, graph: Graph, config: Mapping[str, Any], machine: Machine
    ) -> tuple[Lifted, tuple[str, ...], tuple[str, ...]]:
        """The graph laid out and fused, weights apart; notes for the report; error messages of the flags among its outputs."""
        from partita.accelerators.tvm.bodies.indices import with_flags
        from partita.accelerators.tvm.bodies.lifting import lift_weights
        from partita.accelerators.tvm.kernels.fusion import fuse
        from partita.accelerators.tvm.sizes.sizing import is_for_any_size
        from partita.passes.infer.contract import require_agreement

        if not is_for_any_size(graph):
            require_agreement(graph)
        device = self.configured(config)
        ready, complaints = device._ready(graph)
        laid_out = device._laid_out(ready, machine)
        watched, checks = with_flags(laid_out) if machine.is_gpu else (laid_out, ())
        return lift_weights(fuse(watched, machine)), tuple(laid_out.attrs.get(NOTES, ())), (*complaints, *checks)

    def compiled_class(self) -> type[CompiledTvm]:
        """Class of the result of `compile`."""
        from partita.accelerators.tvm.compiled.subgraph import CompiledTvm

        return CompiledTvm

    def put_together(self, lifted: Lifted, built: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
        """The kernels of a graph's calls as one executable."""
        from partita.accelerators.tvm.compiled.assembling import assemble

        return assemble(lifted, built, machine)

    def lay_out(self, graph: Graph, machine: Machine) -> Graph:
        """The graph with activations and weights in the layouts of the machine's kernels."""
        from partita.accelerators.tvm.prepare.quantized_weights import release_weights

        return release_weights(graph)

    def laid_out(self, graph: Graph, machine: Machine) -> Graph:
        """The graph transformed and laid out; its attribute NOTES has the notes for the report."""
        return self._laid_out(self._ready(graph)[0], machine)

    def _laid_out(self, ready: Graph, machine: Machine) -> Graph:
        from partita.accelerators.tvm.bodies.indices import check_indices

        return self.lay_out(check_indices(ready), machine)

    def fused(self, graph: Graph, machine: Machine) -> Graph:
        """The graph with a call for each kernel."""
        from partita.accelerators.tvm.kernels.fusion import fuse

        return fuse(self.laid_out(graph, machine), machine)

    def second_level(self, graph: Graph, config: Mapping[str, Any]) -> SecondLevel:
        """Description of the partition into kernels."""
        from partita.accelerators.tvm.bodies.blocked import origins_of

        return second_level_of(self.configured(config).fused(graph, self.machine(config)), origins_of)

    def runs_on(self, config: Mapping[str, Any]) -> RunsOn:
        """The machine and device on which the configuration runs a compiled subgraph."""
        from partita.accelerators.tvm.compiled.subgraph import RunsOn

        return RunsOn(self.machine(config), int(config["DEVICE_ID"]))

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Tune the choices of each distinct kernel by measuring, the slowest kernels first."""
        from partita.accelerators.tvm.bodies.body import make_body
        from partita.accelerators.tvm.tune.tuner import Tuner

        machine = self.machine(config)
        fused = self.configured(config).fused(graph, machine)
        bodies = [make_body(node.subgraph) for node in fused.nodes if node.is_call and node.subgraph is not None]
        Tuner(machine, config, deadline, shown).run(bodies)

    # -- elsewhere and later -----------------------------------------------------------------------------

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """Answers found by trials; extensions are not tried."""
        from partita.accelerators.tvm.query.support import trials

        return trials

    def may_cache(self, graph: Graph) -> bool:
        """False for a subgraph with an extension: only its function defines what it computes, and a key cannot tell functions
        apart.
        """
        return not any(extensions.find(node) for inner in graphs_in(graph) for node in inner.nodes if node.is_op)

    def identity(self, config: Mapping[str, Any]) -> dict[str, str]:
        """TVM's version, the target of the code, and the results of tuning."""
        from partita.accelerators.tvm.tune.findings import findings, fingerprint

        machine = self.machine(config)
        tuned = fingerprint(findings(config, machine))
        named = {"library": f"{PACKAGE} {version()}".rstrip(), **machine.identity()}
        return {**named, "tuned": tuned} if tuned else named

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The reason if TVM's version is another, or the processor here lacks instructions.

        TVM's libraries alone have no version; the virtual machine itself then refuses code for another version.
        """
        here = self.identity(config)
        if version() and identity.get("library") != here["library"]:
            return f"it was compiled by {identity.get('library')}, and here is {here['library']}"
        missing = sorted(set(identity.get("features", "").split()) - set(here["features"].split()))
        if missing:
            lacks = f"the processor here ({here['target']}) lacks {', '.join(missing)}"
            return f"it was compiled for {identity.get('target')}, and {lacks}"
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """Load the shared library."""
        from partita.accelerators.tvm.compiled.travel import read

        return read(data, weights, graph, self.runs_on(config), bool(config["PERF_COUNT"]), lambda: self.compile(graph, config))


_NO_FORM = (PartitaError, TypeError, ValueError, AssertionError, IndexError)
"""Errors that mean that a graph has no form for any size; all but the first come from extents used as integers."""


def _reason(error: Exception) -> str:
    """The error's message for the report."""
    from partita.accelerators.tvm.machine.tvm_errors import first_line

    return str(error.cause) if isinstance(error, PartitaError) else f"{type(error).__name__}: {first_line(error)}"


def in_integers(graph: Graph, machine: Machine, used: Used | None) -> tuple[Graph, tuple[str, ...]]:
    """The graph with integer products where a model is quantized, as a GPU computes them, and notes for the report."""
    from partita.accelerators.tvm.bodies.element_types import with_reasons
    from partita.accelerators.tvm.layouts.quantized_notes import quantized_notes
    from partita.accelerators.tvm.layouts.quantizing import quantize

    quantized = quantize(graph, machine)
    notes, wide = quantized_notes(graph, quantized, used)
    return with_reasons(quantized, wide), notes


def for_images(graph: Graph) -> Graph:
    """The graph with channel scales and shifts folded, and global pools as reductions, as a GPU computes them."""
    from partita.accelerators.tvm.layouts.folding import fold_scales
    from partita.accelerators.tvm.layouts.whole_windows import widen_windows

    return widen_windows(fold_scales(graph))


GPU_KEYS = {**TvmAccelerator.config_keys, "ISOLATE": Key(None, flag_or_auto, names_files=True)}
"""Configuration keys of a GPU. ISOLATE is "AUTO", since some versions of TVM have crashed in their schedules for GPUs."""
