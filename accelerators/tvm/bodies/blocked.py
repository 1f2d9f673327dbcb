"""Blocked values and the ops on them.

A blocked activation is [batch, channels / lanes, pixels, lanes]: a vector of neighbouring channels stands together for each
pixel of the image. The last block is filled up with channels that nobody reads. Ops on such values keep the names and the
attributes of ONNX's, in a domain of our own; attributes that shapes no longer say are added."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from partita.accelerators.interface.provenance import FUSED
from partita.graph.build import constant
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array, TensorType

DOMAIN = "partita.blocked"
"""The domain of ops on blocked values."""

ORIGIN = "partita.origin"
"""Metadata: the op of the user's that a node of ours runs for."""

IMAGES = 3
"""The first of the inputs of a convolution that are further values, whose channels follow those of its image."""


@attrs.frozen(slots=True)
class Value:
    """A value in blocked form."""

    entry: NodeEntry
    """The blocked value."""
    shape: tuple[int, int, int, int]
    """The shape of the plain value."""
    shuffle: int = 1
    """The channels stand as before a shuffle that transposes them as a matrix of so many rows; 1: in their order."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The height and width of the image."""
        return self.shape[2:]


def blocked_type(shape: tuple[int, ...], lanes: int, dtype: str) -> TensorType:
    """The type of the blocked value of a plain [N, C, H, W]."""
    return TensorType(dtype, (shape[0], math.ceil(shape[1] / lanes), math.prod(shape[2:]), lanes))


def on_blocks(node: Node, inputs: tuple[NodeEntry | None, ...], shape: tuple[int, ...], lanes: int, **more: Any) -> Node:
    """The op on blocked values that stands for the node; `more` are attributes beside its own."""
    return node.evolve(
        domain=DOMAIN,
        inputs=inputs,
        attrs=frozen_attrs({**node.attrs, **more}),
        output_names=node.output_names[:1],
        output_types=(blocked_type(shape, lanes, dtype_of(node[0])),),
    )


def dtype_of(entry: NodeEntry) -> str:
    """The element type of a tensor."""
    assert isinstance(entry.type, TensorType) and entry.type.dtype is not None
    return entry.type.dtype


def move(
    op: str, name: str, entry: NodeEntry, value_type: TensorType, origin: Node, attributes: Mapping[str, Any] | None = None
) -> Node:
    """A node that lays a value out anew, on behalf of an op of the user's."""
    metadata = {ORIGIN: "\n".join(origins_of(origin))}
    return Node(name, op, (entry,), frozen_attrs(attributes or {}), (name,), (value_type,), DOMAIN, metadata=metadata)


def origins_of(node: Node) -> list[str]:
    """The names of the user's ops that the node runs for. A part of an op that was taken apart lists that op last."""
    origins, whole = node.metadata.get(ORIGIN), node.metadata.get(FUSED, "").splitlines()
    return origins.splitlines() if origins else whole[-1:] or [node.name]


def blocked_constant(array: Array, lanes: int, name: str) -> Node:
    """A constant with a number for each channel, [1, C, 1, 1], blocked; what fills up the last block is one."""
    channels = array.size
    blocks = math.ceil(channels / lanes)
    padded = np.ones(blocks * lanes, array.dtype)
    padded[:channels] = array.reshape(-1)
    return constant(padded.reshape(1, blocks, 1, lanes), name)
