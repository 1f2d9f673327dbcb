"""Several blocked values seen as one, concatenated along their blocks: a table has the address of each block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, address, int32, int64


@attrs.frozen(slots=True, eq=False)
class JoinedBlocks:
    """The values of one kernel."""

    sources: Sequence[Buffer]
    """Buffers [batch, blocks, pixels, lanes] that differ in the number of blocks only."""
    addresses: Buffer
    """For each block of the concatenation, its address in the first image."""
    counts: Buffer
    """For each block of the concatenation, the number of blocks of the value that it comes from."""

    @classmethod
    def of(cls, kernel: Kernel, sources: Sequence[Buffer]) -> JoinedBlocks:
        """Builds the table for these values, once, at this point of the kernel."""
        blocks = sum(source.sizes[1] for source in sources)
        addresses, counts = kernel.stack("addresses", int64, (blocks,)), kernel.stack("counts", int32, (blocks,))
        start = 0
        for source in sources:
            own = source.sizes[1]
            with kernel.loop(own, "own") as block:
                addresses[start + block] = address(source[0, block, 0, 0])
                counts[start + block] = own
            start += own
        return cls(sources, addresses, counts)

    @contextmanager
    def seen(self, kernel: Kernel, n: Operand, block: Value) -> Iterator[tuple[Buffer, Operand]]:
        """A scope that reads a block of the concatenation: a buffer [image, pixel, lane], and the index in it of image n."""
        batch, _, pixels, lanes = self.sources[0].sizes
        blocks = math.prod((batch, sum(source.sizes[1] for source in self.sources)))
        with kernel.seen_at("source", self.addresses[block], self.sources[0].element, (blocks, pixels, lanes)) as source:
            yield source, n * self.counts[block].as_index()
