"""Prefetches for a blocked convolution: data that it reads soon is fetched into the cache during the products."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.kernels.convolution.blocked_layer import Layer
from partita.accelerators.tvm.kernels.convolution.blocked_values import WIDE, Panel, Reads, Task
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.sizes.extent import Extent

LINE = 64
"""Bytes of a cache line."""

LEAST_SHARE = 0.4
"""Minimum number of lines of the next panel per step (a tap, or a block of input channels) for which they are prefetched."""


@attrs.frozen(slots=True, eq=False)
class Fetching:
    """Writes the prefetches of a step of a tile."""

    layer: Layer
    kernel: Kernel
    source: Buffer
    """The image."""
    weight: Buffer
    writer: Writer

    def weights(self, panel: Panel, tile: Value, step: Operand, steps: int, width: int) -> None:
        """Prefetches one step's share of the next panel's weights."""
        channels, lines = self.layer.channels, self.lines(steps, width)
        if not lines:
            return
        following = channels.offset(self.layer.window.count, panel.number, panel.chunk) + self._weights(width)
        with self.kernel.unroll(lines, "q") as q:
            line = (tile * steps + step) * lines + q
            self.kernel.prefetch(self.weight[following + line * (LINE // self.layer.size)])

    def pixels(self, task: Task, panel: Panel, reads: Reads, block: Value) -> None:
        """Prefetches the pixels of a block of channels that the next tile reads."""
        if not self._walks_pixels:
            return
        for address in reads.addresses:
            self.kernel.prefetch(self.source[task.n, block, address + panel.pixels, 0])

    def beside(self, task: Task, panel: Panel, base: Value, step: Value, steps: int) -> None:
        """Prefetches one step's share of the epilogue's inputs for the tile, such as a residual."""
        after, channels = self.writer.after, self.layer.channels
        if not self._walks_pixels or channels.chunks > 1:
            return
        share = math.ceil(panel.pixels * panel.vectors / steps)
        for position in [position for position, shape in after.operands.items() if shape == after.results]:
            with self.kernel.unroll(share, "q") as q:
                number = step * share + q
                block, pixel = panel.number * self.layer.bands.vectors + number // panel.pixels, number % panel.pixels
                at = task.n, block, task.top + base + pixel, 0
                self.kernel.prefetch(self.writer.inputs[position][at])

    @property
    def _walks_pixels(self) -> bool:
        """True if each tile reads neighbouring pixels of the image in place, and the image is larger than the weights."""
        layer, window = self.layer, self.layer.window
        is_larger = isinstance(window.pixels, Extent) or window.pixels > layer.channels.outs
        return layer.lanes == WIDE and window.is_flat and is_larger and not layer.bands.copies and layer.channels.by_block

    def lines(self, steps: int, width: int) -> int:
        """Number of lines of the next panel's weights that each of a tile's steps prefetches; 0 if that would be far more than
        needed, as when many tiles come before that panel."""
        if not self.layer.channels.by_block or not isinstance(self.layer.bands.tiles, int):
            return 0
        share = self._weights(width) * self.layer.size // LINE / (self.layer.bands.tiles * steps)
        return math.ceil(share) if share >= LEAST_SHARE else 0

    def _weights(self, width: int) -> int:
        """Number of weights of one chunk in a panel of `width` output channels."""
        return self.layer.channels.chunk * self.layer.window.count * width
