"""Anonymizes a subgraph and its inputs: other values of the same statistics or range, and numbered names, texts
and symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.store.capsules.value_roles import Indices, ValueRoles, roles_of
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.microsoft import DOMAIN as MICROSOFT
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import ONNX_DOMAINS, spec_of
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.sparse import SparseTensor
from partita.graph.types import Type
from partita.passes import apply_pass
from partita.passes.infer.dim_symbols import all_symbols, map_types

FEW = 8
"""A parameter of fewer integers is a size, an axis or a bound, and is kept."""

ML = "ai.onnx.ml"

TEXTS = frozenset(
    """cats_strings classes_strings classlabels_strings default_string delimiter keys_strings pattern pool_strings stopwords
    string_vocabulary value_string value_strings values_strings""".split()
)
"""The attributes of ONNX's ops whose text is data; the text of others is an enumeration."""

TABLES = frozenset(
    """cats_int64s classes_int64s classlabels_int64s classlabels_ints int64_vocabulary keys_int64s nodes_featureids pool_int64s
    values_int64s""".split()
)
"""The attributes of ONNX's ops whose lists of integers are data; those of others are structure."""

WEIGHTS = frozenset("bias weights".split())
"""The lists of numbers of ONNX's main domain that are data; in ai.onnx.ml all are."""

SHOWN = 12
"""Maximum number of values listed of a constant."""

WIDE = frozenset("int16 int64 uint16 uint32 uint64".split())
"""Integer types that weights are never quantized to."""

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

LARGEST = 1e300
"""Maximum deviation of random numbers."""

MOST_PERMUTED = 1 << 22
"""Maximum size of a dimension for which write indices stay distinct."""


@attrs.frozen(slots=True)
class Anonymous:
    """A subgraph that reveals nothing of its model except what is listed."""

    graph: Graph
    """The subgraph."""
    inputs: tuple[Any, ...]
    """The values of its inputs."""
    stays: tuple[str, ...]
    """The parts of the model that it still contains, because the subgraph would change without them."""


def anonymous(graph: Graph, inputs: Sequence[Any] = (), seed: int = 0, keep: Sequence[str] = ()) -> Anonymous:
    """The graph with inlined calls, and its inputs, with other values and names; attribute texts in `keep` stay.

    Linear in the size of the graph and its arrays."""
    flat = apply_pass(graph, "InlineFunctions")
    masking = _Masking(seed, frozenset(keep))
    roles = roles_of(flat)
    values = tuple([masking.input(node, value, roles) for node, value in zip(flat.inputs, inputs)])
    masked = masking.graph(flat, roles)
    masked = map_types(masked, {symbol: f"s{number}" for number, symbol in enumerate(all_symbols(flat))})
    return Anonymous(masked, values, tuple([f"{what}: {', '.join(rows)}" for what, rows in masking.stays.items()]))


