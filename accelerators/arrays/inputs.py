"""The arguments of a call: each is found by position or name, checked, and converted to a numpy array (without a copy
if possible)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.on_device import ON_DEVICE, Destination, DeviceArray, Target, Wanted, on_device
from partita.accelerators.errors import InputError, RunError
from partita.graph.errors import TypeMismatch, check_count, did_you_mean
from partita.graph.graph import Graph
from partita.graph.types import Array, Dim, SequenceType, TensorType, Type, dtype_name, numpy_dtype
from partita.passes.infer.contract import Contract, shapes_of

_KIND = {"u": 1, "i": 1, "f": 2, "c": 3}
"""The ranks of Python's own number types: one may be converted to the same rank or a higher one."""


@attrs.frozen(slots=True, eq=False)
class InputSpec:
    """One input of a model."""

    name: str
    """The input's name."""
    type: Type | None
    """The input's type, if known."""
    dtype: np.dtype[Any] | None
    """The arrays' dtype; None if it takes no tensors, or any dtype."""
    shape: tuple[Dim, ...] | None
    """The input's sizes; None if any shape fits."""
    static: bool
    """True if all sizes are static."""

    def __str__(self) -> str:
        return f"{self.name}: {'?' if self.type is None else self.type}"


Stays = Callable[[int, DeviceArray], bool]
"""True if the input of this number may stay in the memory of its device."""


def _never(number: int, array: DeviceArray) -> bool:
    """All inputs have to be on the host."""
    return False


