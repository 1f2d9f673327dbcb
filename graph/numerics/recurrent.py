"""RNN, GRU and LSTM, with every activation, both directions, sequence lengths, clipping and peepholes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from partita.graph.numerics.activations import elu, hard_sigmoid, leaky_relu, sigmoid, softplus, softsign, thresholded_relu
from partita.graph.numerics.registry import differs, numerics

Activation = Callable[[np.ndarray], np.ndarray]
State = tuple[np.ndarray, ...]
Step = Callable[[np.ndarray, State], State]

Parameters = dict[str, float]

ACTIVATION_PARAMETERS: Mapping[str, Parameters] = {
    **{name: {} for name in ("relu", "tanh", "sigmoid", "softsign", "softplus")},
    "affine": {"alpha": 1.0, "beta": 0.0},
    "scaledtanh": {"alpha": 1.0, "beta": 1.0},
    "leakyrelu": {"alpha": 0.01},
    "thresholdedrelu": {"alpha": 1.0},
    "hardsigmoid": {"alpha": 0.2, "beta": 0.5},
    "elu": {"alpha": 1.0},
}
"""The activations by lower-case name, each with its parameters and their defaults."""

ACTIVATIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softsign": softsign,
    "softplus": softplus,
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "scaledtanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "leakyrelu": leaky_relu,
    "thresholdedrelu": thresholded_relu,
    "hardsigmoid": hard_sigmoid,
    "elu": elu,
}


def with_parameters(
    names: Sequence[str], alpha: Sequence[float] | None, beta: Sequence[float] | None
) -> list[tuple[str, Parameters]]:
    """The lower-case names with their parameters; alphas and betas go, in order, to those that take one."""
    given = {"alpha": list(alpha or ()), "beta": list(beta or ())}
    named = []
    for name in map(str.lower, names):
        defaults = ACTIVATION_PARAMETERS[name]
        named.append((name, {key: given[key].pop(0) if given[key] else default for key, default in defaults.items()}))
    return named


def _activations(names: Sequence[str], alpha: Sequence[float] | None, beta: Sequence[float] | None) -> list[Activation]:
    """The named functions with their parameters."""
    return [partial(ACTIVATIONS[name], **parameters) for name, parameters in with_parameters(names, alpha, beta)]


def _run(
    x: np.ndarray, steps: Sequence[Step], direction: str, initial: Sequence[np.ndarray | None], hidden: int,
    lengths: np.ndarray | None, layout: int,
) -> tuple[np.ndarray, ...]:
    """Y and the last states; there is one step per direction, and time is the first axis unless ``layout`` is 1."""
    if len(steps) != 1 + (direction == "bidirectional"):
        raise ValueError(f"the direction is {direction}, and there are weights of {len(steps)}")
    if layout:
        x = x.swapaxes(0, 1)
        initial = [None if s is None else s.swapaxes(0, 1) for s in initial]
    time, batch = x.shape[:2]
    limits = np.full(batch, time) if lengths is None else lengths
    wrong = limits[(limits < 0) | (limits > time)]
    if wrong.size:
        raise ValueError(f"the length {wrong[0]} of a sequence is not between 0 and {time}")
    ys, lasts = [], []
    for i, step in enumerate(steps):
        backwards = direction == "reverse" or i == 1
        state = tuple(np.zeros((batch, hidden), x.dtype) if s is None else s[i] for s in initial)
        y = np.zeros((time, batch, hidden), x.dtype)
        for t in range(time):
            # A reversed sequence starts at its own last element; elements behind a sequence's end stay zero.
            positions = limits - 1 - t if backwards else np.full(batch, t)
            live = (t < limits)[:, None]
            new = step(x[positions, np.arange(batch)], state)
            state = tuple(np.where(live, n, s) for n, s in zip(new, state))
            rows = np.flatnonzero(live)
            y[positions[rows], rows] = state[0][rows]
        ys.append(y)
        lasts.append(state)
    y = np.stack(ys, axis=1)
    finals = [np.stack(states) for states in zip(*lasts)]
    if layout:
        return (y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in finals))
    return (y, *finals)


def _clipped(x: np.ndarray, clip: float | None) -> np.ndarray:
    return x if clip is None else np.clip(x, -x.dtype.type(clip), x.dtype.type(clip))


def _biases(b: np.ndarray | None, w: np.ndarray, direction: int) -> tuple[np.ndarray, np.ndarray]:
    """The biases of input and state."""
    if b is None:
        return (np.zeros(w.shape[1], w.dtype),) * 2
    return b[direction, : w.shape[1]], b[direction, w.shape[1] :]


@numerics("RNN", widen=True, why=differs("with two directions, lengths or limits"))
def rnn(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None, *, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str, hidden_size: int | None = None, layout: int = 0, output_sequence: int = 0,
) -> tuple[np.ndarray, ...]:
    """H = f(X Wᵀ + H Rᵀ + B)."""
    functions = _activations(activations or ["Tanh"] * len(w), activation_alpha, activation_beta)

    def step_of(d: int) -> Step:
        bias = sum(_biases(b, w, d))
        return lambda xt, s: (functions[d](_clipped(xt @ w[d].T + s[0] @ r[d].T + bias, clip)),)

    return _run(x, [step_of(d) for d in range(len(w))], direction, [initial_h], r.shape[-1], sequence_lens, layout)


@numerics("GRU", widen=True, why=differs("with two directions, lengths or limits"))
def gru(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None, *, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, activations: Sequence[str] | None = None, clip: float | None = None,
    direction: str, hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> tuple[np.ndarray, ...]:
    """Update gate z, reset gate r, candidate h; ``linear_before_reset`` resets after the product with the state."""
    names = activations or ["Sigmoid", "Tanh"] * len(w)
    functions = _activations(names, activation_alpha, activation_beta)
    n = r.shape[-1]

    def step_of(d: int) -> Step:
        f, g = functions[2 * d : 2 * d + 2]
        input_bias, state_bias = _biases(b, w, d)

        def step(xt: np.ndarray, state: State) -> State:
            (h,) = state
            from_x = xt @ w[d].T + input_bias
            gates = f(_clipped(from_x[:, : 2 * n] + h @ r[d, : 2 * n].T + state_bias[: 2 * n], clip))
            update, reset = gates[:, :n], gates[:, n:]
            if linear_before_reset:
                recurrent = reset * (h @ r[d, 2 * n :].T + state_bias[2 * n :])
            else:
                recurrent = (reset * h) @ r[d, 2 * n :].T + state_bias[2 * n :]
            candidate = g(_clipped(from_x[:, 2 * n :] + recurrent, clip))
            return ((1 - update) * candidate + update * h,)

        return step

    return _run(x, [step_of(d) for d in range(len(w))], direction, [initial_h], n, sequence_lens, layout)


@numerics("LSTM", widen=True, why=differs("with two directions, lengths or limits"))
def lstm(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray | None = None, sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None, initial_c: np.ndarray | None = None, p: np.ndarray | None = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str, hidden_size: int | None = None,
    input_forget: int, layout: int = 0, output_sequence: int = 0,
) -> tuple[np.ndarray, ...]:
    """Input, output and forget gates over a cell; with ``input_forget`` the forget gate is one minus the input gate."""
    names = activations or ["Sigmoid", "Tanh", "Tanh"] * len(w)
    functions = _activations(names, activation_alpha, activation_beta)
    n = r.shape[-1]
    peepholes = np.zeros((len(w), 3 * n), x.dtype) if p is None else p

    def step_of(d: int) -> Step:
        f, g, squash = functions[3 * d : 3 * d + 3]
        bias = sum(_biases(b, w, d))
        peep_i, peep_o, peep_f = np.split(peepholes[d], 3)

        def step(xt: np.ndarray, state: State) -> State:
            h, c = state
            i, o, forget, cell = np.split(xt @ w[d].T + h @ r[d].T + bias, 4, axis=-1)
            i = f(_clipped(i + peep_i * c, clip))
            forget = 1 - i if input_forget else f(_clipped(forget + peep_f * c, clip))
            c = forget * c + i * g(_clipped(cell, clip))
            o = f(_clipped(o + peep_o * c, clip))
            return o * squash(c), c

        return step

    steps = [step_of(d) for d in range(len(w))]
    return _run(x, steps, direction, [initial_h, initial_c], n, sequence_lens, layout)
