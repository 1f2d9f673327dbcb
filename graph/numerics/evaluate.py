"""Runs one op: by our own implementation if there is one, else by ONNX's reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from partita.graph.numerics import fallback
from partita.graph.numerics.casts import is_half
from partita.graph.numerics.registry import Implementation, NoNumerics, find

_OBSOLETE = ("consumed_inputs",)  # opset 1 attributes that never meant anything


def evaluate(
    op: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *, domain: str = "", version: int, n_outputs: int,
) -> tuple[Any, ...]:
    """The outputs of one op, as defined by opset ``version`` of its domain.

    ``inputs`` are numpy arrays; a sequence is a list, an absent or empty optional value None. ``attrs`` are
    Python values (arrays for tensors); a body is a callable from a list of inputs to a list of outputs, closed
    over its captures (see `partita.graph.numerics.control.LoopBody`). Inputs are never written to, but an output may
    be a view of one."""
    domain = "" if domain == "ai.onnx" else domain
    floats = _floats(op, domain, version)
    known = {
        name: _single(value) if name in floats else _text(value) for name, value in attrs.items() if name not in _OBSOLETE
    }
    known = {**defaults(op, domain, version), **known}
    inputs = _trim(inputs)
    meaning = find(op, domain, version)
    with np.errstate(all="ignore"):
        if meaning is not None:
            results = _apply(meaning, op, inputs, known, {"n_outputs": n_outputs, "op": op, "version": version})
        else:
            results = fallback.run(op, inputs, known, domain, version, n_outputs)
    return _settle(op, results, n_outputs)


def supports(op: str, domain: str, version: int) -> bool:
    """True if `evaluate` implements the op at this opset."""
    domain = "" if domain == "ai.onnx" else domain
    return find(op, domain, version) is not None or fallback.supports(op, domain, version)


@cache
def defaults(op: str, domain: str, version: int) -> Mapping[str, Any]:
    """The attribute defaults that the op's schema states at this opset; empty for an op without a schema."""
    import onnx

    if not onnx.defs.has(op, max_inclusive_version=version, domain=domain):
        return MappingProxyType({})
    values = {}
    for name, attribute in onnx.defs.get_schema(op, version, domain).attributes.items():
        if attribute.default_value.type:
            values[name] = _text(onnx.helper.get_attribute_value(attribute.default_value))
    return MappingProxyType({name: value for name, value in values.items() if not _is_hole(value)})


@cache
def _floats(op: str, domain: str, version: int) -> frozenset[str]:
    """The attributes that the schema declares as floats."""
    import onnx

    if not onnx.defs.has(op, max_inclusive_version=version, domain=domain):
        return frozenset()
    kinds = (onnx.defs.OpSchema.AttrType.FLOAT, onnx.defs.OpSchema.AttrType.FLOATS)
    attributes = onnx.defs.get_schema(op, version, domain).attributes
    return frozenset(name for name, attribute in attributes.items() if attribute.type in kinds)


def _single(value: Any) -> Any:
    """A float, or a list of them, rounded to the single precision in which files store it, so that a graph computes the same
    before and after it is written."""
    if isinstance(value, (list, tuple)):
        return [_single(item) for item in value]
    return float(np.float32(value)) if isinstance(value, (int, float)) else value


def _is_hole(value: Any) -> bool:
    """True for a tensor default without a type, by which schemas mark a default that depends on the inputs."""
    return getattr(value, "data_type", 1) == 0


def _text(value: Any) -> Any:
    """The value with bytes decoded: implementations compare string attributes as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple)):
        return [_text(item) for item in value]
    return value


def _trim(inputs: Sequence[Any]) -> list[Any]:
    """The inputs without trailing absent ones."""
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _apply(meaning: Implementation, op: str, inputs: list[Any], attrs: dict[str, Any], extra: Mapping[str, Any]) -> Any:
    keywords = attrs | {name: extra[name] for name in meaning.wants}
    if not meaning.widen or not any(map(is_half, inputs)):
        return meaning.function(*inputs, **keywords)
    results = meaning.function(*(x.astype(np.float32) if is_half(x) else x for x in inputs), **keywords)
    if not is_half(inputs[0]):
        return results
    results = results if isinstance(results, tuple) else (results,)
    return tuple(y.astype(inputs[0].dtype) if y.dtype == np.float32 else y for y in results)


def _settle(op: str, results: Any, n_outputs: int) -> tuple[Any, ...]:
    """The requested number of outputs, with numpy scalars as arrays."""
    if not isinstance(results, tuple):
        results = (results,)
    if len(results) < n_outputs:
        raise ValueError(
            f"{op} has {len(results)} outputs here but {n_outputs} are asked for; check the node's outputs"
        )
    return tuple(np.asarray(y) if isinstance(y, np.generic) else y for y in results[:n_outputs])


__all__ = ["NoNumerics", "evaluate", "supports"]
