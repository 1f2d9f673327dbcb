"""A blocked convolution and its cut for a machine: bands, panels, the instruction, and the matrix unit."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.kernels.contraction.amx import LANES, TileUnit
from partita.accelerators.tvm.kernels.contraction.convolution.bands import Bands, BlockedShape, cut_bands, cut_while_running
from partita.accelerators.tvm.kernels.contraction.convolution.channels import Channels
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import Instruction, instruction_for, instruction_in_tiles
from partita.accelerators.tvm.kernels.language import Kernel
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, real_shape
from partita.accelerators.tvm.kernels.shared.window import Window, window_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node, NodeEntry


@attrs.frozen(slots=True)
class BlockedLayer:
    """A convolution and its cut."""

    shape: BlockedShape
    """The convolution."""
    channels: Channels
    """The input and output channels of each panel."""
    bands: Bands
    """The split of pixels, panels and input channels."""
    lanes: int
    """Number of elements of a vector."""
    instruction: Instruction
    """The instruction that accumulates products."""
    size: int
    """Bytes of a weight."""
    unit: TileUnit | None
    """The matrix unit (AMX), if it is used."""

    @property
    def batch(self) -> int:
        """Number of images."""
        return self.shape.batch

    @property
    def plain(self) -> bool:
        """True if the input image is not blocked."""
        return self.shape.plain

    @property
    def window(self) -> Window:
        """The window of the convolution."""
        return self.shape.window

    @property
    def group(self) -> int:
        """Number of neighbours that a step multiplies: channels, or taps of a row if the image is plain."""
        return self.instruction.group

    def while_running(self, kernel: Kernel, machine: Machine) -> BlockedLayer:
        """The same layer; for dynamic images, with the rest of the cut computed at run time."""
        if not self.window.is_any:
            return self
        return attrs.evolve(self, bands=cut_while_running(kernel, self.shape, self.bands, machine))


def make_layer(root: Node, machine: Machine) -> BlockedLayer:
    """A blocked Conv with its cut for a machine."""
    window, plain = window_of(root), bool(root.attrs["plain"])
    if window.is_pointwise and not plain:
        window = window.flat()
    tiled = instruction_in_tiles("bfloat16", machine) if _fits_tiles(root, machine) else None
    in_tiles, instruction, size = tiled is not None, tiled or _instruction(root, machine), _bytes(root.inputs[1])
    group, held = instruction.group, 4 if instruction.group == 1 else size
    if plain and group > 1:
        window = attrs.evolve(window, taps=(window.taps[0], math.ceil(window.taps[1] / group) * group))
    shuffle = int(root.attrs.get("shuffle", 1))
    batch, *_ = real_shape(root[0]) or ()
    always = (plain and size != 4) or _bytes(root.inputs[0]) != held
    given = batch, window, root.attrs["channels"], root.attrs["outs"], root.attrs["group"]
    skips = bool(root.attrs.get("skips_padding"))
    shape = BlockedShape(*given, plain, shuffle > 1, size, held, always, in_tiles, skips)
    bands = cut_bands(shape, machine)
    cut = shape.channels, shape.outs, shape.groups, bands.vectors, machine.lanes, plain, shuffle
    channels = Channels(*cut, bands.chunk, group)
    channels = channels if bands.chunk else attrs.evolve(channels, chunk=channels.reach)
    used = machine.instruction("bfloat16")
    unit = TileUnit(bands.pixels, 1, bands.vectors, LANES, used.is_emulated) if in_tiles and used is not None else None
    return BlockedLayer(shape, channels, bands, machine.lanes, instruction, size, unit)


def _fits_tiles(root: Node, machine: Machine) -> bool:
    """True if the matrix unit supports the products: it needs bfloat16 images in whole blocks of channels."""
    used = machine.instruction("bfloat16")
    if used is None or not used.row.has_tiles or machine.lanes != LANES or int(root.attrs["group"]) != 1 or root.attrs["plain"]:
        return False
    narrow = all(entry is not None and element_of(entry) == "bfloat16" for entry in root.inputs[:2])
    return narrow and int(root.attrs["channels"]) % LANES == 0 and int(root.attrs.get("shuffle", 1)) == 1


def _bytes(entry: NodeEntry | None) -> int:
    """Bytes of each element of a value."""
    assert entry is not None
    return 2 if element_of(entry) in HALVES else 4


def _instruction(root: Node, machine: Machine) -> Instruction:
    """The fastest instruction whose groups of neighbours are contiguous in the convolution's inputs."""
    assert root.inputs[1] is not None
    dtype, inner = element_of(root.inputs[1]), int(root.attrs["channels"]) // int(root.attrs["group"])
    instruction = instruction_for(dtype, machine)
    is_whole = inner % instruction.group == 0 and int(root.attrs.get("shuffle", 1)) == 1
    is_adjacent = window_of(root).dilations[1] == 1 if root.attrs["plain"] else is_whole
    return instruction if is_adjacent else instruction_for(dtype, machine, takes_groups=False)
