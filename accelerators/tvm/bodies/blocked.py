"""Blocked values and the ops on them.

A blocked activation is [batch, channels / lanes, pixels, lanes]: neighbouring channels of a pixel form one vector. The last block
is padded with channels that are never read. Ops on blocked values keep ONNX's names and attributes, in a domain of our own, and
get extra attributes for what their shapes no longer tell."""

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
"""Metadata: name of the user's op on whose behalf our node runs."""

IMAGES = 3
"""Index of the first input of a convolution that is a further value, whose channels follow those of its image."""


@attrs.frozen(slots=True)
class Value:
    """A value in blocked form."""

    entry: NodeEntry
    """The blocked value."""
    shape: tuple[int, int, int, int]
    """Shape of the plain value."""
    shuffle: int = 1
    """Number of rows of the channel matrix that a pending channel shuffle transposes; 1 if the channels are in order."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.shape[2:]


def blocked_type(shape: tuple[int, ...], lanes: int, dtype: str) -> TensorType:
    """Type of the blocked value of a plain [N, C, H, W]."""
    return TensorType(dtype, (shape[0], math.ceil(shape[1] / lanes), math.prod(shape[2:]), lanes))


def on_blocks(node: Node, inputs: tuple[NodeEntry | None, ...], shape: tuple[int, ...], lanes: int, **more: Any) -> Node:
    """The node's op on blocked values; `more` are additional attributes."""
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
    """A node that changes a value's layout on behalf of a user's op."""
    metadata = origin_metadata(origin)
    return Node(name, op, (entry,), frozen_attrs(attributes or {}), (name,), (value_type,), DOMAIN, metadata=metadata)


def origins_of(node: Node) -> list[str]:
    """Names of the user's ops that the node runs for. The parts of a decomposed op list that op last."""
    origins, whole = node.metadata.get(ORIGIN), node.metadata.get(FUSED, "").splitlines()
    return origins.splitlines() if origins else whole[-1:] or [node.name]


def origin_metadata(node: Node) -> dict[str, str]:
    """Metadata of another node that runs for this one."""
    return {ORIGIN: "\n".join(origins_of(node))}


def blocked_constant(array: Array, lanes: int, name: str) -> Node:
    """A blocked constant with one element per channel, [1, C, 1, 1]; the last block is padded with ones."""
    channels = array.size
    blocks = math.ceil(channels / lanes)
    padded = np.ones(blocks * lanes, array.dtype)
    padded[:channels] = array.reshape(-1)
    return constant(padded.reshape(1, blocks, 1, lanes), name)
