"""`explain_session`: the provider of each node of an onnxruntime session, and why the preferred ones do not run it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from partita.accelerators import AcceleratorError, Placement, accelerator, load
from partita.accelerators.engines.model import EngineModel, engine_model
from partita.accelerators.engines.onnxruntime.plugins import RECORDED, assigned
from partita.accelerators.engines.onnxruntime.quirks import BRINGS_CODE, brings_code
from partita.accelerators.engines.onnxruntime.session import session_of
from partita.accelerators.engines.onnxruntime.session_options import CPU, quiet_options, reason
from partita.accelerators.engines.onnxruntime.taking import ALONE, LARGE, SILENT, asked, why_not
from partita.accelerators.engines.trials import Trials, unknown_input
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.accelerators.placement.placing import live_part, place
from partita.graph.errors import did_you_mean
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.passes import apply_pass

GONE = "onnxruntime removed it, or fused it with others, before it asked the providers"
"""The reason for a node that no provider has."""

TOGETHER = f"alone it takes it, so that its neighbours decide; {SILENT}"

MOST = 100
"""Maximum number of kinds of nodes that are tried alone: each takes a session."""

Providers = Mapping[str, Mapping[str, str]]
"""The providers of a session in order of preference, each with its options."""

Parts = Sequence[tuple[str, Sequence[tuple[str, str]]]]
"""The provider of each subgraph, and the names and ops of its nodes."""

Reasons = Mapping[str, Mapping[str, str]]
"""The reason of each provider that gives one, by the names of the provider and of the node."""


def explain_session(
    session: Any, model: str | os.PathLike[str] | bytes | Graph | None = None, *, alone: bool = True
) -> Placement:
    """The placement of the nodes of an `onnxruntime.InferenceSession` by onnxruntime, with the providers as devices: text, table,
    `why(name)`, `to_dict`, a view for notebooks, and a page by `report_page`.

    Partita's own providers give their reasons. Others do not say why they leave a node to others: then the reasons are what is
    known, that is, if the provider takes other nodes of the op in this session, how this node differs from them, and, unless
    `alone` is False, if it takes the node as a model of its own.
    `model` is the session's model, which onnxruntime keeps by default. If the session was created without the option
    "session.record_ep_graph_assignment_info", or its nodes have no names, the model is opened again with the same providers."""
    given = _graph_of(session, model)
    graph = _flat(given)
    providers = {name: session.get_provider_options().get(name, {}) for name in session.get_providers()}
    level = session.get_session_options().graph_optimization_level
    recorded = None if any(node.is_call for node in given.nodes) else _recorded(session)
    again: Parts = ()
    reasons: Reasons = {}
    ours = {one.ep_name for one in getattr(_engine(), "get_ep_devices", list)() if one.ep_vendor == "Partita"}
    if recorded is None or not ours.isdisjoint(providers):
        again, reasons = _recorded_anew(graph, providers, level)
    if recorded is not None:
        return _placement(graph, providers, recorded, [], alone, reasons)
    note = "opened again, because the session does not record the provider of each node by name"
    return _placement(graph, providers, again, [note], alone, reasons)


def explain_model(graph: Graph, providers: Providers) -> Placement:
    """The same for a session of this graph with these providers, and the processor as the last."""
    engine = _engine()
    known = {*engine.get_available_providers(), *(one.ep_name for one in engine.get_ep_devices())}
    for name in providers:
        if name not in known:
            remedy = did_you_mean(name, known) or f"There are {', '.join(sorted(known))}"
            raise AcceleratorError(f"onnxruntime has no provider {name!r} here", where="explain_model", remedy=remedy)
    if brings_code(graph):
        raise AcceleratorError(BRINGS_CODE, where="explain_model", remedy="Ask about the model before it was compiled")
    providers = {**providers, CPU: providers.get(CPU, {})}
    graph = _flat(graph)
    parts, reasons = _recorded_anew(graph, providers, engine.GraphOptimizationLevel.ORT_ENABLE_ALL)
    return _placement(graph, providers, parts, [], True, reasons)


def _placement(
    graph: Graph, providers: Providers, parts: Parts, notes: list[str], alone: bool, reasons: Reasons
) -> Placement:
    """The placement by a record of onnxruntime."""
    owners, made = _owners(graph, parts)
    order = list(providers)
    told = [
        Device(name, _Told(name, graph, owners, order[i + 1 :], providers[name] if alone else None, reasons.get(name, {})), None)
        for i, name in enumerate(order)
    ]
    placement = place(graph, told, partial=True)
    runs = Counter(name for name, _ in parts)
    notes += [f"{name} runs {counted(runs[name], 'subgraph')}" for name in providers]
    notes += [f"{op} ×{count} on {name}: made by onnxruntime" for (name, op), count in made.items()]
    placement.notes = (*placement.notes, *notes)
    return placement


def _flat(graph: Graph) -> Graph:
    """The graph with types, without calls, and without the nodes that no output needs."""
    return live_part(apply_pass(apply_pass(graph, "InlineFunctions"), "InferShape", strict=False))


def _engine() -> Any:
    """The package onnxruntime; AcceleratorUnavailable if it is not installed."""
    return import_module(accelerator("onnxruntime").name)


def _graph_of(session: Any, model: Any) -> Graph:
    """The session's model."""
    source = model if model is not None else getattr(session, "_model_path", None) or getattr(session, "_model_bytes", None)
    if source is None:
        remedy = "Give the model: explain_session(session, model)"
        raise AcceleratorError("the session does not keep its model", where="explain_session", remedy=remedy)
    return source if isinstance(source, Graph) else load(source)