class InputChecker:
    """Converts a call's arguments to the list of arrays that the executor takes."""

    def __init__(self, graph: Graph, stays: Stays = _never) -> None:
        self._stays = stays
        self.specs = tuple([_spec(node.name, node[0].type) for node in graph.inputs])
        """The inputs in order."""
        self._names = [spec.name for spec in self.specs]
        self._known = frozenset(self._names)
        self._where = f"model {graph.name!r}"
        self._dtypes = [spec.dtype for spec in self.specs]
        self._fitting: list[tuple[Dim, ...] | None] = [spec.shape for spec in self.specs]
        """The sizes that pass the fast check: the static ones or, with symbols, those of the last call that was fully checked."""
        self._contract = None if all(spec.static for spec in self.specs) else Contract(graph)

    def made_up(self, seed: int, size: int = 1) -> list[Any]:
        """Arrays that fit: random values, ones for integers; `size` replaces dynamic sizes."""
        check_count(f"{self._where}, option seed", seed, InputError)
        random = np.random.default_rng(seed)
        return [_example(spec, random, size, self._where) for spec in self.specs]

    def arrays(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays, in the inputs' order."""
        arrays = self._in_order(args, named)
        for value, dtype, shape in zip(arrays, self._dtypes, self._fitting):
            if type(value) is not np.ndarray or value.shape != shape or dtype is None or value.dtype != dtype:
                return self._checked(arrays)
        return arrays

    def some(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Checks only these inputs, by name: each array has to fit its type, and equal symbols have to have equal sizes."""
        sizes: dict[str, tuple[int, str]] = {}
        arrays = {}
        for spec in self.specs:
            if spec.name in named:
                arrays[spec.name] = self._value(named[spec.name], spec)
                if isinstance(spec.type, TensorType):
                    self._check_dims(arrays[spec.name], spec, sizes)
        return arrays

    def _checked(self, values: list[Any]) -> list[Any]:
        """Fully checks all values: types, symbols across inputs, and the sizes that the graph requires."""
        sizes: dict[str, tuple[int, str]] = {}
        for i, spec in enumerate(self.specs):
            values[i] = self._value(values[i], spec, i)
            if isinstance(spec.type, TensorType):
                self._check_dims(values[i], spec, sizes)
        shapes = shapes_of(values)
        if self._contract is not None:
            self._check_contract(self._contract, shapes)
        self._fitting = list(shapes)
        return values

    def _check_contract(self, contract: Contract, shapes: tuple[tuple[int, ...] | None, ...]) -> None:
        """Raises InputError if sizes contradict each other, or a constant, inside the model."""
        try:
            contract.check(shapes)
        except TypeMismatch as error:
            where = f"{self._where}, {error.where}" if error.where else self._where
            raise InputError(error.cause, where=where, remedy=error.remedy) from error

    def _in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The values, given by position or name, in the order of the inputs."""
        first = args[0] if args else None
        if type(first) is dict and len(args) == 1 and not named and first.keys() == self._known:
            return [first[name] for name in self._names]
        if named or len(args) != len(self._names) or (type(first) is not np.ndarray and isinstance(first, Mapping)):
            return self._by_name(args, named)
        return list(args)

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        if args and isinstance(args[0], Mapping):
            if len(args) > 1:
                raise InputError("a dictionary of inputs is the only argument", where=self._where)
            named = {**args[0], **named}
            args = ()
        if len(args) > len(self.specs):
            raise InputError(f"{len(args)} inputs were given for {len(self.specs)}", where=self._where, remedy=self._listed())
        by_name = dict(zip(self._names, args))
        for name, value in named.items():
            if name not in self._names:
                remedy = did_you_mean(str(name), self._names) or self._listed()
                raise InputError(f"there is no input {name!r}", where=self._where, remedy=remedy)
            if name in by_name:
                raise InputError(f"input {name!r} is given by position and by name", where=self._where)
            by_name[name] = value
        missing = [name for name in self._names if name not in by_name]
        if missing:
            raise InputError(f"input {missing[0]!r} is missing", where=self._where, remedy=self._listed())
        return [by_name[name] for name in self._names]

    def _listed(self) -> str:
        return f"Its inputs are {', '.join(map(str, self.specs))}" if self.specs else "It takes no inputs"

    def _place(self, spec: InputSpec) -> str:
        return f"{self._where}, input {spec.name!r}"

    def _value(self, value: Any, spec: InputSpec, number: int | None = None) -> Any:
        """The checked value. A device array is copied to the host, unless it is the input of this number and may stay."""
        if type(value) is np.ndarray and spec.dtype is not None and value.dtype == spec.dtype:
            return value
        if isinstance(spec.type, SequenceType) and isinstance(value, (list, tuple)):
            inner = _spec(spec.name, spec.type.element)
            return [self._value(item, inner) for item in value]
        if spec.type is not None and not isinstance(spec.type, TensorType):
            return value
        array = self._array(value, spec)
        if isinstance(array, DeviceArray):
            if number is not None and array.dtype == spec.dtype and self._stays(number, array):
                return array
            array = array.numpy()
        if spec.dtype is None or array.dtype == spec.dtype:
            return array
        if spec.dtype == object and array.dtype.kind in "US":
            return array.astype(object)
        if not isinstance(value, (int, float, complex, list, tuple)) or not _is_harmless(array.dtype, spec.dtype):
            wanted = "string" if spec.dtype == object else spec.dtype.name
            cause = f"it is {wanted}, and the array given {_dtype_text(array.dtype)}"
            raise InputError(cause, where=self._place(spec), remedy=f'Convert it: array.astype("{wanted}")')
        return self._converted(array, spec.dtype, spec)

    def _converted(self, array: Array, wanted: np.dtype[Any], spec: InputSpec) -> Array:
        """Converts Python's own numbers to the input's dtype; values outside its range are an error."""
        with np.errstate(over="ignore"):
            converted = array.astype(wanted)
        if _is_integer(wanted):
            wrong = (converted.astype(array.dtype) != array) | ((array < 0) & ("uint" in wanted.name))
        else:
            wrong = np.isfinite(array) & ~np.isfinite(converted)
        if wrong.any():
            cause = f"it is {wanted.name}, which cannot hold {array[wrong].flat[0]}"
            raise InputError(cause, where=self._place(spec), remedy="Give numbers in its range")
        return converted

    def _array(self, value: Any, spec: InputSpec) -> Array | DeviceArray:
        if isinstance(value, np.ndarray):
            if np.ma.is_masked(value):
                raise InputError("some of its elements are masked", where=self._place(spec), remedy="Fill them: array.filled(0)")
            return value.view(np.ndarray) if type(value) is not np.ndarray else value
        if isinstance(value, np.generic):
            return np.asarray(value)
        if value is None:
            raise InputError("it is None", where=self._place(spec), remedy="Give an array")
        try:
            there = on_device(value)
            if there is not None:
                return there
            if hasattr(value, "__dlpack__"):
                return np.from_dlpack(value)
            return np.asarray(value)
        except Exception as error:
            first = str(error).strip().split("\n")[0] or type(error).__name__
            raise InputError(
                f"a {type(value).__module__}.{type(value).__name__} cannot be read as an array: {first}",
                where=self._place(spec),
                remedy="Give an array in the host's memory that needs no gradient (of a torch tensor: x.detach().cpu())",
            ) from error

    def _check_dims(self, array: Any, spec: InputSpec, sizes: dict[str, tuple[int, str]]) -> None:
        if spec.shape is None:
            return
        where = self._place(spec)
        if array.ndim != len(spec.shape):
            cause = f"it has {len(spec.shape)} dimensions ({spec.type}), and the array given {array.ndim}: {array.shape}"
            raise InputError(cause, where=where)
        for axis, (dim, size) in enumerate(zip(spec.shape, array.shape)):
            if isinstance(dim, int) and dim != size:
                cause = f"dimension {axis} is {dim} ({spec.type}), and that of the array given {size}: {array.shape}"
                raise InputError(cause, where=where)
            if isinstance(dim, str):
                before, other = sizes.setdefault(dim, (size, spec.name))
                if before != size:
                    raise InputError(f"dimension {axis}, {dim!r}, is {size} here and {before} in input {other!r}", where=where)


def _spec(name: str, kind: Type | None) -> InputSpec:
    if not isinstance(kind, TensorType):
        return InputSpec(name, kind, None, None, False)
    return InputSpec(name, kind, numpy_dtype(kind.dtype), kind.shape, kind.is_static)


def _is_harmless(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """True if Python's own numbers of this kind may be converted to the input's dtype."""
    if given.kind == "b" or wanted.kind in "bO":
        return given.kind == wanted.kind
    rank = _KIND["i"] if _is_integer(wanted) else _KIND.get(wanted.kind, _KIND["f"])
    return given.kind in _KIND and _KIND[given.kind] <= rank


def _is_integer(dtype: np.dtype[Any]) -> bool:
    """True for an integer dtype. Types that are not numpy's own (int4) are recognized by their name."""
    return "int" in dtype.name


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"


def _example(spec: InputSpec, random: np.random.Generator, size: int, where: str) -> Any:
    kind = spec.type
    if not isinstance(kind, TensorType):
        raise RunError(
            f"no value can be made up for a {'value of unknown type' if kind is None else kind}",
            where=f"{where}, input {spec.name!r}",
            remedy="Give inputs: model.profile(x)",
        )
    shape = [dim if isinstance(dim, int) else size for dim in kind.shape or ()]
    if kind.dtype == "string":
        return np.full(shape, "", object)
    dtype = numpy_dtype(kind.dtype)
    is_integer = dtype.kind in "iub" or "int" in dtype.name
    try:
        return np.ones(shape, dtype) if is_integer else random.standard_normal(shape, np.float32).astype(dtype)
    except (MemoryError, ValueError) as error:
        cause = f"there is no memory for numbers of shape {shape}"
        raise RunError(cause, where=f"{where}, input {spec.name!r}", remedy="State smaller sizes, or give inputs") from error


def out_arrays(out: Any, names: Sequence[str], types: Sequence[Type | None], where: str) -> list[Wanted | None]:
    """The array to fill for each output, from the caller's `out`: one array, several in order, or some by name. The word "device"
    in place of an array requests a new one where the output is computed; on its own it does so for all outputs."""
    listed: list[Any]
    if isinstance(out, str):
        listed = [out] * len(names)
    elif isinstance(out, Mapping):
        unknown = [name for name in out if name not in names]
        if unknown:
            remedy = did_you_mean(str(unknown[0]), names) or f"The outputs are {', '.join(names)}"
            raise InputError(f"there is no output {unknown[0]!r}", where=f"{where}, out", remedy=remedy)
        listed = [out.get(name) for name in names]
    elif isinstance(out, (list, tuple)):
        listed = list(out)
    elif isinstance(out, np.ndarray) or _target(out) is not None:
        listed = [out]
    else:
        cause = f"{type(out).__name__} is not an array to write to"
        raise InputError(cause, where=f"{where}, out", remedy="Give an array, a list of them, or a dictionary by name")
    if len(listed) != len(names):
        cause = f"{len(listed)} arrays are given for {len(names)} outputs"
        raise InputError(cause, where=f"{where}, out", remedy="Give None for others")
    for i, (array, name, kind) in enumerate(zip(listed, names, types)):
        if array is None:
            continue
        title = f"{where}, out for {name!r}"
        if isinstance(array, str):
            listed[i] = _destination(array, title)
            continue
        target = _target(array)
        if target is None:
            cause = "it is not a numpy array that may be written to, nor a contiguous one on a device"
            raise InputError(cause, where=title)
        if isinstance(kind, TensorType):
            _check_target(target, kind, title)
        listed[i] = target
        if any(_share(target, other) for other in listed[:i]):
            raise InputError("it shares memory with the array for another output", where=title)
    return listed


def _target(value: Any) -> Target | None:
    """The value as a writable array; None if it is none."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else None
    try:
        there = on_device(value)
    except (ValueError, BufferError, RuntimeError):  # from another library: not contiguous, or it requires a gradient
        return None
    return there if isinstance(there, DeviceArray) else None


def _destination(word: str, title: str) -> Destination:
    if word != ON_DEVICE.value:
        remedy = f'Say "{ON_DEVICE.value}", or give an array of pt.to_device'
        raise InputError(f"{word!r} is nowhere for an output to be", where=title, remedy=remedy)
    return ON_DEVICE


def _share(one: Target, other: Wanted | None) -> bool:
    """True if two arrays may share memory."""
    if isinstance(one, DeviceArray):
        return one.shares(other)
    return isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def _check_target(array: Target, kind: TensorType, title: str) -> None:
    fits = kind.shape is None or (
        len(kind.shape) == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(kind.shape, array.shape))
    )
    if not fits or array.dtype != numpy_dtype(kind.dtype):
        raise InputError(f"the output is {kind}, and the array {dtype_name(array.dtype)}{list(array.shape)}", where=title)
