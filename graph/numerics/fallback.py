"""ONNX's own reference implementation of an op, run without building a model around it.

`onnx.reference` has one class per op and version. An instance takes its attributes from a NodeProto and its
default attributes from the newest schema, which is wrong for old opsets: `partita.graph.numerics.evaluate` therefore
passes the defaults of the right schema, and the node here carries all of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from partita.graph.numerics.registry import NoNumerics

_MODULES = {
    "": "onnx.reference.ops",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}


def run(
    op: str, inputs: list[Any], attrs: Mapping[str, Any], domain: str, version: int, n_outputs: int
) -> tuple[Any, ...]:
    """The outputs of one op by ONNX's reference implementation of the right version."""
    return tuple(_instance(op, attrs, domain, version, n_outputs).run(*inputs))


def supports(op: str, domain: str, version: int) -> bool:
    """Whether ONNX has a reference implementation of the op at this opset."""
    return _load(op, domain, version) is not None


@cache
def _load(op: str, domain: str, version: int) -> Any:
    """The class that implements the op, or None. Each domain registers its classes by name and version."""
    import onnx

    if domain not in _MODULES or not onnx.defs.has(op, max_inclusive_version=version, domain=domain):
        return None
    module = import_module(_MODULES[domain] + "._op_list")
    classes = module._build_registered_operators().get(op, {})
    dated = [since for since in classes if since is not None and since <= version]
    if len(classes) == 1 or not dated:
        return classes.get(None)
    return classes[max(dated)]


def _instance(op: str, attrs: Mapping[str, Any], domain: str, version: int, n_outputs: int) -> Any:
    from onnx.defs import get_schema
    from onnx.helper import make_attribute, make_node
    from onnx.numpy_helper import from_array

    kind = _load(op, domain, version)
    if kind is None:
        raise NoNumerics(op, domain, version)
    node = make_node(op, [], [f"y{i}" for i in range(n_outputs)], domain=domain)
    declared = get_schema(op, version, domain).attributes
    for name, value in attrs.items():
        proto = from_array(value) if isinstance(value, np.ndarray) else value
        attr_type = declared[name].type if name in declared else None
        node.attribute.append(make_attribute(name, proto, attr_type=attr_type))  # type: ignore[arg-type]
    return kind(node, {"opsets": {domain: version}, "new_ops": None, "log": _no_log, "verbose": 0})


def _no_log(*_: Any) -> None:
    """Discards the log messages of ONNX's classes."""