def _recorded(session: Any) -> Parts | None:
    """The record of the session; None if there is none, or if nodes have no names."""
    try:
        found = assigned(session)
    except Exception:  # noqa: BLE001  onnxruntime's errors have no common base class
        return None
    parts = [(name, [(node.name, node.op_type) for node in nodes]) for name, nodes in found]
    return parts if all(name for _, nodes in parts for name, _ in nodes) else None


def _recorded_anew(graph: Graph, providers: Providers, level: Any) -> tuple[Parts, Reasons]:
    """The record of another session, and the reasons of Partita's providers, by the graph's names."""
    try:
        with asked() as told:
            session, model = _opened(graph, providers, level)
    except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
        remedy = f"Create the session with the option {RECORDED!r} set to \"1\", and give nodes names"
        cause = f"onnxruntime does not open the model again: {reason(error)}"
        raise AcceleratorError(cause, where="explain_session", remedy=remedy) from None
    named = {f"n{number}": node.name for number, node in enumerate(model.nodes)}
    parts = [(name, [(named.get(node.name, node.name), node.op_type) for node in nodes]) for name, nodes in assigned(session)]
    return parts, {
        provider: {named[node]: reason for node, reason in reasons.items() if node in named} for provider, reasons in told.items()
    }


def _opened(graph: Graph, providers: Providers, level: Any) -> tuple[Any, EngineModel]:
    """A session of the graph that records the providers, and its model."""
    engine = _engine()
    options = quiet_options(engine, shares_threads=False)
    options.graph_optimization_level = level
    options.add_session_config_entry(RECORDED, "1")
    model, named = engine_model(graph, {}), [(name, dict(own)) for name, own in providers.items()]
    devices = {name: [one for one in getattr(engine, "get_ep_devices", list)() if one.ep_name == name] for name in providers}
    if providers.keys() <= {*engine.get_available_providers()} or not all(devices.values()):
        return session_of(engine, model, graph, options, named), model
    for name, own in named:  # onnxruntime 1.24 passes over plugins among `providers`
        options.add_provider_for_devices(devices[name], own)
    return session_of(engine, model, graph, options, None), model


def _taken_alone(graph: Graph, name: str, options: Mapping[str, str]) -> bool | str:
    """True if the provider takes the only node of the graph."""
    try:
        session, _ = _opened(graph, {name: options, CPU: {}}, _engine().GraphOptimizationLevel.ORT_DISABLE_ALL)
    except Exception as error:  # noqa: BLE001  onnxruntime's errors have no common base class
        return f"alone onnxruntime does not open it: {reason(error)}"
    return name in (provider for provider, _ in assigned(session)) or ALONE


def _owners(graph: Graph, parts: Parts) -> tuple[dict[str, str], Counter[tuple[str, str]]]:
    """The provider of each node of the graph, and the number of nodes of each op that onnxruntime has added, by provider."""
    inside = {node.name for body in graphs_in(graph) if body is not graph for node in body.nodes}
    owners: dict[str, str] = {}
    made: Counter[tuple[str, str]] = Counter()
    for provider, nodes in parts:
        for name, op in nodes:
            if name in graph:
                owners[name] = provider
            elif name not in inside:
                made[provider, op] += 1
    return owners, made


class _Told(Accelerator):
    """Stands for a provider: its answers are what onnxruntime has recorded."""

    isolates_itself = True

    def __init__(
        self, name: str, graph: Graph, owners: Mapping[str, str], later: Sequence[str], options: Mapping[str, str] | None,
        reasons: Mapping[str, str],
    ) -> None:
        """`later` are the providers after it; `options` are its own, for trials of single nodes, None without trials; `reasons`
        are those that it gives itself, by node."""
        self.name = name  # type: ignore[misc]
        super().__init__()
        self._owners = owners
        self._later = later
        self._reasons = reasons
        self._trials = None if options is None else Trials(lambda one: _taken_alone(one, name, options), LARGE)
        self._taken = [node for node in graph.nodes if owners.get(node.name) == name]

    def query(self, graph: Graph) -> dict[str, bool | str]:
        """True for each node that the provider has, and what is known about the others."""
        return {node.name: self._answer(node, graph) for node in graph.nodes if node.is_op}

    def _answer(self, node: Node, graph: Graph) -> bool | str:
        owner = self._owners.get(node.name)
        if owner is None:
            return GONE
        if owner not in self._later:
            return owner == self.name or f"{owner} has it"
        if node.name in self._reasons:
            return self._reasons[node.name]
        known = why_not(node, self._taken, self.name)
        if self._trials is None or node.bodies or unknown_input(node) or len(self._trials.known) >= MOST:
            return f"{known}; {SILENT}"
        answer = self._trials.answer(node, graph)
        return f"{known}; {TOGETHER if answer is True else answer}"
