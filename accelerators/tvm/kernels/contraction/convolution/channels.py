"""The input channels that each panel of output channels reads, and the layout of its weights.

A panel is a few blocks of neighbouring output channels. Without groups it reads every input channel. With groups it reads those
of the groups that it touches; weights between channels of different groups are zero. The input may be in the order from before a
channel shuffle, whose only cost is then index arithmetic."""

from __future__ import annotations

import math

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.kernels.language import Operand, Value, minimum
from partita.graph.types import Array


@attrs.frozen(slots=True)
class Channels:
    """The channels of a convolution."""

    ins: int
    """Number of input channels."""
    outs: int
    """Number of output channels."""
    groups: int
    """Number of groups."""
    vectors: int
    """Number of blocks of a panel; the last panel may be narrower."""
    lanes: int
    """Number of channels of a block."""
    plain: bool
    """True if the input is not blocked."""
    shuffle: int
    """Number of rows of the matrix whose transpose is the channel shuffle; 1: no shuffle."""
    chunk: int
    """Number of input channels of a chunk."""
    group: int = 1
    """Number of neighbours that one step multiplies: channels, or taps of a row if the input is not blocked."""

    @property
    def blocks(self) -> int:
        """Number of blocks of the output."""
        return math.ceil(self.outs / self.lanes)

    @property
    def panels(self) -> int:
        """Number of panels, including a narrower one."""
        return math.ceil(self.blocks / self.vectors)

    @property
    def reach(self) -> int:
        """Maximum number of input channels that a panel reads."""
        return max(reaches(self.ins, self.outs, self.groups, self.vectors * self.lanes))

    @property
    def whole(self) -> int:
        """Number of blocks of the input, or of channels if it is plain."""
        return self.ins if self.plain else math.ceil(self.ins / self.lanes)

    @property
    def chunks(self) -> int:
        """Number of chunks of input channels."""
        return self.reach // self.chunk

    @property
    def by_block(self) -> bool:
        """True if the channels are read in whole blocks."""
        counts = set(reaches(self.ins, self.outs, self.groups, self.vectors * self.lanes))
        whole = (self.ins // self.groups) % self.lanes == 0 and self.chunk % self.lanes == 0
        return not self.plain and self.shuffle == 1 and whole and len(counts) == 1

    def first(self, panel: Value) -> Operand:
        """The first input channel that a panel reads."""
        return 0 if self.groups == 1 else self._group(panel) * (self.ins // self.groups)

    def count(self, panel: Value) -> Operand:
        """Number of input channels that a panel reads."""
        if self.groups == 1 or self.by_block:
            return self.chunk
        width = self.vectors * self.lanes
        last = minimum(panel * width + (width - 1), self.outs - 1) // (self.outs // self.groups)
        return (last - self._group(panel) + 1) * (self.ins // self.groups)

    def _group(self, panel: Value) -> Value:
        return panel * (self.vectors * self.lanes) // (self.outs // self.groups)

    def first_block(self, panel: Value) -> Operand:
        """The first input block that a panel reads, if `by_block`."""
        return self.first(panel) // self.lanes

    def stands_at(self, channel: Value) -> Value:
        """The position of a channel in the input."""
        if self.shuffle == 1:
            return channel
        return channel % self.shuffle * (self.ins // self.shuffle) + channel // self.shuffle

    def weights(self, taps: int) -> int:
        """Number of elements of the packed weights."""
        return self.blocks * self.lanes * self.reach * taps

    @property
    def taken(self) -> int:
        """Number of neighbouring channels of a step."""
        return 1 if self.plain else self.group

    def offset(self, taps: int, panel: Value, chunk: Operand) -> Operand:
        """The offset of a panel's weights, for one of several chunks."""
        first = panel * (self.vectors * self.lanes)
        if self.chunks > 1:
            first = chunk * (self.blocks * self.lanes) + first
        return first * (self.chunk * taps)

    def pack(self, array: Array) -> Array:
        """The weights [chunk, panel, block of input channels, tap, input lane, output channel of the panel], with the neighbours
        of a step innermost."""
        inner, each = array.shape[1], self.outs // self.groups
        if self.plain and array.shape[3] % self.group:
            array = np.pad(array, [(0, 0)] * 3 + [(0, -array.shape[3] % self.group)])
        taps = math.prod(array.shape[2:])
        given = array.reshape(self.outs, inner, taps)
        result, end = new_weight((self.chunks, self.weights(taps) // self.chunks), array.dtype), 0
        for start in range(0, self.blocks, self.vectors):
            low, high = start * self.lanes, min(start + self.vectors, self.blocks) * self.lanes
            packed = np.zeros((self.reach, taps, high - low), array.dtype)
            first = low // each * inner
            for group in range(low // each, (min(high, self.outs) - 1) // each + 1):
                a, b = max(low, group * each), min(high, (group + 1) * each, self.outs)
                at = group * inner - first
                packed[at : at + inner, :, a - low : b - low] = given[a:b].transpose(1, 2, 0)
            if self.by_block:
                packed = packed.reshape(-1, self.lanes, taps, high - low).transpose(0, 2, 1, 3)
            elif self.taken > 1:
                packed = packed.reshape(-1, self.taken, taps, high - low).transpose(0, 2, 1, 3)
            if self.group > 1:
                packed = packed.reshape(-1, self.group, high - low).transpose(0, 2, 1)
            piece = packed.reshape(self.chunks, -1)
            result[:, end : end + piece.shape[1]] = piece
            end += piece.shape[1]
        return result.reshape(-1)

    def pack_bias(self, array: Array) -> Array:
        """The bias per output channel, padded with zeros to whole blocks."""
        packed = np.zeros((1, self.blocks, 1, self.lanes), array.dtype)
        packed.reshape(-1)[: self.outs] = array.reshape(-1)
        return packed


def reaches(ins: int, outs: int, groups: int, width: int) -> list[int]:
    """For each panel of `width` output channels, the number of input channels that it reads."""
    each, inner = outs // groups, ins // groups
    return [((min(low + width, outs) - 1) // each - low // each + 1) * inner for low in range(0, outs, width)]
