"""Opens a path, bytes or a ModelProto as a ModelProto of a supported version."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from partita.graph.errors import ReadError
from partita.graph.graph import NEWEST_VERSION
from partita.graph.ops.schemas import newest_versions
from partita.graph.readers.foreign import format_of, remedy_for
from partita.graph.readers.onnx.large import Parts, read_parts
from partita.graph.types import Array

UPGRADE = "Upgrade the package onnx, or save the model for an older version"


@attrs.frozen(slots=True)
class ModelSource:
    """A model and its origin."""

    model: Any
    """The ModelProto, which is only read."""
    title: str
    """The source's name in messages."""
    folder: Any
    """Location of external data: a folder, bytes by location, or None if unknown."""
    large: Mapping[int, Array] = attrs.field(factory=dict)
    """The bytes of large initializers of the main graph, by index; the ModelProto then lacks them."""


def open_source(given: Any, base_dir: str | os.PathLike[str] | Mapping[str, Any] | None) -> ModelSource:
    """The model, checked for a graph and supported versions."""
    import onnx

    folder = base_dir if base_dir is None or isinstance(base_dir, Mapping) else os.fspath(base_dir)
    if isinstance(given, onnx.ModelProto):
        source = ModelSource(given, str(given.graph.name) or "model", folder)
    elif isinstance(given, (bytes, bytearray, memoryview)):
        whole = bytes(given)
        source = _source(read_parts(io.BytesIO(whole)) or whole, "the bytes given", folder)
    elif isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        beside = folder if folder is not None else os.path.dirname(os.path.abspath(path))
        source = _source(_read_file(path), path, beside)
    elif isinstance(given, io.BufferedReader):
        source = _source(read_parts(given) or given.read(), str(given.name), folder)
    else:
        raise ReadError(
            f"an object of type {type(given).__name__} is not an ONNX model",
            remedy=remedy_for(given) or "Give a path, the bytes of a file, or a ModelProto",
        )
    _check_model(source.model, source.title)
    return source


def _read_file(path: str) -> bytes | Parts:
    """The contents of a regular file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            what = "a directory" if os.path.isdir(path) else "no regular file"
            raise ReadError(f"it is {what}", where=path, remedy="Give the path of the model's own file")
        with open(path, "rb") as file:
            return read_parts(file) or file.read()
    except FileNotFoundError:
        from partita.graph.readers.zoo import zoo_names  # start-up

        zoo = path.lower() in zoo_names()
        remedy = f"Did you mean 'zoo:{path.lower()}'?" if zoo else "Check the path"
        raise ReadError("there is no such file", where=path, remedy=remedy) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ReadError(f"the file cannot be read: {reason}", where=path) from None


def _source(content: bytes | Parts, title: str, folder: Any) -> ModelSource:
    if isinstance(content, Parts):
        return ModelSource(_parsed(content.rest, title), title, folder, content.data)
    return ModelSource(_parsed(content, title), title, folder)


def _parsed(data: bytes, title: str) -> Any:
    """The ModelProto in these bytes."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    if not data:
        raise ReadError("the file is empty", where=title)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError):
        name, remedy = format_of(title)
        what = "a text file" if _is_text(data) else "damaged, or of another format"
        raise ReadError(f"this is not an ONNX model: it is {name or what}", where=title, remedy=remedy) from None
    return model


def _is_text(data: bytes) -> bool:
    return all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data[:256])


def _check_model(model: Any, title: str) -> None:
    import onnx

    if not model.HasField("graph"):
        raise ReadError("this is not an ONNX model: there is no graph in it", where=title)
    if not model.ir_version >= 1:
        raise ReadError("the model declares no IR version", where=title, remedy="Set ir_version")
    if model.ir_version > onnx.IR_VERSION:
        raise ReadError(
            f"IR version {model.ir_version} is newer than the package onnx knows ({int(onnx.IR_VERSION)})",
            where=title,
            remedy=UPGRADE,
        )
    if model.ir_version >= 3 and not model.opset_import:
        raise ReadError("the model imports no opset", where=title, remedy="Set opset_import")


def read_opsets(imports: Any, title: str, note: Callable[[str, str, str], None]) -> dict[str, int]:
    """The version of each imported domain (the last of several), checked against those that the package onnx knows."""
    newest = newest_versions()
    versions: dict[str, int] = {}
    known = {plain_domain(item.domain) for item in imports if item.version}
    for item in imports:
        domain = plain_domain(utf8(item.domain, title))
        if item.version == 0 and (domain or domain in known):
            continue  # ignored: no op has that version
        if versions.get(domain, item.version) != item.version:
            cause = f"the opset of domain {domain or 'ai.onnx'!r} is imported in versions {versions[domain]} and {item.version}"
            note(f"{cause}; the last is used", title, "Import one version of each domain")
        versions[domain] = item.version
        last = newest.get(domain, NEWEST_VERSION)
        if not 1 <= item.version <= last:
            raise ReadError(
                f"there is no version {item.version} of opset {domain or 'ai.onnx'!r}; 1 to {last} are known",
                where=title,
                remedy=UPGRADE,
            )
    return versions


def utf8(text: Any, where: str) -> str:
    """Checks a string of the file: protobuf returns bytes if it is not UTF-8."""
    if not isinstance(text, str):
        raise ReadError(f"the model is damaged: a name or text is not UTF-8: {text!r:.60}", where=where)
    return text


def plain_domain(domain: str) -> str:
    """The domain, with the empty spelling for ONNX's own."""
    return "" if domain == "ai.onnx" else domain
