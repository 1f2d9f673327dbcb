"""Ops on words: TfIdfVectorizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import fallback
from .registry import differs, numerics


@numerics("TfIdfVectorizer", wants=("version",), why=differs("for n-grams of no items, of which it counts any number"))
def count_ngrams(x: np.ndarray, *, version: int, min_gram_length: int, max_skip_count: int, **attrs: Any) -> np.ndarray:
    """Counts the n-grams. Skips longer than the data match nothing: such skips, of which a file may
    request 2^62, are not tried."""
    if min_gram_length < 1:
        raise ValueError(f"min_gram_length is {min_gram_length}, and an n-gram has one item at least")
    skips = min(max_skip_count, x.shape[-1] if x.ndim else 1)
    lengths = {"min_gram_length": min_gram_length, "max_skip_count": skips}
    counted: np.ndarray = fallback.run("TfIdfVectorizer", [x], {**attrs, **lengths}, "", version, 1)[0]
    return counted
