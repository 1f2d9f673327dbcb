"""Recurrent layers without the product of their inputs and weights, which is computed once for all steps.

LSTM, GRU and RNN of this domain have ONNX's attributes and results. In place of the sequence and its weights they read the
product of both, [steps, batch, directions * gates * hidden] (batch first if `layout` is 1)."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.recurrent import ACTIVATION_PARAMETERS, Parameters, with_parameters
from partita.graph.types import TensorType

DOMAIN = "partita.recurrent"
"""The domain of the layers without the product of their inputs and weights."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Number of gates of each layer."""

FUNCTIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
"""Default activations of one direction of each layer."""

OLDEST = 7
"""First opset with the current definition of these layers."""

Activation = tuple[str, Parameters]
"""Lower-case name of an activation function, and its parameters."""


def is_recurrent(node: Node) -> bool:
    """True for ONNX's LSTM, GRU or RNN."""
    return node.op in GATES and not node.domain


def resets_later(node: Node) -> bool:
    """True for a GRU that applies the reset gate after the product with the state."""
    return node.op == "GRU" and bool(node.attrs.get("linear_before_reset", 0))


def why_not_ours(node: Node, version: int, dtypes: Collection[str]) -> str | None:
    """Why no kernel of ours computes ONNX's layer of this opset; None if one does. `dtypes` are the element types that kernels
    compute with."""
    if version < OLDEST:
        return f"kernels of {node.op} compute it as opset {OLDEST} and later ones define it, and this is opset {version}"
    floats = [entry for i, entry in enumerate(node.inputs) if entry is not None and i != 4]
    strange = next((e for e in floats if not isinstance(e.type, TensorType) or e.type.dtype not in dtypes), None)
    if strange is not None:
        return f"kernels of {node.op} take {', '.join(sorted(dtypes))}, and {strange.name!r} is {strange.type}"
    unknown = next((name for name in _names(node) if name.lower() not in ACTIVATION_PARAMETERS), None)
    return None if unknown is None else f"{node.op} has an activation {unknown!r}, which ONNX does not know"


def _names(node: Node) -> list[str]:
    directions = 2 if node.attrs.get("direction", "forward") == "bidirectional" else 1
    return list(node.attrs.get("activations") or FUNCTIONS[str(node.op)] * directions)


@attrs.frozen(slots=True, eq=False)
class Layer:
    """A recurrent layer of this domain, as its attributes describe it."""

    node: Node
    projected: NodeEntry
    """Product of the inputs and their weights."""
    state_weights: NodeEntry
    """[directions, gates * hidden, hidden]"""
    biases: NodeEntry | None
    """[directions, 2 * gates * hidden]: biases of the inputs, then of the state."""
    lengths: NodeEntry | None
    """Length of each sequence of the batch."""
    states: tuple[NodeEntry | None, ...]
    """Initial states: hidden, and for an LSTM also cell."""
    peepholes: NodeEntry | None

    @classmethod
    def of(cls, node: Node) -> Layer:
        """The layer that a node of this domain describes."""
        projected, weights, biases, lengths, hidden, cells, peepholes = (*node.inputs, *[None] * 7)[:7]
        assert projected is not None and weights is not None
        states = (hidden, cells) if node.op == "LSTM" else (hidden,)
        return cls(node, projected, weights, biases, lengths, states, peepholes)

    @property
    def gates(self) -> int:
        return GATES[str(self.node.op)]

    @property
    def batch_first(self) -> bool:
        return bool(self.node.attrs.get("layout", 0))

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction, True if it runs backwards in time."""
        return {"forward": (False,), "reverse": (True,)}.get(str(self.node.attrs.get("direction", "forward")), (False, True))

    @property
    def clip(self) -> float | None:
        """Bound on the magnitude of activation inputs; None if they are not clipped."""
        bound = self.node.attrs.get("clip")
        return None if bound is None else float(bound)

    @property
    def activations(self) -> tuple[tuple[Activation, ...], ...]:
        """The activations of each direction."""
        node = self.node
        named = with_parameters(_names(node), node.attrs.get("activation_alpha"), node.attrs.get("activation_beta"))
        each = len(FUNCTIONS[str(node.op)])
        return tuple(tuple(named[d * each : (d + 1) * each]) for d in range(len(self.backwards)))