class _Masking:
    """The anonymization of one subgraph: the random values so far, and what is kept."""

    def __init__(self, seed: int, keep: frozenset[str]) -> None:
        self.random = np.random.default_rng(seed)
        self.keep = keep
        self.stays: dict[str, dict[str, None]] = {}
        self._names: dict[str, int] = {}
        self._words: dict[str, str] = {}
        self._drawn: set[str] = set()
        self._arrays: dict[tuple[int, Any], Any] = {}

    def graph(self, graph: Graph, roles: ValueRoles) -> Graph:
        """The graph with other constants, attributes and names."""

        def visit(node: Node, rewriter: Rewriter) -> None:
            name = self._named("input" if node.is_variable else "weight" if node.is_constant else "node")
            single = len(node.output_names) == 1
            names = tuple([value and (name if single else f"{name}_{i}") for i, value in enumerate(node.output_names)])
            changes: dict[str, Any] = {"name": name, "output_names": names, "metadata": {}, "affinity": None}
            if node.is_constant:
                changes["value"] = self._constant(node, roles)
            inner = map_bodies(rewriter.rebuilt(node), lambda body: self.graph(body, roles))
            if node.is_op:
                changes["attrs"] = {key: self._attribute(node, key, value) for key, value in inner.attrs.items()}
                if node.domain not in (*ONNX_DOMAINS, MICROSOFT):
                    self._list("ops that a device knows by name", f"{node.domain}::{node.op}")
            rewriter.keep(node, inner.evolve(**changes))

        masked = rewrite(graph, visit)
        used = {node.domain for inner in graphs_in(graph) for node in inner.nodes if node.is_op}
        opsets = {domain: version for domain, version in graph.opsets.items() if not domain or domain in used}
        outputs = [f"output{i}" for i in range(len(masked.outputs))]
        return masked.evolve(name="capsule", output_names=outputs, metadata={}, opsets=opsets)

    def input(self, node: Node, value: Any, roles: ValueRoles) -> Any:
        """The value of an input."""
        if isinstance(value, (list, tuple)):
            return type(value)([self.input(node, item, roles) for item in value])
        if isinstance(value, Mapping):
            items = zip(self.input(node, list(value), roles), self.input(node, list(value.values()), roles))
            return dict(items)
        if isinstance(value, str):
            return self._word(value)
        if value is None:
            return None
        array = np.asarray(value)
        if node[0] in roles.deciding:
            return self._stay("inputs that decide on sizes", array, value)
        if node[0] in roles.bounds:
            return indices_like(array, roles.bounds[node[0]], self.random)
        if array.size == 1 and _is_float(array):
            return np.asarray(np.asarray(array, np.float64) * self.random.uniform(0.75, 1.0)).astype(array.dtype)
        if node[0] in roles.parameters and array.size < FEW:
            return self._stay("inputs that are parameters of ops", array, value)
        if array.size == 1 and array.dtype.kind not in "OSUT":
            return self._stay("inputs of one number", array, value)
        return self._like(array)

    def _constant(self, node: Node, roles: ValueRoles) -> Any:
        """The new value of a constant; nodes that shared an array still do."""
        entry, value = node[0], node.value
        key = (id(value), roles.bounds.get(entry, entry in roles.deciding or entry in roles.parameters))
        if key not in self._arrays:
            self._arrays[key] = self._other_constant(entry, value, roles)
        return self._arrays[key]

    def _other_constant(self, entry: NodeEntry, value: Any, roles: ValueRoles) -> Any:
        if isinstance(value, SparseTensor):
            return attrs.evolve(value, values=self._like(value.values))
        if entry in roles.deciding:
            return self._stay("sizes and axes", value, value)
        if entry in roles.bounds:
            return indices_like(value, roles.bounds[entry], self.random)
        if value.size == 1 and value.dtype.kind not in "OSUT":
            return self._stay("numbers that stand alone", value, value)
        if entry in roles.parameters and value.size < FEW:
            return self._stay("parameters of ops", value, value)
        return self._like(value)

    def _attribute(self, node: Node, key: str, value: Any) -> Any:
        """The new value of an attribute, which is data, a text, or structure that is kept."""
        if isinstance(value, (Graph, Type)):
            return value
        if isinstance(value, list) and any(isinstance(item, (list, SparseTensor, np.ndarray)) for item in value):
            return [self._attribute(node, key, item) for item in value]
        if isinstance(value, (str, bytes)) or (isinstance(value, list) and value and isinstance(value[0], (str, bytes))):
            return self._text(node, key, value)
        if isinstance(value, SparseTensor):
            return attrs.evolve(value, values=self._like(value.values))
        if isinstance(value, np.ndarray):
            is_structure = node.domain in ONNX_DOMAINS and key.startswith("nodes_mode")
            if value.size == 1 and value.dtype.kind not in "OSUT" and node.domain != ML:
                self._list("numbers in attributes", f"{key} = {value.reshape(-1)[0]}")
                return value
            return value if is_structure else self._like(value)
        if isinstance(value, list) and len(value) and isinstance(value[0], (int, float)):
            is_float = any(isinstance(item, float) for item in value)
            known = node.domain in ONNX_DOMAINS
            is_data = (not known or node.domain == ML or key in WEIGHTS) if is_float else known and key in TABLES
            if is_data:
                return self._like(np.asarray(value, np.float64 if is_float else np.int64)).tolist()
            if is_float:
                self._list("numbers in attributes", f"{key} = {value!r:.60}")
        elif isinstance(value, float) and node.domain == ML:
            return value * self.random.uniform(0.75, 1.0)
        if node.domain not in ONNX_DOMAINS:
            self._list(f"attributes of {node.domain}::{node.op}", f"{key} = {value!r:.60}")
        elif isinstance(value, float) or (node.domain == ML and key.startswith(("default", "replaced"))):
            self._list("numbers in attributes", f"{key} = {value!r}")
        return value

    def _text(self, node: Node, key: str, value: Any) -> Any:
        """A text, or a list of texts, without the user's words."""
        if isinstance(value, list):
            return [self._text(node, key, item) for item in value]
        if key == "equation" and node.op == "Einsum":
            return _equation(value)
        if key == "locale" and node.op == "StringNormalizer":
            return "en_US"
        spec = spec_of(str(node.op), node.domain, 10**6) if node.domain in ONNX_DOMAINS else None
        if spec is not None and key in spec.attributes and key not in TEXTS:
            return value
        if key in self.keep:
            self._list("texts that were to be kept", f"{key} = {value!r:.60}")
            return value
        if node.domain == MICROSOFT and key not in TEXTS:
            self._list(f"attributes of {node.domain}::{node.op}", f"{key} = {value!r:.60}")
            return value
        return self._word(value)

    def _like(self, array: Any) -> Any:
        """Other values of the same kind."""
        if array.dtype.kind in "OSUT":
            return np.asarray(np.frompyfunc(self._word, 1, 1)(array), object) if array.size else array
        return random_like(array, self.random)

    def _word(self, text: Any) -> Any:
        """Random letters for a text, always the same for equal texts; other values are kept."""
        if isinstance(text, bytes):
            return self._word(text.decode("utf-8", "replace")).encode()
        if not isinstance(text, str) or not text:
            return text
        if text not in self._words:
            length = len(text)
            while (drawn := "".join(map(chr, self.random.integers(ord("a"), ord("z") + 1, length)))) in self._drawn:
                length += 1
            self._words[text] = drawn
            self._drawn.add(drawn)
        return self._words[text]

    def _named(self, kind: str) -> str:
        self._names[kind] = self._names.get(kind, -1) + 1
        return f"{kind}{self._names[kind]}"

    def _stay(self, what: str, array: Any, value: Any) -> Any:
        listed = ", ".join(map(str, np.asarray(array).reshape(-1)[:SHOWN].tolist()))
        more = f", {counted(array.size - SHOWN, 'more', 'more')}" if array.size > SHOWN else ""
        self._list(what, f"[{listed}{more}]" if np.ndim(array) else listed)
        return value

    def _list(self, what: str, row: str) -> None:
        self.stays.setdefault(what, {})[row] = None


