"""Attention, and FlexAttention, whose scores and probabilities pass through bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.numerics import fallback
from partita.graph.numerics.casts import cast, is_half
from partita.graph.numerics.control import LoopBody
from partita.graph.numerics.registry import BODIES, HALVES, differs, fails, numerics
from partita.graph.numerics.softmax import softmax

_FLOAT = 1


@numerics("Attention", wants=("version", "n_outputs"), why=differs(HALVES))
def attention(*inputs: np.ndarray | None, version: int, n_outputs: int, **attributes: Any) -> tuple[np.ndarray, ...]:
    """The results of ONNX's evaluator in float32; queries and keys have one element type, values another.

    Only `is_causal` = 1 means a causal mask, as in the op's function body in ONNX; the evaluator takes any nonzero number. The
    fourth output of mode 0 is the product before softcap, which the evaluator returns after it."""
    attributes["is_causal"] = int(attributes.get("is_causal", 0) == 1)
    wide = [x.astype(np.float32) if x is not None and is_half(x) else x for x in inputs]
    queries, keys, values = (x.dtype for x in inputs[:3] if x is not None)
    if attributes["is_causal"] and len(wide) > 3 and wide[3] is not None and wide[3].ndim >= 2:
        wide[3] = _as_many_rows(wide[3], wide, attributes, version)
    results = _evaluated(wide, attributes, version)
    if n_outputs > 3 and attributes.get("softcap") and not attributes.get("qk_matmul_output_mode"):
        results = (*results[:3], _evaluated(wide, {**attributes, "softcap": 0.0}, version)[3])
    return tuple(y.astype(dtype) for y, dtype in zip(results, (queries, keys, values, queries), strict=True))


def _as_many_rows(mask: np.ndarray, inputs: list[np.ndarray | None], attributes: dict[str, Any], version: int) -> np.ndarray:
    """The mask with a row per query and, before opset 24 (which pads short masks), a column per key.
    The evaluator makes the causal mask in the shape of the given mask."""
    queries, keys = inputs[:2]
    assert queries is not None and keys is not None
    past = inputs[4] if len(inputs) > 4 else None
    total = keys.shape[-2] + (past.shape[-2] if past is not None else 0)
    columns = total if mask.shape[-1] == 1 and version < 24 else mask.shape[-1]
    rows = queries.shape[-2] if mask.shape[-2] == 1 else mask.shape[-2]
    return np.broadcast_to(mask, (*mask.shape[:-2], rows, columns))


def _evaluated(inputs: list[np.ndarray | None], attributes: dict[str, Any], version: int) -> tuple[np.ndarray, ...]:
    """The evaluator's results. It cannot reshape an empty batch: a batch of one is used instead and sliced off."""
    queries = inputs[0]
    if queries is None or queries.shape[0]:
        return fallback.run("Attention", inputs, attributes, "", version, 4)
    one = [x if x is None or x.ndim < 3 or x.shape[0] else np.zeros((1, *x.shape[1:]), x.dtype) for x in inputs]
    return tuple(y[:0] for y in fallback.run("Attention", one, attributes, "", version, 4))


@numerics("FlexAttention", domain="ai.onnx.preview", why=fails(BODIES))
def flex_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, scale: float | None = None, score_mod: LoopBody | None = None,
    prob_mod: LoopBody | None = None, softmax_precision: int | None = None,
) -> np.ndarray:
    """softmax(score_mod(Q Kᵀ scale)) modified by prob_mod, times V; each K and V head serves a group of Q heads."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    # Each factor is multiplied by the root of the scale in its own type, since the specification rounds there.
    root = np.sqrt(np.float32(1 / np.sqrt(q.shape[-1]) if scale is None else scale)).astype(q.dtype)
    scores = np.matmul(q * root, np.swapaxes(k * root, -1, -2))
    precision = softmax_precision or (_FLOAT if is_half(q) else None)
    if precision:
        scores = cast(scores, to=precision)
    wide = scores.dtype
    if score_mod is not None:
        (scores,) = score_mod([scores])
    probabilities = softmax(scores)
    if prob_mod is not None:
        (probabilities,) = prob_mod([probabilities])
    return np.matmul(probabilities, v.astype(wide)).astype(q.dtype)
