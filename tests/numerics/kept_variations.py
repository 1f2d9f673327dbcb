"""Small variations of single ops: what the reference computes of each, as two sums over its results, or the kind of its error.

`python -m tests.numerics.kept_variations` writes the file that `test_kept_variations.py` compares with anew. Of variations of one
attribute that end the same, the first is kept."""

from __future__ import annotations

import linecache
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from partita.graph.numerics import evaluate
from tests.graphs.variations import others
from tests.numerics.case import Case
from tests.numerics.cases_elementwise import ELEMENTWISE, QUANTIZED, REDUCTIONS
from tests.numerics.cases_further import FURTHER
from tests.numerics.cases_layers import NORMS, RECURRENT
from tests.numerics.cases_layout import SHAPES
from tests.numerics.cases_windows import RESIZE, WINDOWED

KEPT = Path(__file__).with_name("kept_variations.txt")


def _named(*cases: Case) -> dict[str, Case]:
    """Each case by its op and its number among the cases of this op."""
    counts: Counter[str] = Counter()
    named = {}
    for case in cases:
        counts[case.op] += 1
        named[f"{case.op} {counts[case.op]}"] = case
    return named


CASES = _named(*ELEMENTWISE, *QUANTIZED, *REDUCTIONS, *NORMS, *RECURRENT, *SHAPES, *RESIZE, *WINDOWED, *FURTHER)


def variations(case: Case) -> Iterator[tuple[str, Sequence[Any], Mapping[str, Any], int]]:
    """The name of each variation of a node, its inputs, its attributes and its version."""
    versions = list(case.versions())
    last = max(versions)
    schema = onnx.defs.get_schema(case.op, last)
    inputs = [None if x is None else np.asarray(x) for x in case.inputs]
    for version in versions[:-1]:
        yield f"version {version}", inputs, case.attrs, version
    for name in sorted(schema.attributes):
        for value in others(name, case.attrs.get(name), ATTRIBUTES):
            if (name, value) == ("seed", None):
                continue  # each run draws other numbers
            attrs = {key: each for key, each in {**case.attrs, name: value}.items() if each is not None}
            yield f"{name}={value}", inputs, attrs, last
    for i, x in enumerate(inputs):
        if x is None:
            continue
        yield f"without input {i}", [*inputs[:i], None, *inputs[i + 1 :]], case.attrs, last
        if x.dtype.kind in "iu" and x.size < 9:
            for step in (-1, 1):
                yield f"input {i}, first {step:+}", [*inputs[:i], _stepped(x, 0, step), *inputs[i + 1 :]], case.attrs, last
                yield f"input {i}, last {step:+}", [*inputs[:i], _stepped(x, -1, step), *inputs[i + 1 :]], case.attrs, last
        for axis in range(x.ndim):
            cut = np.take(x, range(x.shape[axis] - 1), axis)
            yield f"input {i} cut along {axis}", [*inputs[:i], cut, *inputs[i + 1 :]], case.attrs, last
        yield f"input {i} of one more axis", [*inputs[:i], x[None], *inputs[i + 1 :]], case.attrs, last


def _stepped(x: np.ndarray, at: int, step: int) -> np.ndarray:
    changed = x.copy()
    if changed.size:
        changed.flat[at] = np.asarray(int(changed.flat[at]) + step).astype(x.dtype)
    return changed


def result(case: Case, inputs: Sequence[Any], attrs: Mapping[str, Any], version: int) -> str:
    """What the reference computes of a node."""
    try:
        values = evaluate(case.op, inputs, attrs, version=version, n_outputs=case.outputs)
    except Exception as error:  # noqa: BLE001  (callers take each for a refusal)
        return _refusal(error)
    return "; ".join("absent" if value is None else _summed(np.asarray(value)) for value in values)


