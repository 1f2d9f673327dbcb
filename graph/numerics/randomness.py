"""Random ops: results with a seed are reproducible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, absent, differs, fails, numerics, slow


@numerics("RandomNormal", why=differs("because it does not give the same numbers for the same seed"))
def random_normal(
    *, shape: Sequence[int], dtype: int, mean: float, scale: float, seed: float | None = None
) -> np.ndarray:
    """Normally distributed elements of a given shape."""
    return _generator(seed).normal(mean, scale, shape).astype(_dtype(dtype))


@numerics("RandomUniform", why=differs("because it does not give the same numbers for the same seed"))
def random_uniform(
    *, shape: Sequence[int], dtype: int, low: float, high: float, seed: float | None = None
) -> np.ndarray:
    """Uniformly distributed elements of a given shape."""
    return _generator(seed).uniform(low, high, shape).astype(_dtype(dtype))


@numerics("RandomNormalLike", why=differs("because it does not give the same numbers for the same seed"))
def random_normal_like(
    x: np.ndarray, *, mean: float, scale: float, dtype: int | None = None, seed: float | None = None
) -> np.ndarray:
    """Normally distributed elements in the shape of the input."""
    return _generator(seed).normal(mean, scale, x.shape).astype(_dtype(dtype) if dtype else x.dtype)


@numerics("RandomUniformLike", why=differs("because it does not give the same numbers for the same seed"))
def random_uniform_like(
    x: np.ndarray, *, low: float, high: float, dtype: int | None = None, seed: float | None = None
) -> np.ndarray:
    """Uniformly distributed elements in the shape of the input."""
    return _generator(seed).uniform(low, high, x.shape).astype(_dtype(dtype) if dtype else x.dtype)


@numerics("Bernoulli", why=differs("because it does not give the same numbers for the same seed"))
def bernoulli(x: np.ndarray, *, dtype: int | None = None, seed: float | None = None) -> np.ndarray:
    """1 with the probability in the input, else 0."""
    return (_generator(seed).random(x.shape) < x).astype(_dtype(dtype) if dtype else x.dtype)


@numerics("Multinomial", why=absent())
def multinomial(x: np.ndarray, *, dtype: int, sample_size: int, seed: float | None = None) -> np.ndarray:
    """Samples from each row of unnormalized log-probabilities."""
    # The argmax after adding Gumbel noise is a sample of the softmax.
    noise = _generator(seed).gumbel(size=(x.shape[0], sample_size, x.shape[1]))
    return np.argmax(x[:, None, :] + noise, axis=-1).astype(_dtype(dtype))


@numerics("Dropout", until=6, why=fails("because it has no op with `is_test`"))
def dropout_is_test(x: np.ndarray, *, ratio: float, is_test: int) -> tuple[np.ndarray, np.ndarray]:
    """Dropout below opset 7, where training is the default."""
    y, mask = _dropped(x, ratio, 0 if is_test else ratio, None)
    return y, mask.astype(x.dtype)


@numerics("Dropout", since=7, until=9, why=differs("in the element type of the mask"))
def dropout_mask_like_input(x: np.ndarray, *, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Opsets 7 to 9 are inference only; the mask has the input's type."""
    return x, np.ones_like(x)


@numerics("Dropout", since=12, why=slow(EVERYWHERE))
def dropout(
    x: np.ndarray, ratio: np.ndarray | None = None, training_mode: np.ndarray | None = None, *, seed: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Identity unless training is on; the mask marks the elements that were kept."""
    rate = 0.5 if ratio is None else float(ratio.item())
    training = training_mode is not None and bool(training_mode.item())
    return _dropped(x, rate, rate if training else 0, seed)


def _dropped(x: np.ndarray, ratio: float, rate: float, seed: float | None) -> tuple[np.ndarray, np.ndarray]:
    if not rate:
        return x, np.ones(x.shape, bool)
    # ONNX's tests pin their expected values to this legacy generator.
    uniform = np.random.RandomState(None if seed is None else int(seed)).uniform(0, 1.0, x.shape)
    mask = uniform >= rate
    return (mask * x * (1.0 / (1.0 - ratio))).astype(x.dtype), mask


def _generator(seed: float | None) -> np.random.Generator:
    """A generator seeded by the bits of ONNX's float seed."""
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng(int(np.float32(seed).view(np.uint32)))


def _dtype(number: int) -> np.dtype:
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(number)
