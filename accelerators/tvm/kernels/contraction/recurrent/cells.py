"""The step of each recurrent layer: its products with a state, and the cell's formulas and activations.

A step has one part, or two: a GRU that resets the state before the product first needs the whole reset state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from partita.accelerators.tvm.bodies.recurrent import Activation, Layer, resets_later
from partita.accelerators.tvm.kernels.language import Value, named, select
from partita.accelerators.tvm.kernels.shared import functions
from partita.accelerators.tvm.kernels.shared.functions import at_least, at_most, magnitude

if TYPE_CHECKING:
    from partita.accelerators.tvm.kernels.contraction.recurrent.recurrence import Numbers

Finish = Callable[["Numbers", tuple[Activation, ...]], None]
"""Computes the states from the products, with the activations of the direction."""


@attrs.frozen(slots=True, eq=False)
class Part:
    """Products of gates with a state, and the formulas that follow."""

    gates: tuple[int, ...]
    """The gates of the layer whose weights are used."""
    source: str
    """The name of the state that they are multiplied by."""
    finish: Finish


HIDDEN, CELLS, RESET, UPDATE = "hidden", "cells", "reset", "update"
"""The names of the states: the results of the step, the cells of an LSTM, and a GRU's reset state and update gate."""


def parts_of(layer: Layer) -> tuple[Part, ...]:
    """The parts of a step, in order."""
    if layer.node.op == "RNN":
        return (Part((0,), HIDDEN, lambda x, f: _rnn(layer, x, f)),)
    if layer.node.op == "LSTM":
        return (Part((0, 1, 2, 3), HIDDEN, lambda x, f: _lstm(layer, x, f)),)
    if resets_later(layer.node):
        return (Part((0, 1, 2), HIDDEN, lambda x, f: _gru(layer, x, f)),)
    return (
        Part((0, 1), HIDDEN, lambda x, f: _gru_gates(layer, x, f)),
        Part((2,), RESET, lambda x, f: _gru_candidate(layer, x, f)),
    )


def kept_by(layer: Layer) -> tuple[str, ...]:
    """The names of the states that a step passes to the next."""
    return (HIDDEN, CELLS) if layer.node.op == "LSTM" else (HIDDEN,)


def _rnn(layer: Layer, x: Numbers, functions: tuple[Activation, ...]) -> None:
    x.keep(HIDDEN, activated(functions[0], x.given(0) + x.sums(0), layer.clip))


def _lstm(layer: Layer, x: Numbers, functions: tuple[Activation, ...]) -> None:
    """The gates are input, output, forget and cell. Peepholes read the cells; the output gate's reads the new ones."""
    f, g, squash = functions
    cells = x.named("cells", x.state(CELLS))

    def gate(number: int, seen: Value) -> Value:
        weights = x.peephole(number)
        total = x.given(number) + x.sums(number)
        return activated(f, total if weights is None else total + weights * seen, layer.clip)

    let_in = x.named("let_in", gate(0, cells))
    forget = 1.0 - let_in if layer.node.attrs.get("input_forget", 0) else x.named("forget", gate(2, cells))
    candidate = x.named("candidate", activated(g, x.given(3) + x.sums(3), layer.clip))
    renewed = x.named("renewed", forget * cells + let_in * candidate)
    x.keep(CELLS, renewed)
    let_out = x.named("let_out", gate(1, renewed))
    x.keep(HIDDEN, let_out * activated(squash, renewed, None))


def _gru(layer: Layer, x: Numbers, functions: tuple[Activation, ...]) -> None:
    """The gates are update, reset and candidate; the product with the state is reset."""
    f, g = functions
    update = x.named("update", activated(f, x.given(0) + x.sums(0), layer.clip))
    reset = x.named("reset", activated(f, x.given(1) + x.sums(1), layer.clip))
    bias = x.late_bias()
    from_state = x.sums(2) if bias is None else x.sums(2) + bias
    candidate = x.named("candidate", activated(g, x.given(2) + reset * from_state, layer.clip))
    x.keep(HIDDEN, _mixed(update, candidate, x.state(HIDDEN)))


def _gru_gates(layer: Layer, x: Numbers, functions: tuple[Activation, ...]) -> None:
    x.keep(UPDATE, activated(functions[0], x.given(0) + x.sums(0), layer.clip))
    x.keep(RESET, activated(functions[0], x.given(1) + x.sums(1), layer.clip) * x.state(HIDDEN))


def _gru_candidate(layer: Layer, x: Numbers, functions: tuple[Activation, ...]) -> None:
    candidate = x.named("candidate", activated(functions[1], x.given(2) + x.sums(0), layer.clip))
    x.keep(HIDDEN, _mixed(x.named("update", x.state(UPDATE)), candidate, x.state(HIDDEN)))


def _mixed(update: Value, candidate: Value, before: Value) -> Value:
    return (1.0 - update) * candidate + update * before


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
"""The functions of a vector of float32 and the activation's parameters, by name."""


def _within(x: Value, low: float, high: float) -> Value:
    return named(x, lambda x: named(at_most(x, high), lambda x: at_least(x, low)))


def activated(activation: Activation, x: Value, clip: float | None) -> Value:
    """The activation of x, which is clipped first."""
    name, parameters = activation
    return named(x if clip is None else _within(x, -clip, clip), lambda x: ACTIVATIONS[name](x, **parameters))
