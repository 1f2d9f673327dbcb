"""The common part of the TVM devices: they ask what TVM supports, fuse ops, lower each body, and put the kernels
together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import attrs

from accelerators.errors import CompileError
from accelerators.interface.accelerator import Accelerator, CompiledSubgraph, TunedKernel
from accelerators.interface.compile_story import KernelWork
from accelerators.interface.keys import Key, callback
from accelerators.interface.second_level import SecondLevel, second_level_of
from accelerators.tvm import extensions
from accelerators.tvm.bodies.blocked import origins_of
from accelerators.tvm.bodies.body import Body, make_body
from accelerators.tvm.bodies.indices import check_indices, with_flags
from accelerators.tvm.bodies.lifting import Lifted, lift_weights
from accelerators.tvm.code.building import Built
from accelerators.tvm.code.linking import MISSING, NEEDED, can_link
from accelerators.tvm.code.workers import Workers
from accelerators.tvm.compiled.assembling import Assembled, assemble
from accelerators.tvm.compiled.shown import Origin
from accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, RunsOn
from accelerators.tvm.kernels.fusion import fuse
from accelerators.tvm.machine.library import PACKAGE, why_no_compiler
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.prepare.preparing import prepared
from accelerators.tvm.prepare.quantized_weights import release_weights
from accelerators.tvm.progress import Progress
from accelerators.tvm.query.isolated_trials import Isolation, isolated_trials
from accelerators.tvm.query.support import supported, trials
from accelerators.tvm.run.runtime import runtime, version
from accelerators.tvm.sizes.sizing import is_for_any_size
from accelerators.tvm.tune.findings import choices_in, findings, fingerprint
from graph.errors import PartitaError
from graph.graph import Graph
from graph.nested import graphs_in
from graph.node import Node

NOTES = "partita.notes"
"""The attribute of a graph that holds what the compile report tells of how it was laid out."""


class TvmAccelerator(Accelerator):
    """A device whose kernels TVM compiles."""

    compile_refuses = True
    isolates_itself = True
    """With ISOLATE each kernel is compiled in a child process first, which has ISOLATE_SECONDS for it."""
    dynamic_shapes = False
    """Kernels are made for sizes: a body with symbols is compiled again for each size."""
    compiled_class: ClassVar[type[CompiledTvm]] = CompiledTvm
    """What `compile` returns."""

    config_keys: ClassVar[Mapping[str, Any]] = {
        "PROGRESS": Key(None, callback),
    }
    """PROGRESS: called with (kernels done, kernels in all, name)."""

    def __init__(self) -> None:
        runtime()
        super().__init__()

    def machine(self, config: Mapping[str, Any]) -> Machine:
        """The machine that the configuration compiles for."""
        raise NotImplementedError("a TVM device has to define machine(config)")

    def transform(self, graph: Graph) -> Graph:
        """Shapes and constants worked out, functions expanded where TVM has only their parts. A graph for any size is ready."""
        if is_for_any_size(graph):
            return graph
        with self._trials_as_configured():
            *_, result = self.stages(graph)
        return result

    def query(self, graph: Graph) -> Mapping[str, bool | str]:
        """Answer as all devices do; with ISOLATE, an op that crashes TVM's compiler counts as one that the device does
        not run.
        """
        with self._trials_as_configured():
            return super().query(graph)

    def _trials_as_configured(self) -> contextlib.AbstractContextManager[None]:
        if not self._config["ISOLATE"]:
            return contextlib.nullcontext()
        return isolated_trials(self.machine(self._config), self._config["ISOLATE_SECONDS"])

    def stages(self, graph: Graph) -> Iterator[Graph]:
        """The steps of `transform`."""
        return prepared(graph, self.supports)

    def supports(self, node: Node, graph: Graph) -> bool | str:
        """Does TVM compile the op, and compile it right?"""
        return self.why_no_compiler() or supported(node, graph, self.machine(self._config))

    def why_no_compiler(self) -> str | None:
        """Why this device cannot compile here and only runs models that were compiled before; None where it compiles."""
        return why_no_compiler()

    def why_no_export(self) -> str | None:
        """There is no linker, which makes a library of the kernels."""
        return None if can_link() else f"{MISSING}. {NEEDED}"

    def add_extension(self, extension: Any) -> None:
        """A TvmExtension: what a custom op computes, in TVM's tensor expressions."""
        extensions.add(extension)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledTvm:
        """Each second-level body lowered alone and built once for each structure, then put together."""
        missing = self.why_no_compiler()
        if missing is not None:
            raise CompileError(missing, where=f"device {self.name!r}")
        machine = self.machine(config)
        lifted, notes, checks = self._lifted(graph, config, machine)
        del graph  # Its weights are freed as they are packed.
        bodies = lifted.bodies
        progress = Progress(self.name, len({body.key for body in bodies.values()}), config["PROGRESS"])
        isolation = Isolation(machine, config["ISOLATE_SECONDS"]) if config["ISOLATE"] else None
        tuned = findings(config, machine)
        workers = Workers(machine, lambda body: choices_in(tuned, body.key))
        running: dict[Node, Future[Built]] = {}
        built: dict[Node, tuple[Body, Built]] = {}
        with progress, isolation or contextlib.nullcontext(), workers:
            for node, body in bodies.items():
                progress.step(body.key, node.name)
                with _blamed_on(node, machine):
                    if isolation is not None:
                        isolation.check(body)
                    running[node] = workers.build(body)
            for node, body in bodies.items():
                with _blamed_on(node, machine):
                    built[node] = body, running[node].result()
        assembled = attrs.evolve(self.put_together(lifted, built, machine), checks=checks)
        launches, origins = _launches(assembled, built)
        compiled = self.compiled_class(assembled, launches, origins, self.runs_on(config), bool(config["PERF_COUNT"]))
        compiled.notes, compiled.work = notes, _work(built, workers.fresh)
        compiled.check_code()
        return compiled

    def put_together(self, lifted: Lifted, built: Mapping[Node, tuple[Body, Built]], machine: Machine) -> Assembled:
        """The kernels of a graph's calls as one executable."""
        return assemble(lifted, built, machine)

    def _lifted(
        self, graph: Graph, config: Mapping[str, Any], machine: Machine
    ) -> tuple[Lifted, tuple[str, ...], tuple[str, ...]]:
        """The graph laid out and fused, its weights apart; what the report tells of it; what its last outputs complain of."""
        laid_out = self.configured(config).laid_out(graph, machine)
        watched, checks = with_flags(laid_out) if machine.is_gpu else (laid_out, ())
        return lift_weights(fuse(watched, machine.is_gpu)), tuple(laid_out.attrs.get(NOTES, ())), checks

    def lay_out(self, graph: Graph, machine: Machine) -> Graph:
        """The graph with activations and weights as the machine's kernels want them."""
        return release_weights(graph)

    def laid_out(self, graph: Graph, machine: Machine) -> Graph:
        """The graph transformed and laid out; its attribute NOTES is what the report tells of that."""
        return self.lay_out(check_indices(self.transform(graph)), machine)

    def fused(self, graph: Graph, machine: Machine) -> Graph:
        """The graph with a call for each kernel."""
        return fuse(self.laid_out(graph, machine), machine.is_gpu)

    def second_level(self, graph: Graph, config: Mapping[str, Any]) -> SecondLevel:
        """What the partition into kernels says."""
        return second_level_of(self.configured(config).fused(graph, self.machine(config)), origins_of)

    def runs_on(self, config: Mapping[str, Any]) -> RunsOn:
        """The machine and device on which the configuration runs a compiled subgraph."""
        return RunsOn(self.machine(config), int(config["DEVICE_ID"]))

    def tune(self, graph: Graph, config: Mapping[str, Any], deadline: float, shown: Callable[[TunedKernel], None]) -> None:
        """Each distinct kernel's choices, by measuring; those that take longest first."""
        from accelerators.tvm.tune.tuner import Tuner

        machine = self.machine(config)
        fused = self.configured(config).fused(graph, machine)
        bodies = [make_body(node.subgraph) for node in fused.nodes if node.is_call and node.subgraph is not None]
        Tuner(machine, config, deadline, shown).run(bodies)

    # -- elsewhere and later -----------------------------------------------------------------------------

    def findings(self) -> MutableMapping[str, bool | str] | None:
        """The answers that were found by trying; extensions are not tried."""
        return trials

    def may_cache(self, graph: Graph) -> bool:
        """Refuse to cache a subgraph with an extension: only its function says what it computes, and no key can tell
        functions apart.
        """
        return not any(extensions.find(node) for inner in graphs_in(graph) for node in inner.nodes if node.is_op)

    def identity(self, config: Mapping[str, Any]) -> dict[str, str]:
        """TVM's version, what the code was made for, and what tuning found."""
        machine = self.machine(config)
        tuned = fingerprint(findings(config, machine))
        named = {"library": f"{PACKAGE} {version()}".rstrip(), **machine.identity()}
        return {**named, "tuned": tuned} if tuned else named

    def misfit(self, identity: Mapping[str, str], config: Mapping[str, Any]) -> str | None:
        """The misfit is another version of TVM, instructions that the processor here does not have, or another GPU
        architecture.

        Where only TVM's libraries are installed, they do not tell their version; the virtual machine itself then
        refuses code for another version.
        """
        here = self.identity(config)
        if version() and identity.get("library") != here["library"]:
            return f"it was compiled by {identity.get('library')}, and here is {here['library']}"
        missing = sorted(set(identity.get("features", "").split()) - set(here["features"].split()))
        if missing:
            lacks = f"the processor here ({here['target']}) lacks {', '.join(missing)}"
            return f"it was compiled for {identity.get('target')}, and {lacks}"
        if identity.get("gpu") != here.get("gpu"):
            return f"it was compiled for a GPU {identity.get('gpu')}, and here is {here.get('gpu')}"
        return None

    def import_(self, data: bytes, graph: Graph, config: Mapping[str, Any], weights: Sequence[Any] = ()) -> CompiledSubgraph:
        """Load the shared library."""
        from accelerators.tvm.compiled.travel import read

        return read(data, weights, graph, self.runs_on(config), bool(config["PERF_COUNT"]), lambda: self.compile(graph, config))


