"""Decides which ops TVM compiles correctly: by rules, then by one trial for each kind of node, whose answer is cached. No kernel
is made for values that are known once the input sizes are, such as shape arithmetic."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import cache, lru_cache, partial

import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.interface.cached_attention import is_cached_attention
from partita.accelerators.interface.provenance import FUSED
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm import extensions
from partita.accelerators.tvm.bodies.body import array_digest, attributes_text, make_body
from partita.accelerators.tvm.bodies.indices import outside
from partita.accelerators.tvm.bodies.quantized import is_weight
from partita.accelerators.tvm.bodies.recurrent import is_recurrent, why_not_ours
from partita.accelerators.tvm.code.building import build
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.language import ELEMENTS, TooMuchCode
from partita.accelerators.tvm.kernels.shared.element_access import REALS
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST, formula, formula_of_types
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.kernels.window.pool import has_constant_blocks
from partita.accelerators.tvm.layouts.blocking import has_blocked_kernel
from partita.accelerators.tvm.layouts.quantized.conv_integer import REFUSAL, whole_convolution_of
from partita.accelerators.tvm.lower.dynamic_sizes import wrong_size
from partita.accelerators.tvm.lower.onnx_importer import import_body, legalize, type_difference
from partita.accelerators.tvm.machine.library import part
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.tvm_errors import quiet, refused
from partita.accelerators.tvm.prepare.expanding import alone, why_whole
from partita.accelerators.tvm.query.isolated_trials import trial_elsewhere
from partita.accelerators.tvm.query.known_wrong import known_wrong
from partita.accelerators.tvm.sizes.extent import sizes_of
from partita.accelerators.tvm.sizes.gathered import can_gather
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.passes.decompose.einsum import groups_of, order_of
from partita.passes.decompose.halves import is_widened
from partita.passes.decompose.products import is_far, is_of_patches, is_pair_of_unknown_points
from partita.passes.infer.shape_operands import INDEXED, deciding, is_settled_by

SHOWN = 64
"""Maximum number of elements of constants whose values are part of a trial's key, because they may matter."""

MOST_VALUES = 1024
"""Ops with more inputs and outputs are refused: TVM's time grows with the square of their number, to minutes for 5,000."""

trials: dict[str, bool | str] = {}
"""Cached answers of trials."""

MOST = 65_536
"""Maximum number of cached answers."""

_answers: dict[Hashable, bool | str] = {}
"""Cached answers for ops of one structure, including sizes: a large graph repeats a few structures."""

_guard = Guard()


def supported(node: Node, graph: Graph, machine: Machine) -> bool | str:
    """True, or the reason why not.

    An op that needs a trial is tried once for its attributes, element types and ranks."""
    structure = _structure(node, graph, machine)
    known = _answers.get(structure) if structure is not None else None
    if known is None:
        known = _answer(node, graph, machine)
        if structure is not None:
            if len(_answers) >= MOST:
                _answers.clear()
            _answers[structure] = known
    return known


def takes(graph: Graph, machine: Machine) -> Callable[[Node], bool]:
    """Predicate: some kernel takes an op of the graph, even if its types were changed since."""

    def answer(node: Node) -> bool:
        return formula(node, LATEST) is not None or supported(node, graph, machine) is True

    return answer


def _structure(node: Node, graph: Graph, machine: Machine) -> Hashable | None:
    """Key of all that the answer depends on except names; None if it is not cheap to compute, or if a reason would contain a
    name."""
    if node.domain or node.bodies:
        return None
    outputs = tuple([value_type if name else None for value_type, name in zip(node.output_types, node.output_names, strict=True)])
    inputs: list[Hashable] = []
    for entry in node.inputs:
        value = entry.node.value if entry is not None else None
        is_looked_at = node.op in INDEXED or node.op in _WEIGHTED or node.op in ops("integer_product")
        if value is not None and value.size > SHOWN and is_looked_at:
            return None
        shown = value is not None and (value.size > SHOWN or value.dtype == object or value.tobytes())
        inputs.append((entry is None, entry and entry.type, shown))
    named = [*[entry.type for entry in node.reads], *[entry.type for entry in node.outputs if entry.name]]
    if not all(isinstance(value_type, TensorType) and _is_plain(value_type) for value_type in named):
        return None
    return machine, graph.opset, node.op, FUSED in node.metadata, tuple(inputs), outputs, attributes_text(node.attrs)


