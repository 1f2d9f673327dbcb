"""Several blocked values seen as one, the blocks of each behind those of the one before: a table says where each block stands."""

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
    """Each [batch, blocks, pixels, lanes], which differ in blocks alone."""
    addresses: Buffer
    """For each block of the whole: where the first image's stands."""
    counts: Buffer
    """For each block of the whole: how many blocks the value has that it comes from."""

    @classmethod
    def of(cls, kernel: Kernel, sources: Sequence[Buffer]) -> JoinedBlocks:
        """The table of these values, written out once, here."""
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
        """Statements that read a block of the whole: a buffer [image, pixel, lane], and the number in it of image n."""
        batch, _, pixels, lanes = self.sources[0].sizes
        blocks = math.prod((batch, sum(source.sizes[1] for source in self.sources)))
        with kernel.seen_at("source", self.addresses[block], self.sources[0].element, (blocks, pixels, lanes)) as source:
            yield source, n * self.counts[block].as_index()
