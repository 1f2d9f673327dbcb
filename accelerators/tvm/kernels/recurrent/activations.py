"""The activations of recurrent layers, for vectors of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partita.accelerators.tvm.bodies.recurrent import Activation
from partita.accelerators.tvm.kernels.language import Value, named, select
from partita.accelerators.tvm.kernels.shared import functions
from partita.accelerators.tvm.kernels.shared.functions import at_least, at_most, magnitude

ACTIVATIONS: Mapping[str, Callable[..., Value]] = {
    "relu": lambda x: at_least(x, 0.0),
    "tanh": functions.tanh,
    "sigmoid": functions.sigmoid,
    "softsign": lambda x: x / (magnitude(x) + 1.0),
    "softplus": functions.softplus,
    "affine": lambda x, alpha, beta: x * alpha + beta,
    "scaledtanh": lambda x, alpha, beta: functions.tanh(x * beta) * alpha,
    "leakyrelu": lambda x, alpha: select(x < 0.0, x * alpha, x),
    "thresholdedrelu": lambda x, alpha: select(x > alpha, x, 0.0),
    "hardsigmoid": lambda x, alpha, beta: _within(x * alpha + beta, 0.0, 1.0),
    "elu": lambda x, alpha: select(x > 0.0, x, (functions.exp_of_negative(at_most(x, 0.0)) - 1.0) * alpha),
}
"""The functions of a vector and the activation's parameters, by name."""


def _within(x: Value, low: float, high: float) -> Value:
    return named(x, lambda x: named(at_most(x, high), lambda x: at_least(x, low)))


def activated(activation: Activation, x: Value, clip: float | None) -> Value:
    """The activation of x, which is clipped first."""
    name, parameters = activation
    return named(x if clip is None else _within(x, -clip, clip), lambda x: ACTIVATIONS[name](x, **parameters))