@lru_cache(1024)
def _is_plain(value_type: TensorType) -> bool:
    return value_type.is_static and value_type.dtype in ELEMENTS


def _answer(node: Node, graph: Graph, machine: Machine) -> bool | str:
    if is_weight(node[0]):
        return True
    if is_cached_attention(node):
        return machine.kind == "cpu" or "there is no kernel for attention to a cache but on cpu"
    if node.op == "ConvInteger" and not node.domain:
        return whole_convolution_of(node) is not None or REFUSAL
    if node.op == "MatMulInteger" and machine.kind == "cpu" and (is_far(node) or is_pair_of_unknown_points(node)):
        return "kernels of whole products take signed bytes around zero, and this is decomposed first"
    if machine.kind == "cpu" and is_of_patches(node):
        return "this convolution is a product of patches"
    groups = groups_of(node)
    if groups is not None:
        operands = "matrices" if groups.is_matmul else "groups of dimensions"
        return f"this Einsum is a product of {operands}, and is decomposed first"
    if order_of(node) is not None:
        return "this Einsum is a Transpose, and is decomposed first"
    reason = _refusal(node, graph)
    if reason is not None:
        return reason
    if is_recurrent(node) and machine.kind == "cpu":
        return why_not_ours(node, graph.opset, REALS) or True
    if is_widened(node) and not _static(node) and machine.kind == "cpu" and can_gather(node, graph.opset):
        return True
    if is_widened(node):
        is_ours = _is_drafted(node, graph, machine) or (_static(node) and has_blocked_kernel(node, graph, machine))
        return is_ours or f"TVM's {node.op} rounds half-precision numbers at every step"
    if (node.op in VIEWS and not node.domain) or extensions.find(node) is not None:
        return True
    if not _static(node):
        return is_settled(node, graph) or (machine.kind == "cpu" and has_constant_blocks(node)) or _by_name(node, graph)
    key = f"{machine.kind} {_signature(node, graph)}"
    with _guard.lock:
        known = trials.get(key)
    if known is None:
        known, lasting = _tried(node, graph, machine)
        if lasting:
            with _guard.lock:
                trials[key] = known
    return known


def _refusal(node: Node, graph: Graph) -> str | None:
    """Reason to refuse the node without a trial; None if there is none."""
    if node.bodies:
        return f"TVM's kernels have no control flow: {node.op} holds a body"
    if is_random(node):
        return "random numbers differ from run to run, and TVM has no generator for ONNX's"
    if node.domain and extensions.find(node) is None:
        why = why_whole(node, graph)
        return f"TVM has no op {node.domain}.{node.op}" + (f": {why}" if why else "")
    values = (*node.reads, *(e for e in node.outputs if e.name))
    if len(values) > MOST_VALUES:
        return f"{node.op} has {len(values):,} inputs and outputs: kernels are made for {MOST_VALUES:,} at most"
    for entry in values:
        value_type = entry.type
        if value_type is None:
            unsaid = f": register_op says what {node.domain}.{node.op} makes" if node.domain and entry.node is node else ""
            return f"the type of {entry.name!r} is unknown{unsaid}"
        if not isinstance(value_type, TensorType):
            return f"{entry.name!r} is {value_type}: kernels take tensors only"
        if value_type.dtype not in ELEMENTS:
            return f"{entry.name!r} has element type {value_type.dtype}, which TVM's kernels do not take"
    reason = _takes_no_truth(node, graph) or outside(node) or _beyond_numbers(node)
    if reason is not None or not _static(node):
        return reason or _unknown_sizes(node, graph)
    return _unknown_view(node) or wrong_size(node)


