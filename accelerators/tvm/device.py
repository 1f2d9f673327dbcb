"""Common part of the TVM devices: they query what TVM supports, fuse ops, lower each body, and assemble the kernels.

A device may be created long before it compiles, so its import is light: methods import what does the work."""

from __future__ import annotations

import contextlib
import platform
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.interface import registry  # noqa: F401  it names the module of the passes
from partita.accelerators.interface.accelerator import (
    PRECISIONS,
    Accelerator,
    AnySize,
    CompiledSubgraph,
    CompileStatic,
    TunedKernel,
)
from partita.accelerators.interface.keys import BadValue, Key, callback, flag, flag_or_auto, one_of
from partita.accelerators.interface.second_level import SecondLevel, second_level_of
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.bodies.blocked import origins_of
from partita.accelerators.tvm.bodies.lifting import lift_weights
from partita.accelerators.tvm.machine.library import PACKAGE, why_no_compiler
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.processor import is_here
from partita.accelerators.tvm.machine.tvm_errors import first_line
from partita.accelerators.tvm.prepare.inferred_operands import has_implied
from partita.accelerators.tvm.prepare.preparing import PREPARE, REPLACE, SETTLE, prepared, types_alone
from partita.accelerators.tvm.run.runtime import kept_memory, runtime, version
from partita.accelerators.tvm.sizes.any_size import SizedSubgraph
from partita.accelerators.tvm.sizes.sizing import enough_rows, forms_for_any_size, is_for_any_size
from partita.graph.errors import PartitaError, did_you_mean
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.types import BY_SHORT_NAME, TensorType
from partita.passes.infer.contract import require_agreement
from partita.passes.manager import apply_pass, unwatched
from partita.passes.registry import COMPLAINTS, LAYOUT_NOTES, pass_info

if TYPE_CHECKING:
    from partita.accelerators.tvm.bodies.body import Body
    from partita.accelerators.tvm.bodies.lifting import Lifted
    from partita.accelerators.tvm.code.building import Built
    from partita.accelerators.tvm.compiled.assembling import Assembled
    from partita.accelerators.tvm.compiled.stepwise import CompiledSteps
    from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, RunsOn

FAST = "fast"
"""PRECISION: the type in which the device is fastest."""

TF32 = "tf32"
"""PRECISION: float32, but tensor cores round the operands of products to ten fraction bits, as many as float16 has."""

DTYPES = {**{precision: BY_SHORT_NAME[precision] for precision in PRECISIONS}, TF32: "float32"}
"""Element types of stored values by the values of PRECISION."""

PRECISION = Key("f32", one_of(*PRECISIONS, FAST))
"""Configuration key."""

PRECISION_OR_TF32 = Key("f32", one_of(*PRECISIONS, FAST, TF32))
"""Configuration key of a device whose products may round float32."""

FAMILY = "tvm"
"""The family of the passes; `passes.py` imports the files that register them."""

GPU_PASSES = (
    "CheckIndices",
    "FindProducts",
    "DropNanTests",
    "Quantize",
    "ReportProducts",
    "FoldScales",
    "WidenPools",
    "ReleaseWeights",
    "NarrowTypes",
    "FlagIndices",
    "SpreadGemms",
    "MergeProjections",
    "FuseKernels",
)
"""The passes between a subgraph that is prepared and a GPU's kernels."""