def _work(built: Mapping[Node, tuple[Body, Built]], fresh: Collection[str]) -> tuple[KernelWork, ...]:
    """What each kernel took; of those of one structure the first took it all, unless the process had the code already."""
    waiting, work = set(fresh), []
    for node, (body, code) in built.items():
        is_shared = body.key not in waiting
        waiting.discard(body.key)
        work.append(KernelWork(node.name, _ops(node), 0.0 if is_shared else code.seconds, is_shared))
    return tuple(work)


def _launches(assembled: Assembled, built: Mapping[Node, tuple[Body, Built]]) -> tuple[list[Launch], list[Origin]]:
    """What is known of each launch, and what its kernel was made from."""
    calls = {node.name: node for node in built}
    bodies = {node.name: body for node, (body, _) in built.items()}
    launches, origins = [], []
    for step in assembled.steps:
        body, lowered = bodies[step.call], built[calls[step.call]][1].lowered
        layer = "+".join(str(node.op) for node in body.ops)
        schedule = lowered.schedules[step.symbol]
        launches.append(Launch(step.call, step.symbol, step.runs, schedule, _ops(calls[step.call]), layer))
        origins.append(Origin(body, built[calls[step.call]][1], step.symbol))
    return launches, origins


@contextlib.contextmanager
def _blamed_on(node: Node, machine: Machine) -> Iterator[None]:
    """An error inside names the nodes that cannot be compiled."""
    try:
        yield
    except PartitaError as error:
        raise CompileError(
            error.cause,
            where=f"{', '.join(f'{inner.name!r} ({inner.op})' for inner in _inner(node)[:4])} on device {machine.kind!r}",
            remedy="Place these nodes on another device",
        ) from error


def _inner(node: Node) -> list[Node]:
    assert node.subgraph is not None
    return [inner for inner in node.subgraph.nodes if inner.is_op]


def _ops(node: Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for inner in _inner(node) for name in origins_of(inner)))