def _unknown_view(node: Node) -> str | None:
    """Refusal of a view with declared sizes whose shape input is known only at run time and may contradict them."""
    value = node.inputs[1] if node.op in VIEWS and not node.domain and len(node.inputs) > 1 else None
    if value is None or value.node.value is not None:
        return None
    return f"the sizes of {node[0].name!r} depend on values: those of {value.name!r}"


def _unknown_sizes(node: Node, graph: Graph) -> str | None:
    if is_settled(node, graph):
        return None
    decides = unsettled_input(node, graph)
    is_said = any(entry.node.value is None for entry in deciding(node))  # Sizes determine them, since none of these is unsettled.
    if decides is not None or (_static_inputs(node) and not is_said) or (node.op in ops("counting") and not node.domain):
        name = next((e.name for e in node.outputs if e.name and not _is_static(e)), node.name)
        return f"the sizes of {name!r} depend on values" + (f": those of {decides.name!r}" if decides is not None else "")
    return known_wrong(node)


def _static(node: Node) -> bool:
    return _static_inputs(node) and all(_is_static(e) for e in node.outputs if e.name)


def _static_inputs(node: Node) -> bool:
    return all(map(_is_static, node.reads))


def _is_static(entry: NodeEntry) -> bool:
    return isinstance(entry.type, TensorType) and entry.type.is_static


def _by_name(node: Node, graph: Graph) -> bool | str:
    """Answer for an op with symbolic sizes, by its name and types: it cannot be tried, and is compiled for each size at run
    time."""
    if node.op == "Attention":
        return "this Attention is decomposed first"
    is_ours = formula_of_types(node, graph.opset) is not None
    return is_ours or node.op in _importable() or f"TVM's importer has no op {node.op}"


@cache
def _importable() -> frozenset[str]:
    return frozenset(part("relax.frontend.onnx.onnx_frontend")._get_convert_map())


def _is_drafted(node: Node, graph: Graph, machine: Machine) -> bool:
    """True if a kernel of ours takes the node at its static size, or at any size if it is dynamic."""
    if any(sizes_of(entry.type) is None for entry in (*node.reads, *(e for e in node.outputs if e.name))):
        return False
    try:
        with quiet(), refused("kernel"):
            return draft_kernel(make_body(alone(node, graph)), machine) is not None
    except PartitaError:
        return False


def _signature(node: Node, graph: Graph) -> str:
    """Text of the node without names and sizes."""
    inputs = ", ".join("-" if entry is None else _shown(entry) for entry in node.inputs)
    ranks = [entry.type.rank if isinstance(entry.type, TensorType) and entry.name else "-" for entry in node.outputs]
    outputs = ", ".join(map(str, ranks))
    part = "part " if FUSED in node.metadata else ""
    return f"{graph.opset} {part}{node.op}({inputs}) -> {outputs}{attributes_text(node.attrs)}"


def _shown(entry: NodeEntry) -> str:
    value_type, value = entry.type, entry.node.value
    assert isinstance(value_type, TensorType) and value_type.shape is not None
    pattern = "".join(str(d) if isinstance(d, int) and d < 2 else "n" for d in value_type.shape)
    if value is None:
        return f"{value_type.dtype}[{pattern}]"
    return array_digest(value) if value.size <= SHOWN else f"constant {value_type.dtype}[{pattern}]"


def _tried(node: Node, graph: Graph, machine: Machine) -> tuple[bool | str, bool]:
    """True if a kernel of ours takes the node, or TVM imports and lowers it, otherwise the reason; and whether to cache that.

    TVM's OpenCL C cannot express everything that a kernel may contain, so kernels for OpenCL are built too."""
    try:
        body = make_body(alone(node, graph))
        with quiet(), refused("kernel"):
            drafted = draft_kernel(body, machine)
        if drafted is not None:
            if machine.kind == "opencl":
                build(body, machine)
            return True, True
        wrong = known_wrong(node)
        if wrong is not None:
            return wrong, True
        return trial_elsewhere(body.graph) or (import_trial(body.graph, machine), True)
    except TooMuchCode as error:
        return error.cause, False  # Other sizes may work.
    except CompileError as error:
        return error.cause, True
    except PartitaError as error:
        return f"it cannot be written for TVM: {error.cause}", True


