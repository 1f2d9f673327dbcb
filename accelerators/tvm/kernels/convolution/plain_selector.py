"""Selects convolutions of plain values, each with the addition and the activation after it."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.convolution.normed_image import (
    is_cut_off,
    reads_single_pixels,
    scales_channels,
    shifts_channels,
)
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty

ACTIVATIONS = "Relu|Clip|LeakyRelu|Sigmoid|Tanh|HardSigmoid|HardSwish|Elu|Selu|Softplus|Gelu|Mish|Swish|PRelu"
"""The activations that may end the kernel of a convolution of plain values."""


class ConvolutionProperty(PatternProperty):
    """A convolution of plain values with its element-wise epilogue."""

    def __init__(self) -> None:
        super().__init__(Pattern("Conv|ConvTranspose", "Add|Sum?", ACTIVATIONS + "?"), "conv")


class NormedProperty(PatternProperty):
    """A convolution of one tap with the norm and the activation before it, and its epilogue, for a GPU kernel."""

    def __init__(self) -> None:
        before = scales_channels, shifts_channels, is_cut_off
        super().__init__(Pattern(*before, reads_single_pixels, "Add|Sum?", ACTIVATIONS + "?"), "conv")
