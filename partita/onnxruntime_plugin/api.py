"""The parts of onnxruntime's C API that a provider needs, as ctypes functions.

`OrtApi`, `OrtEpApi` and `OrtModelEditorApi` are tables of function pointers that only grow at their ends, so an index holds for
all later versions. The indices are those of the public headers `onnxruntime_c_api.h` and `onnxruntime_ep_c_api.h` of API 24
(onnxruntime 1.24). A function that returns a status raises `OrtError` here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from types import MappingProxyType
from typing import Any

import attrs

from partita.graph.errors import PartitaError

VERSION = 24
"""The version of the API that is asked for, and that the structures given to onnxruntime declare."""

FAILED = 1
"""The code of a status. After that of a provider's failure onnxruntime's Python package would run the model elsewhere."""

CPU = 0
"""The hardware device type of processors."""

TENSOR, SEQUENCE, SPARSE, OPTIONAL = 1, 2, 5, 6
"""Kinds of a value's type."""

ATTRIBUTE_KINDS = ("", "INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS", "GRAPH", "TENSOR")
"""The kinds of attributes by onnxruntime's number."""

ATTRIBUTE_INT, ATTRIBUTE_STRING = 1, 5
"""The numbers of the kinds that are written."""

NOT_APPLICABLE, OPTIMAL, PREFERS_RECOMPILATION, UNSUPPORTED = 0, 1, 2, 3
"""Answers to the question whether a compiled model fits here."""

_P, _PP, _SIZE = c_void_p, POINTER(c_void_p), POINTER(c_size_t)
_TEXT, _TEXTS, _INTS = POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int64)

_STATUS = "status"
"""Marks a function that returns a status."""

ORT: Mapping[str, tuple[Any, ...]] = {
    "CreateStatus": (0, _P, c_int, c_char_p),
    "GetErrorMessage": (2, c_char_p, _P),
    "GetTensorMutableData": (51, _STATUS, _P, _PP),
    "CastTypeInfoToTensorInfo": (55, _STATUS, _P, _PP),
    "GetOnnxTypeFromTypeInfo": (56, _STATUS, _P, POINTER(c_int)),
    "GetTensorElementType": (60, _STATUS, _P, POINTER(c_int)),
    "GetDimensionsCount": (61, _STATUS, _P, _SIZE),
    "GetDimensions": (62, _STATUS, _P, _INTS, c_size_t),
    "GetSymbolicDimensions": (63, _STATUS, _P, _TEXTS, c_size_t),
    "GetTensorTypeAndShape": (65, _STATUS, _P, _PP),
    "ReleaseStatus": (93, None, _P),
    "ReleaseValue": (96, None, _P),
    "ReleaseTensorTypeAndShapeInfo": (99, None, _P),
    "CreateOpAttr": (211, _STATUS, c_char_p, _P, c_int, c_int, _PP),
    "ReleaseOpAttr": (212, None, _P),
    "ReadOpAttr": (272, _STATUS, _P, c_int, _P, c_size_t, _SIZE),
    "GetValueInfoName": (289, _STATUS, _P, _TEXT),
    "GetValueInfoTypeInfo": (290, _STATUS, _P, _PP),
    "GetModelEditorApi": (291, _P),
    "CreateKeyValuePairs": (295, None, _PP),
    "AddKeyValuePair": (296, None, _P, c_char_p, c_char_p),
    "GetKeyValuePairs": (298, None, _P, POINTER(_TEXTS), POINTER(_TEXTS), _SIZE),
    "ReleaseKeyValuePairs": (300, None, _P),
    "HardwareDevice_Type": (307, c_int, _P),
    "GetEpApi": (317, _P),
    "GetTensorSizeInBytes": (318, _STATUS, _P, _SIZE),
    "ValueInfo_GetInitializerValue": (326, _STATUS, _P, _PP),
    "ValueInfo_IsConstantInitializer": (331, _STATUS, _P, POINTER(ctypes.c_bool)),
    "Graph_GetName": (333, _STATUS, _P, _TEXT),
    "Graph_GetOnnxIRVersion": (335, _STATUS, _P, _INTS),
    "Graph_GetNumOperatorSets": (336, _STATUS, _P, _SIZE),
    "Graph_GetOperatorSets": (337, _STATUS, _P, _TEXTS, _INTS, c_size_t),
    "Graph_GetNumInputs": (338, _STATUS, _P, _SIZE),
    "Graph_GetInputs": (339, _STATUS, _P, _PP, c_size_t),
    "Graph_GetNumOutputs": (340, _STATUS, _P, _SIZE),
    "Graph_GetOutputs": (341, _STATUS, _P, _PP, c_size_t),
    "Graph_GetNumInitializers": (342, _STATUS, _P, _SIZE),
    "Graph_GetInitializers": (343, _STATUS, _P, _PP, c_size_t),
    "Graph_GetNumNodes": (344, _STATUS, _P, _SIZE),
    "Graph_GetNodes": (345, _STATUS, _P, _PP, c_size_t),
    "Graph_GetParentNode": (346, _STATUS, _P, _PP),
    "Node_GetName": (349, _STATUS, _P, _TEXT),
    "Node_GetOperatorType": (350, _STATUS, _P, _TEXT),
    "Node_GetDomain": (351, _STATUS, _P, _TEXT),
    "Node_GetNumInputs": (353, _STATUS, _P, _SIZE),
    "Node_GetInputs": (354, _STATUS, _P, _PP, c_size_t),
    "Node_GetNumOutputs": (355, _STATUS, _P, _SIZE),
    "Node_GetOutputs": (356, _STATUS, _P, _PP, c_size_t),
    "Node_GetNumImplicitInputs": (357, _STATUS, _P, _SIZE),
    "Node_GetImplicitInputs": (358, _STATUS, _P, _PP, c_size_t),
    "Node_GetNumAttributes": (359, _STATUS, _P, _SIZE),
    "Node_GetAttributes": (360, _STATUS, _P, _PP, c_size_t),
    "OpAttr_GetTensorAttributeAsOrtValue": (362, _STATUS, _P, _PP),
    "OpAttr_GetType": (363, _STATUS, _P, POINTER(c_int)),
    "OpAttr_GetName": (364, _STATUS, _P, _TEXT),
    "Node_GetNumSubgraphs": (365, _STATUS, _P, _SIZE),
    "Node_GetSubgraphs": (366, _STATUS, _P, _PP, c_size_t, _TEXTS),
    "Node_GetEpName": (368, _STATUS, _P, _TEXT),
    "GetTensorData": (378, _STATUS, _P, _PP),
    "GetSessionOptionsConfigEntries": (379, _STATUS, _P, _PP),
    "TensorTypeAndShape_HasShape": (390, ctypes.c_bool, _P),
}
"""The functions of OrtApi: index, result, arguments."""