def import_trial(graph: Graph, machine: Machine) -> bool | str:
    """True if TVM imports and lowers the one op of the graph with the declared types, otherwise the reason. For a GPU it is also
    scheduled and its launches are planned, because not every kernel can be launched from a plain list."""
    try:
        module = legalize(import_body(graph), machine.target)
        difference = type_difference(module["main"].ret_ty, graph)
        if difference is None and machine.is_gpu:
            build(make_body(graph), machine)
    except CompileError as error:
        return error.cause
    except PartitaError as error:
        return f"it cannot be written for TVM: {error.cause}"
    return True if difference is None else difference


def forget() -> None:
    """Clear the caches of answers."""
    with _guard.lock:
        trials.clear()
        _answers.clear()


_WEIGHTED = frozenset(("ConvTranspose",))
"""Ops whose constant weights are checked for NaN and infinities."""


def _beyond_numbers(node: Node) -> str | None:
    """Reason to refuse the node: a constant weight is NaN or infinite."""
    if node.op not in _WEIGHTED or node.domain:
        return None
    weights = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if weights is None or np.isfinite(weights.astype(np.float32)).all():
        return None
    return "TVM also multiplies the weights with zeros that it puts between the data, and one of them is NaN or infinite"


def _takes_no_truth(node: Node, graph: Graph) -> str | None:
    """Why the op may not read its bool inputs: devices would add and multiply them, each in its own way. None if it may, or has
    none."""
    if node.domain:
        return None
    for slot, entry in enumerate(node.inputs):
        data_type = entry.type if entry is not None else None
        if isinstance(data_type, TensorType) and data_type.dtype == "bool":
            version = graph.opset
            allowed = _takes_truth(str(node.op), version)
            if allowed and not allowed[min(slot, len(allowed) - 1)]:
                return f"ONNX's {node.op} of opset {version} takes no bool, and input {slot} is {data_type}"
    return None


@cache
def _takes_truth(op: str, version: int) -> tuple[bool, ...]:
    """For each input, True if the op's definition allows bool; empty if there is no definition."""
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(op, version)
    except onnx.defs.SchemaError:
        return ()
    return tuple("tensor(bool)" in formal.types for formal in schema.inputs)


def is_settled(node: Node, graph: Graph) -> bool:
    """True if all outputs of the node are known once the sizes of the graph's inputs are.

    Then no kernel is made for the node."""
    return bool(node.output_names) and node[0] in _settled(graph)


def unsettled_input(node: Node, graph: Graph) -> NodeEntry | None:
    """An input that determines sizes and whose value is known only at run time."""
    settled = _settled(graph)
    return next((entry for entry in deciding(node) if entry not in settled), None)


SMALL = 200
"""Graphs with fewer nodes may be decomposed ops, many of which are queried between two queries of the model."""

Settled = tuple["weakref.ref[Graph]", frozenset[NodeEntry]]
"""A graph and its values that are known once its sizes are."""

_last: dict[bool, Settled] = {}
"""The last small and the last large graph, with their known values, while they live: the values hold weights."""


def _settled(graph: Graph) -> frozenset[NodeEntry]:
    """Known values, cached for the last small and the last large graph."""
    small = len(graph.nodes) < SMALL
    known = _last.get(small)
    if known is not None and known[0]() is graph:
        return known[1]
    settled = frozenset(_find_settled(graph))
    _last[small] = weakref.ref(graph, partial(_forget, _last, small)), settled
    return settled


def _forget(last: dict[bool, Settled], small: bool, gone: weakref.ref[Graph]) -> None:
    """Drop the cached values of a graph that was freed. As a finalizer it may run at any time in any thread, so it takes no lock;
    at the end of the process the module's globals are gone, so it reads none."""
    known = last.get(small)
    if known is not None and known[0] is gone:
        last.pop(small, None)


def _find_settled(graph: Graph) -> set[NodeEntry]:
    """All values of a graph that are known once its sizes are. Linear."""
    settled: set[NodeEntry] = set()
    for node in graph.nodes:
        if is_settled_by(node, settled):
            settled.update(node.outputs)
    return settled