def _equation(text: Any) -> Any:
    """The equation of an Einsum with the first letters of the alphabet."""
    if isinstance(text, bytes):
        return _equation(text.decode()).encode()
    letters = dict.fromkeys(letter for letter in text if letter.isalpha())
    return text.translate({ord(letter): LETTERS[number] for number, letter in enumerate(letters)})


def _is_float(array: Any) -> bool:
    return array.dtype.kind == "f" or "float" in array.dtype.name


def random_like(array: Any, random: np.random.Generator) -> Any:
    """Other elements: normal with the mean, deviation and bounds of weights; uniform within the bounds of other
    integers, which stay sorted or distinct; booleans and masks of 0 and 1 are shuffled along the last axis. If all elements
    are equal, they stay equal."""
    if not array.size or array.dtype.kind == "b":
        return _shuffled(array, random)
    if array.dtype.kind == "c":
        real, imaginary = random_like(array.real, random), random_like(array.imag, random)
        return (real + 1j * imaginary).astype(array.dtype)
    if array.dtype.name in WIDE:
        low, high = int(array.min()), int(array.max())
        if {low, high} == {0, 1}:
            return _shuffled(array, random)
        if low == high:
            return np.full_like(array, _other_integer(low, random))
        drawn = random.integers(low, high, array.shape, array.dtype, endpoint=True)
        if array.ndim == 1 and high - low < MOST_PERMUTED and len(np.unique(array)) == array.size:
            drawn = (low + random.choice(high - low + 1, array.size, replace=False)).astype(array.dtype)
        return np.sort(drawn, axis=-1) if array.ndim and _is_sorted(array) else drawn
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return array
    if not _is_float(array) and set(np.unique(finite)) == {0, 1}:
        return _shuffled(array, random)
    if finite.min() == finite.max():
        other = finite[0] * random.uniform(0.75, 1.0) if _is_float(array) else _other_integer(int(finite[0]), random)
        return np.where(np.isfinite(wide) & ~np.isin(wide, (-1, 0, 1)), other, wide).astype(array.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        drawn = random.normal(finite.mean(), min(finite.std(), LARGEST), array.shape)
        low, high = finite.min(), finite.max()
        drawn = np.where((low <= drawn) & (drawn <= high), drawn, low + (high / 2 - low / 2) * 2 * random.random(array.shape))
    drawn = drawn if _is_float(array) else np.rint(drawn)
    return np.where(np.isfinite(wide), drawn, wide).astype(array.dtype)


def _shuffled(array: Any, random: np.random.Generator) -> Any:
    """The elements shuffled along the last axis of size above 1."""
    axis = max((axis for axis, size in enumerate(array.shape) if size > 1), default=None)
    return array if axis is None else random.permuted(array, axis=axis)


def _other_integer(value: int, random: np.random.Generator) -> int:
    """A smaller integer of the same sign; -1, 0 and 1 are kept since they reveal nothing."""
    lost = int(random.integers(1, max(abs(value) // 4, 1), endpoint=True))
    return value if abs(value) < 2 else value - lost if value > 0 else value + lost


def indices_like(array: Any, indices: Indices, random: np.random.Generator) -> Any:
    """Other indices: of the same sign, valid if they were valid, and invalid if they were invalid."""
    sizes = indices.sizes
    columns = array.reshape(-1, len(sizes))
    drawn = np.empty_like(columns)
    for number, size in enumerate(sizes):
        old, new = columns[:, number], drawn[:, number]
        end = size if size is not None else max(int(abs(old).max(initial=-1)) + 1, 1)
        inside = (-end <= old) & (old < end)
        if indices.are_written and end <= MOST_PERMUTED:
            other = random.permutation(end)[old[inside] % max(end, 1)] if end else old[inside]
        else:
            other = random.integers(0, end, int(inside.sum())) if end else old[inside]
        new[inside] = np.where(old[inside] < 0, other - end, other)
        for far in (old >= end, old < -end):
            if far.any():
                new[far] = random.integers(int(old[far].min()), int(old[far].max()), int(far.sum()), old.dtype, endpoint=True)
    result = drawn.reshape(array.shape)
    return np.sort(result, axis=-1) if len(sizes) == 1 and array.ndim and _is_sorted(array) else result


def _is_sorted(array: Any) -> bool:
    return bool((array[..., 1:] >= array[..., :-1]).all())