def _refusal(error: Exception) -> str:
    """The kind of an error; its text too if it is ours, not one of numpy's or ONNX's."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    path = Path(frame.f_code.co_filename)
    is_ours = "numerics" in path.parts and linecache.getline(str(path), line).strip().startswith("raise")
    return f"{type(error).__name__}: {error}".partition("\n")[0] if is_ours else type(error).__name__


def _summed(value: np.ndarray) -> str:
    """Type and shape, how many elements are greater than zero, and the weighted sum of the finite ones' sizes; or texts."""
    kind = f"{value.dtype}{list(value.shape)}"
    if value.dtype.kind in "OU" and all(isinstance(text, str) for text in value.flat):
        return f"{kind} {value.tolist()}"
    if value.dtype.kind not in "biufV":
        return kind
    numbers = value.astype(np.float64).ravel()
    finite = np.isfinite(numbers)
    sizes = np.abs(numbers[finite]) * (2 + np.cos(np.flatnonzero(finite)))
    return f"{kind} {int((numbers > 1e-6).sum())} {int((~finite).sum())} {float(sizes.sum()):#.5g}"


def is_same(a: str, b: str) -> bool:
    """True for the same results, but for the last digits of sums."""
    if a == b:
        return True
    left, right = a.split(), b.split()
    return len(left) == len(right) and all(x == y or _is_close(x, y) for x, y in zip(left, right))


def _is_close(a: str, b: str) -> bool:
    try:
        x, y = float(a.rstrip(";")), float(b.rstrip(";"))
    except ValueError:
        return False
    return abs(x - y) <= 1e-3 * max(abs(x), abs(y)) and "." in a + b


@cache
def kept() -> dict[str, dict[str, str]]:
    """The lines of the file, by their subjects."""
    listed: dict[str, dict[str, str]] = {}
    for line in KEPT.read_text("utf-8").splitlines():
        subject, name, expected = line.split(" | ", 2)
        listed.setdefault(subject, {})[name] = expected
    return listed


def _worth_keeping() -> Iterator[str]:
    refused = set()
    for subject, case in CASES.items():
        seen = set()
        for name, inputs, attrs, version in variations(case):
            expected = result(case, inputs, attrs, version)
            varied = name.partition("=")[0] if "=" in name else name
            if (varied, expected) in seen or (case.op, name, expected) in refused:
                continue
            seen.add((varied, expected))
            if expected.partition(":")[0].isalpha():
                refused.add((case.op, name, expected))
            yield f"{subject} | {name} | {expected}\n"


ATTRIBUTES: dict[str, Sequence[Any]] = {
    "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"), "pads": ([1, 1], [1, 0, 0, 1], [0, 1]), "strides": ([2], [2, 1]),
    "dilations": ([2], [2, 1]), "kernel_shape": ([2], [2, 2]), "axes": ([0], [-1]), "perm": ([1, 0],), "mode": (
        "nearest", "linear", "cubic", "constant", "edge", "reflect", "wrap", "DCR", "CRD", "max", "avg", "bilinear",
    ),
    "nearest_mode": ("floor", "ceil", "round_prefer_ceil"), "coordinate_transformation_mode": (
        "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_half_pixel_for_nn",
    ),
    "direction": ("forward", "reverse", "bidirectional", "RIGHT", "LEFT"),
    "reduction": ("none", "mean", "sum", "add", "mul", "max"),
    "padding_mode": ("zeros", "border", "reflection"), "approximate": ("tanh", "none"), "output_shape": ([5], [5, 5]),
    "output_padding": ([1], [1, 0]), "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"), "to": (1, 7, 9, 2, 17),
    "alpha": (0.5,), "beta": (0.5,), "epsilon": (0.5,), "momentum": (0.5,), "bias": (0.5,), "lambd": (0.25,), "gamma": (0.5,),
    "clip": (0.5,), "cubic_coeff_a": (-0.5,), "extrapolation_value": (0.5,), "value": (0.5,), "scale": (0.5,), "softcap": (0.5,),
    "activations": (["Relu"], ["Sigmoid", "Tanh"]), "activation_alpha": ([0.5],), "activation_beta": ([0.5],),
    "split": ([1, 2],), "scales": ([2.0, 1.0],), "size": (1, 2, 3, 4), "default_float": (0.5,), "default_string": ("x",),
    "delimiter": (",",), "case_change_action": ("NONE", "LOWER", "UPPER"), "stopwords": (["B c,d"],), "pattern": ("a.*",),
    "seed": (2.0,), "mean": (1.5,), "low": (-1.0,), "high": (7.0,),
}
"""Values of attributes that a case does not give."""


if __name__ == "__main__":
    KEPT.write_text("".join(_worth_keeping()), "utf-8")