EP: Mapping[str, tuple[Any, ...]] = {
    "CreateEpDevice": (0, _STATUS, _P, _P, _P, _P, _PP),
    "EpGraphSupportInfo_AddNodesToFuse": (2, _STATUS, _P, _PP, c_size_t, _P),
}
"""The functions of OrtEpApi."""

EDITOR: Mapping[str, tuple[Any, ...]] = {
    "CreateNode": (
        6, _STATUS, c_char_p, c_char_p, c_char_p, _TEXTS, c_size_t, _TEXTS, c_size_t, _PP, c_size_t, _PP,
    ),
}
"""The functions of OrtModelEditorApi."""

FACTORY = {
    "name": 1, "vendor": 2, "devices": 3, "create_provider": 4, "release_provider": 5, "vendor_id": 6, "version": 7,
    "validate": 8, "no_transfer": 11, "nothing": 12,
}
"""The place of each of the library's functions in OrtEpFactory; "nothing" answers IsStreamAware."""

PROVIDER = {"name": 1, "capability": 2, "compile": 3, "release_computes": 4, "compatibility": 12}
"""The place of each function in OrtEp."""

COMPUTE = {"create_state": 1, "compute": 2, "nothing": 3}
"""The place of each function in OrtNodeComputeInfo."""

_WORDS = 40
"""Words of a structure: onnxruntime's own fields are fewer than 32 at this version of the API, and texts follow."""


class OrtError(PartitaError):
    """A function of onnxruntime failed."""


class FusionOptions(ctypes.Structure):
    """OrtNodeFusionOptions."""

    _fields_ = (("version", c_uint32), ("drops_constants", ctypes.c_bool))


@attrs.frozen(slots=True)
class Fast:
    """The functions that each run of a subgraph calls. They take addresses as integers, and return a status unchecked."""

    input: Callable[..., int | None]
    """KernelContext_GetInput."""
    output: Callable[..., int | None]
    """KernelContext_GetOutput."""
    data: Callable[..., int | None]
    """GetTensorMutableData."""
    shape: Callable[..., int | None]
    """GetTensorTypeAndShape."""
    rank: Callable[..., int | None]
    """GetDimensionsCount."""
    sizes: Callable[..., int | None]
    """GetDimensions."""
    release_shape: Callable[..., None]
    """ReleaseTensorTypeAndShapeInfo."""


