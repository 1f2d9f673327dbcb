"""Ops of ai.onnx.ml: encoders, vectorizers, linear classifiers, and tree ensembles with tensor attributes; and
TfIdfVectorizer, a vectorizer of ONNX's own domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.numerics import fallback
from partita.graph.numerics.registry import absent, differs, fails, numerics

DOMAIN = "ai.onnx.ml"
UNUSED = "_Unused"
"""The text of a key without a text."""


@numerics("LabelEncoder", domain=DOMAIN, until=1, why=fails("for classes, which it does not know"))
def encode_classes(x: np.ndarray, *, classes_strings: Sequence[str], default_int64: int, default_string: str) -> np.ndarray:
    """Maps texts to their positions among the classes, or positions to texts."""
    if x.dtype.kind in "iu":
        return _looked_up(x, range(len(classes_strings)), classes_strings, default_string, object)
    return _looked_up(x, classes_strings, range(len(classes_strings)), default_int64, np.int64)


@numerics("LabelEncoder", domain=DOMAIN, since=2, why=fails("for some pairs of types, and for tensors without a default"))
def encode_labels(
    x: np.ndarray, *, default_float: float, default_int64: int, default_string: str, default_tensor: np.ndarray | None = None,
    keys_tensor: np.ndarray | None = None, values_tensor: np.ndarray | None = None, **lists: Any,
) -> np.ndarray:
    """The value of each key, or the default of the value's type. NaN is a valid key."""
    defaults: dict[str, tuple[Any, Any]] = {
        "values_floats": (default_float, np.float32),
        "values_int64s": (default_int64, np.int64),
        "values_strings": (default_string, object),
    }
    keys = next((lists[name] for name in ("keys_strings", "keys_int64s", "keys_floats") if name in lists), None)
    name = next((name for name in defaults if name in lists), None)
    if keys is None:
        keys = () if keys_tensor is None else keys_tensor.ravel().tolist()
    if name is not None:
        default, dtype = defaults[name]
        values: Sequence[Any] = lists[name]
    elif values_tensor is None:
        raise ValueError("LabelEncoder has no values")
    else:
        values, dtype = values_tensor.ravel().tolist(), values_tensor.dtype
        default = default_string if dtype.hasobject else default_int64 if dtype.kind in "iu" else default_float
    if default_tensor is not None and default_tensor.size:
        default = default_tensor.ravel()[0]
    return _looked_up(x, keys, values, default, dtype)


def _looked_up(x: np.ndarray, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: Any) -> np.ndarray:
    """The values of the keys in an array of that type; the first of equal keys takes precedence."""
    if x.dtype == np.float32:
        keys = [float(np.float32(key)) for key in keys]
    table: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        table.setdefault(None if key != key else key, value)
    result = np.empty(x.size, dtype)
    result[:] = [table.get(None if key != key else key, default) for key in x.ravel().tolist()]
    return result.reshape(x.shape)


@numerics("ZipMap", domain=DOMAIN, why=absent())
def zip_map(
    x: np.ndarray, *, classlabels_strings: Sequence[str] = (), classlabels_int64s: Sequence[int] = ()
) -> list[dict[Any, Any]]:
    """Each row as a dictionary from labels to numbers."""
    labels: list[Any] = [*classlabels_strings] or [*classlabels_int64s]
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    if rows.shape[1] != len(labels):
        raise ValueError(f"there are {len(labels)} labels for {rows.shape[1]} columns")
    return [dict(zip(labels, row, strict=True)) for row in rows]


@numerics(
    "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=DOMAIN, wants=("op", "version", "n_outputs"),
    why=fails("where numbers stand in tensors: it looks for lists"),
)
def tree_ensemble(x: np.ndarray, *, op: str, version: int, n_outputs: int, **attributes: Any) -> Any:
    """The ensemble with its tensor attributes passed as lists, in their own precision."""
    tensors = {name: value for name, value in attributes.items() if name.endswith("_as_tensor")}
    if not tensors:
        return fallback.run(op, [x], attributes, DOMAIN, version, n_outputs)
    from onnx.reference.ops.aionnxml.op_tree_ensemble_classifier import TreeEnsembleClassifier
    from onnx.reference.ops.aionnxml.op_tree_ensemble_regressor import TreeEnsembleRegressor

    plain = {name: value for name, value in attributes.items() if name not in tensors}
    plain |= {name.removesuffix("_as_tensor"): np.asarray(value).ravel() for name, value in tensors.items()}
    plain.pop("nodes_hitrates", None)
    tracks = plain.get("nodes_missing_value_tracks_true") or [0] * len(plain["nodes_nodeids"])
    kind: Any = TreeEnsembleClassifier if op == "TreeEnsembleClassifier" else TreeEnsembleRegressor
    results = kind._run(kind.__new__(kind), x, **{**plain, "nodes_missing_value_tracks_true": tracks})
    return tuple([y.astype(np.float32) if y.dtype == np.float64 else y for y in results])


@numerics("FeatureVectorizer", domain=DOMAIN, why=fails("for inputs of more than two dimensions"))
def side_by_side(*inputs: np.ndarray, inputdimensions: Sequence[int] = ()) -> np.ndarray:
    """The rows of all inputs concatenated, each input truncated or zero-padded to its declared length."""
    rows = [x.reshape(x.shape[0] if x.ndim > 1 else 1, -1).astype(np.float32) for x in inputs]
    lengths = [*inputdimensions] or [x.shape[1] for x in rows]
    parts = [np.pad(x[:, :length], [(0, 0), (0, max(0, length - x.shape[1]))]) for x, length in zip(rows, lengths, strict=True)]
    return np.concatenate(parts, axis=1)


@numerics(
    "LinearClassifier", domain=DOMAIN, wants=("op", "version", "n_outputs"), why=fails("where there are too many coefficients"),
)
def linear_classifier(
    x: np.ndarray, *, op: str, version: int, n_outputs: int, coefficients: Sequence[float], **attributes: Any
) -> Any:
    """The linear classifier, truncated to the coefficients that its classes and features need."""
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_ints") or ()
    count = len(attributes.get("intercepts") or labels) * x.shape[-1]
    used = [*coefficients][: count or None]
    return fallback.run(op, [x], {**attributes, "coefficients": used}, DOMAIN, version, n_outputs)


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
