"""Models of one op each: drawn ones, ONNX's node tests, onnxruntime's ops, and calls of ops that no drawn model holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import partita as pt
from partita.graph.errors import PartitaError
from tests.fuzz.guard.subjects import subject
from tests.fuzz.models.builder import Case
from tests.fuzz.models.generate import RECIPES
from tests.fuzz.sizes import newer_networks
from tests.fuzz.sizes.chains import chain
from tests.fuzz.sizes.misfits import MISFITS, misfit
from tests.fuzz.sizes.networks import KINDS, network
from tests.fuzz.sizes.opened import WAYS, Opened, opened


def op_names() -> list[str]:
    """The ops that models are drawn of."""
    return sorted(RECIPES)


def misfit_names() -> list[str]:
    """The graphs whose symbols meet constants."""
    return [f"misfit {name}" for name in MISFITS]


def network_names() -> list[str]:
    """The kinds of networks."""
    return [f"network {kind}" for kind in KINDS]


def chain_names() -> list[str]:
    """Random chains of ops."""
    return ["chain"]


def newer_names() -> list[str]:
    """The kinds of networks of newer structures."""
    return [f"network {kind}" for kind in newer_networks.KINDS]


def ways_of(name: str, ways: Sequence[str] = WAYS) -> Sequence[str]:
    """In which of these ways sizes of a subject's model are left open; misfits, networks and chains have symbols already."""
    return ("as it is",) if name.startswith(("misfit ", "network ", "chain")) else ways


def microsoft_names() -> list[str]:
    """The nodes of onnxruntime's own ops."""
    return [f"microsoft {number}" for number in range(len(_microsoft()))]


@cache
def _microsoft() -> list[Any]:
    from tests.microsoft import nodes

    return list(nodes.ALL)


def drawn(name: str, seed: int) -> Case | None:
    """The model of a name (an op, "node " and a node test's name, or "microsoft " and a number)."""
    if not name.startswith("microsoft "):
        return subject(name, seed)
    case = _microsoft()[int(name.split()[1])]
    try:
        graph = pt.load(case.model())
    except PartitaError:
        return None
    return Case(graph, [case.feeds[node.name] for node in graph.inputs])


def model_of(name: str, seed: int, way: str) -> Opened | None:
    """The model of a subject with sizes left open in this way, or as it is."""
    if name.startswith("network "):
        kind = name.split()[1]
        return network(kind, seed) if kind in KINDS else network(kind, seed, newer_networks.KINDS, newer_networks.MOST_OPS)
    if name == "chain":
        return chain(seed)
    if name.startswith("misfit "):
        return misfit(name.removeprefix("misfit "))
    case = drawn(name, seed)
    return None if case is None else opened(case, way, random.Random(f"{name} {seed} {way} opened"))