class TvmAccelerator(Accelerator):
    """A device whose kernels TVM compiles."""

    compile_refuses = True
    loses_nothing = True
    isolates_itself = True
    """With ISOLATE each kernel is first compiled in a child process, which has ISOLATE_SECONDS for it; AUTO limits that to
    kernels that TVM's own schedules make."""
    passes: ClassVar[tuple[str, ...]] = ()
    """The passes after those that prepare a graph."""
    dynamic_shapes = False
    """Kernels are made for static sizes: a body with symbols is compiled again for each size."""
    config_keys: ClassVar[Mapping[str, Any]] = {
        "PROGRESS": Key(None, callback),
        "ANY_SIZE": Key(True, flag),
    }
    """PROGRESS: called with (kernels done, kernels in all, name). With ANY_SIZE a subgraph with symbols is compiled once for all
    sizes, where all its kernels have a form for any. SKIP_PASSES names passes to leave out, to find the one at fault."""

    def __init__(self) -> None:
        runtime()
        super().__init__()

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The machine that the configuration compiles for."""
        raise NotImplementedError("a TVM device has to define machine(config)")

    def transform(self, graph: Graph) -> Graph:
        """Infer shapes, fold constants, and expand functions of which TVM has only the parts. A graph for any size is ready."""
        return self._prepared(graph, folds_implied=False)

    def _prepared(self, graph: Graph, folds_implied: bool = True, machine: Machine | None = None) -> Graph:
        """The last of the stages, with an output more for each constant that stands for a value that follows from sizes: the run
        is an error where an element of it is not 0. A graph for any size is ready. What is supported depends on the machine, the
        configuration's if none is given."""
        if is_for_any_size(graph):
            return graph
        supports = self.supports if machine is None else partial(self._supports, machine=machine)
        with self._trials_as_configured():
            *_, result = prepared(graph, partial(self._apply, watched=True, supports=supports), folds_implied)
        return result

    def _apply(self, graph: Graph, names: Sequence[str], **options: Any) -> Graph:
        """The graph after these passes, except those of SKIP_PASSES; each option goes to the passes that take it."""
        infos = [pass_info(name, FAMILY) for name in names]
        options = {"supports": self.supports, **options}
        taken = {key: value for key, value in options.items() if any(info.accepts(key) for info in infos)}
        without = {info.name for info in infos}.intersection(self._config.get("SKIP_PASSES", ()))
        return apply_pass(graph, names, verify=False, family=FAMILY, without=without, **taken)

    def any_size(self, graph: Graph, config: Mapping[str, Any], compile_static: CompileStatic) -> AnySize | str | None:
        """One set of kernels for all sizes, if every kernel of the graph has a form for any."""
        if not config["ANY_SIZE"]:
            return None
        from partita.accelerators.tvm.layouts.quantized.scales import whole_sums  # start-up

        reason = ""
        try:
            transformed = self.configured(config).transform(graph)
            if has_implied(transformed):
                return "compiled for each size: whether values agree with stated sizes is looked at for fixed sizes alone"
            for ready in forms_for_any_size(transformed):
                is_gpu = self.machine(config).is_gpu
                ready = attrs.evolve(ready, conditions=(*ready.conditions, *whole_sums(ready.graph, is_gpu)))
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
        not run."""
        with unwatched(), self._trials_as_configured(), types_alone():
            return super().query(graph)

    def _trials_as_configured(self) -> contextlib.AbstractContextManager[None]:
        if self._config["ISOLATE"] is False:
            return contextlib.nullcontext()
        from partita.accelerators.tvm.query.isolated_trials import isolated_trials  # start-up

        return isolated_trials(self.machine(self._config), self._config["ISOLATE_SECONDS"])

    def stages(self, graph: Graph) -> Iterator[Graph]:
        """The steps of `transform`, and the treatment of values that follow from sizes in `compile`."""
        return prepared(graph, self._apply)

    def supports(self, node: Node, graph: Graph) -> bool | str:
        """True if TVM compiles the op correctly, otherwise the reason."""
        return self._supports(node, graph, self.machine(self._config))

    def _supports(self, node: Node, graph: Graph, machine: Machine) -> bool | str:
        from partita.accelerators.tvm.query.support import supported  # start-up

        return self.why_no_compiler() or supported(node, graph, machine)

    def why_no_compiler(self) -> str | None:
        """Why this device cannot compile here and only runs models that were compiled before; None if it can."""
        return why_no_compiler()

    def why_no_export(self) -> str | None:
        """The reason if there is no linker to make a library of the kernels."""
        from partita.accelerators.tvm.code.linking import can_link, no_linker  # start-up

        triple = self.machine(self._config).triple
        error = no_linker(triple)
        return None if can_link(triple) else f"{error.cause}. {error.remedy}"

    def add_extension(self, extension: Any) -> None:
        """Add a TvmExtension: a custom op, defined by TVM's tensor expressions."""
        extensions.add(extension)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledTvm:
        """Compile each second-level body alone, build it once for each structure, and assemble all."""
        from partita.accelerators.tvm.bodies_to_kernels import compile_lifted  # start-up

        missing = self.why_no_compiler()
        if missing is not None:
            raise CompileError(missing, where=f"device {self.name!r}")
        machine = self.machine(config)
        if not machine.is_here:
            from partita.accelerators.tvm.code.linking import check_linker  # start-up

            check_linker(machine.triple)
        lifted, notes, checks = self._lifted(graph, config, machine)
        del graph  # Its weights are freed as they are packed.
        compiled = compile_lifted(self, lifted, checks, config, machine)
        compiled.notes = (*notes, *compiled.notes)
        return compiled

    def _lifted(
        self, graph: Graph, config: Mapping[str, Any], machine: Machine
    ) -> tuple[Lifted, tuple[str, ...], tuple[str, ...]]:
        """The graph laid out and fused, weights apart; notes for the report; error messages of the flags among its outputs."""
        if not is_for_any_size(graph):
            require_agreement(graph)
        fused = self.configured(config).fused(graph, machine, flagged=True)
        return lift_weights(fused), tuple(fused.attrs.get(LAYOUT_NOTES, ())), tuple(fused.attrs.get(COMPLAINTS, ()))

    def compiled_class(self) -> type[CompiledTvm]:
        """Class of the result of `compile`."""
        from partita.accelerators.tvm.compiled.subgraph import CompiledTvm  # start-up

        return CompiledTvm

    def put_together(self, lifted: Lifted, built: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
        """The kernels of a graph's calls as one executable."""
        from partita.accelerators.tvm.compiled.assembling import assemble  # start-up

        return assemble(lifted, built, machine)

    def layout_options(self, machine: Machine) -> dict[str, Any]:
        """Options of `passes` by configuration and machine: the element type of products, and instructions for them."""
        return {"dtype": "float32"}

    def fused(self, graph: Graph, machine: Machine, *, flagged: bool = False) -> Graph:
        """The graph prepared, laid out and with a call for each kernel; what the report tells of that is in its attributes. With
        `flagged` a GPU's graph has the outputs by which its kernels complain."""
        from partita.accelerators.tvm.query.support import takes  # start-up

        names = [name for name in self.passes if flagged or name != "FlagIndices"]
        prepared = self._prepared(graph, machine=machine)
        with self._trials_as_configured() if machine.is_gpu else contextlib.nullcontext():
            return self._apply(prepared, names, machine=machine, takes=takes, **self.layout_options(machine))

    def second_level(self, graph: Graph, config: Mapping[str, Any]) -> SecondLevel:
        """The kernels of the graph; with dynamic sizes those of its first form for any size, if it has one."""
        device, types = self.configured(config), [node[0].type for node in graph.inputs]
        if config["ANY_SIZE"] and not all(isinstance(one, TensorType) and one.is_static for one in types):
            with contextlib.suppress(*_NO_FORM):
                graph = next(forms_for_any_size(device.transform(graph))).graph
        return second_level_of(device.fused(graph, self.machine(config)), origins_of)

    def runs_on(self, config: Mapping[str, Any]) -> RunsOn:
        """The machine and device on which the configuration runs a compiled subgraph."""
        from partita.accelerators.tvm.compiled.subgraph import RunsOn  # start-up

        return RunsOn(self.machine_here(config), int(config["DEVICE_ID"]))

    def machine_here(self, config: Mapping[str, Any]) -> Machine:
        """The machine with the number of threads that run its code here."""
        return self.machine(config)

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Tune the choices of each distinct kernel by measuring, the slowest kernels first."""
        from partita.accelerators.tvm.bodies.body import make_body  # start-up
        from partita.accelerators.tvm.tune.tuner import Tuner  # start-up

        machine = self.machine(config)
        fused = self.configured(config).fused(graph, machine)
        bodies = [make_body(node.subgraph) for node in fused.nodes if node.is_call and node.subgraph is not None]
        Tuner(machine, config, deadline, shown).run(bodies)

    # -- elsewhere and later -----------------------------------------------------------------------------

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """Answers found by trials; extensions are not tried."""
        from partita.accelerators.tvm.query.support import trials  # start-up

        return trials

    def may_cache(self, graph: Graph) -> bool:
        """False for a subgraph with an extension: only its function defines what it computes, and a key cannot tell functions
        apart."""
        return not any(extensions.find(node) for inner in graphs_in(graph) for node in inner.nodes if node.is_op)

    def identity(self, config: Mapping[str, Any]) -> dict[str, str]:
        """TVM's version, the target of the code, and the results of tuning."""
        from partita.accelerators.tvm.tune.findings import findings, fingerprint  # start-up

        machine = self.machine(config)
        tuned = fingerprint(findings(config, machine))
        named = {"library": f"{PACKAGE} {version()}".rstrip(), **machine.identity()}
        return {**named, "tuned": tuned} if tuned else named

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The reason if TVM's version is another, or the processor here lacks instructions.

        TVM's libraries alone have no version; the virtual machine itself then refuses code for another version."""
        here = self.identity({**config, "ARCH": ""})
        if version() and identity.get("library") != here["library"]:
            return f"it was compiled by {identity.get('library')}, and here is {here['library']}"
        compiled_for, triple = f"it was compiled for {identity.get('target')}", identity.get("triple", "")
        if not is_here(triple):
            own = f"{here['target']} ({platform.machine()}, {platform.system()})"
            return f"{compiled_for} ({triple}), and the processor here is {own}"
        missing = sorted(set(identity.get("features", "").split()) - set(here["features"].split()))
        if missing:
            return f"{compiled_for}, and the processor here ({here['target']}) lacks {', '.join(missing)}"
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """Load the shared library."""
        from partita.accelerators.tvm.compiled.serialization import read  # start-up

        return read(data, weights, graph, self.runs_on(config), bool(config["PERF_COUNT"]), lambda: self.compile(graph, config))


_NO_FORM = (PartitaError, TypeError, ValueError, AssertionError, IndexError)
"""Errors that mean that a graph has no form for any size; all but the first come from extents used as integers."""


def _reason(error: Exception) -> str:
    """The error's message for the report."""
    return str(error.cause) if isinstance(error, PartitaError) else f"{type(error).__name__}: {first_line(error)}"


def skipping(passes: Sequence[str]) -> Callable[[Any], tuple[str, ...]]:
    """A check of SKIP_PASSES: names of these passes, or of those that prepare a graph, as a sorted tuple."""

    def check(value: Any) -> tuple[str, ...]:
        names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
        if names:
            known = {*chain(*PREPARE, *SETTLE), *REPLACE, *passes}
        for name in names:
            if name not in known:
                raise BadValue(did_you_mean(str(name), known) or "`partita passes MODEL --device NAME` lists a device's passes")
            if pass_info(name, FAMILY).essential:
                raise BadValue(f"Leave {name} in: what comes after it relies on it")
        return tuple(sorted(set(names)))

    return check


class GpuAccelerator(TvmAccelerator):
    """A GPU, or a processor with a driver like one, that runs lists of launches."""

    passes = GPU_PASSES
    keeps_arrays = True
    config_keys = {
        **TvmAccelerator.config_keys,
        "ISOLATE": Key(None, flag_or_auto, names_files=True),  # "AUTO": some versions of TVM crashed in their schedules for GPUs.
        "SKIP_PASSES": Key((), skipping(GPU_PASSES)),
    }

    def put_together(self, lifted: Lifted, built: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
        """The kernels as a list of launches."""
        from partita.accelerators.tvm.compiled.step_list import assemble_steps  # start-up

        return assemble_steps(lifted, built, machine)

    def why_no_export(self) -> str | None:
        """None: export always works, with source or machine code."""
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """The list of launches; the driver builds or loads their code at the first run."""
        from partita.accelerators.tvm.compiled.gpu_serialization import read  # start-up

        again: Callable[[], Any] = lambda: self.compile(graph, config)  # noqa: E731
        return read(self.compiled_class(), data, weights, graph, self.runs_on(config), bool(config["PERF_COUNT"]), again)

    @abstractmethod
    def compiled_class(self) -> type[CompiledSteps]:
        """The class of its subgraphs."""