class Api:
    """The functions of the onnxruntime that called CreateEpFactories, by name: `api.Graph_GetNodes(...)`.

    They keep the interpreter's lock: most return at once, and none calls Python."""

    def __init__(self, base: int) -> None:
        get_api = ctypes.PYFUNCTYPE(c_void_p, c_uint32)(_pointer(base, 0))
        ort = get_api(VERSION)
        if not ort:
            version = ctypes.PYFUNCTYPE(c_char_p)(_pointer(base, 1))()
            raise too_old((version or b"?").decode())
        self.create_status = _pointer(ort, ORT["CreateStatus"][0])
        """The address of CreateStatus."""
        self._functions: dict[str, Callable[..., Any]] = {}
        self._add(ort, ORT)
        self.fast = Fast(*[
            ctypes.PYFUNCTYPE(result, *arguments)(_pointer(ort, index))
            for index, result, *arguments in (
                (90, _P, _P, c_size_t, _P), (91, _P, _P, c_size_t, _P, c_size_t, _P), (51, _P, _P, _P), (65, _P, _P, _P),
                (61, _P, _P, _P), (62, _P, _P, _P, c_size_t), (99, None, _P),
            )
        ])
        """The functions for runs."""
        self._add(self.GetEpApi(), EP)
        self._add(self.GetModelEditorApi(), EDITOR)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            return self.__dict__["_functions"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def _add(self, table: int, rows: Mapping[str, tuple[Any, ...]]) -> None:
        for name, (index, result, *arguments) in rows.items():
            has_status = result is _STATUS
            function = ctypes.PYFUNCTYPE(c_void_p if has_status else result, *arguments)(_pointer(table, index))
            if has_status:
                function.errcheck = self._checked  # type: ignore[assignment]
            self._functions[name] = function

    def _checked(self, status: int | None, function: Any, arguments: Any) -> None:
        self.check(status)

    def check(self, status: int | None) -> None:
        """Raises OrtError for a status that tells of one."""
        if status:
            message = self.GetErrorMessage(status).decode(errors="replace")
            self.ReleaseStatus(status)
            raise OrtError(f"onnxruntime: {message}")

    def status(self, message: str) -> int:
        """The address of a new status, which onnxruntime releases."""
        return self.CreateStatus(FAILED, message.replace("\0", "").encode(errors="replace"))  # type: ignore[no-any-return]

    def text(self, name: str, subject: int) -> str:
        """The text that a function returns about its argument; empty if it returns none."""
        found = c_char_p()
        self._functions[name](subject, ctypes.byref(found))
        return (found.value or b"").decode(errors="surrogateescape")

    def pointer(self, name: str, subject: int) -> int | None:
        """The pointer that a function returns about its argument."""
        found = c_void_p()
        self._functions[name](subject, ctypes.byref(found))
        return found.value

    def number(self, name: str, subject: int, kind: Any = c_size_t) -> int:
        """The number that a function returns about its argument."""
        found = kind()
        self._functions[name](subject, ctypes.byref(found))
        return int(found.value)

    def pointers(self, what: str, subject: int) -> list[int | None]:
        """All pointers of a kind, as in `pointers("Node_GetInputs", node)`; None for an input or output that is left out."""
        count = self.number(what.replace("_Get", "_GetNum"), subject)
        found = (c_void_p * count)()
        self._functions[what](subject, found, count)
        return list(found)

    def pairs(self, pairs: int) -> dict[str, str]:
        """The entries of OrtKeyValuePairs."""
        keys, values, count = _TEXTS(), _TEXTS(), c_size_t()
        self.GetKeyValuePairs(pairs, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
        return {(keys[i] or b"").decode(): (values[i] or b"").decode() for i in range(count.value)}


def too_old(version: str) -> PartitaError:
    """The error for an onnxruntime without plugin providers."""
    return PartitaError(
        f"onnxruntime {version} takes no provider of Partita's",
        where="onnxruntime",
        remedy='Install 1.24 or newer: pip install -U "onnxruntime>=1.24"',
    )


def structure(fields: Mapping[str, int], functions: Mapping[str, int], texts: Mapping[int, int] = MappingProxyType({})) -> Any:
    """Memory for a C structure that begins with the version of the API: addresses of functions in its fields, and behind them
    addresses of texts at the given offsets."""
    words = (c_void_p * _WORDS)()
    c_uint32.from_buffer(words).value = VERSION
    for name, place in fields.items():
        words[place] = functions[name]
    for offset, address in texts.items():
        words[offset // 8] = address
    return words


def _pointer(table: int, index: int) -> int:
    """The pointer at this index of a table."""
    return int(c_void_p.from_address(table + 8 * index).value or 0)
