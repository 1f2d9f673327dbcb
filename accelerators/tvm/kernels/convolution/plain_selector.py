"""Convolutions of plain values, each with the addition and the activation after it."""

from __future__ import annotations

from partition.pattern import Pattern
from partition.property import PatternProperty

ACTIVATIONS = "Relu|Clip|LeakyRelu|Sigmoid|Tanh|HardSigmoid|HardSwish|Elu|Selu|Softplus|Gelu|Mish|Swish|PRelu"
"""What may end the kernel of a convolution of plain values."""


class ConvolutionProperty(PatternProperty):
    """A convolution of plain values with what follows it number by number."""

    def __init__(self) -> None:
        super().__init__(Pattern("Conv|ConvTranspose", "Add|Sum?", ACTIVATIONS + "?"), "conv")
