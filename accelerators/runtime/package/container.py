"""The file: a zip of stored members, sealed as a whole.

The zip's comment ends the file and is the seal: the position of the manifest, an optional signature, and the SHA-256 of
everything before it. A reader checks the seal first and then uses the manifest: the zip's own tables are for other tools."""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import open_regular, others_may_write, replacing

FORMAT = 1
"""The version of the format; a reader supports only its own."""

MANIFEST = "manifest.json"
"""The last member."""

_SEAL = re.compile(rb"partita-package-(\d{4}) manifest=(\d{16})\+(\d{16}) hmac=([0-9a-f]{64}|-{64}) sha256=([0-9a-f]{64})")
_SIGNED = 64 + len(" sha256=") + 64
"""The number of bytes at the end that the signature does not cover: the signature itself, and the digest that covers
it."""

_LENGTH = len("partita-package-0001 manifest=") + 16 + 1 + 16 + len(" hmac=") + _SIGNED

_PIECE = 1 << 20


class PackageError(AcceleratorError):
    """An exported model cannot be written, is damaged, or does not fit this machine."""


def checked_key(key: Any, where: str) -> bytes | None:
    """The key as bytes; None if there is none."""
    if key is None:
        return None
    if not isinstance(key, (bytes, bytearray)):
        remedy = "Write it as bytes: key=b'...', or text.encode()"
        raise PackageError(f"a key is bytes, not {type(key).__name__}", where=where, remedy=remedy)
    if not key:
        remedy = "Look where it comes from: a variable that is not set? Without a signature: key=None"
        raise PackageError("the key is empty: anybody could sign with it", where=where, remedy=remedy)
    return bytes(key)


class PackageWriter:
    """Writes members one after another."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._zip.comment = b" " * _LENGTH
        self._members: dict[str, tuple[int, int, str]] = {}

    @contextmanager
    def member(self, name: str) -> Iterator[MemberWriter]:
        """A member to be written in pieces."""
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o600 << 16
        with self._zip.open(info, "w", force_zip64=True) as stream:
            writer = MemberWriter(stream.write, self._file.tell())
            yield writer
        self._members[name] = writer.start, writer.size, writer.digest.hexdigest()

    def add(self, name: str, data: bytes) -> str:
        """Writes a whole member; returns its name."""
        with self.member(name) as member:
            member.write(data)
        return name

    def abandon(self) -> None:
        """Stops writing."""
        self._zip.fp = None

    def finish(self, manifest: Mapping[str, Any], key: bytes | None) -> None:
        """Writes the manifest and the seal."""
        members = dict(self._members)
        self.add(MANIFEST, json.dumps({"format": FORMAT, **manifest, "members": members}, indent=1).encode())
        self._zip.close()
        start, size, _ = self._members[MANIFEST]
        file = self._file
        file.seek(-_LENGTH, os.SEEK_END)
        file.write(b"partita-package-%04d manifest=%016d+%016d hmac=" % (FORMAT, start, size))
        file.write(_signature(key, file, file.tell()) if key is not None else b"-" * 64)
        file.write(b" sha256=")
        file.write(_fed(hashlib.sha256(), file, file.tell()).hexdigest().encode())


class MemberWriter:
    """One member while it is written."""

    def __init__(self, write: Callable[[Any], Any], start: int) -> None:
        self.start = start
        """The offset of its bytes in the file."""
        self.size = 0
        """The number of bytes so far."""
        self.digest = hashlib.sha256()
        """The digest of these bytes."""
        self._write = write

    def write(self, data: Any) -> None:
        """Appends the data."""
        self._write(data)
        self.digest.update(data)
        self.size += len(data)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[PackageWriter]:
    """A package to write, which replaces the path when it is complete."""
    with replacing(path) as file:
        writer = PackageWriter(file)
        try:
            yield writer
        except BaseException:
            writer.abandon()
            raise


class Package:
    """A package with a valid seal, mapped into memory. Changes to the mapping stay in this process."""

    def __init__(self, path: str | os.PathLike[str], key: bytes | None) -> None:
        self.where = os.fsdecode(path)
        """The path of the file."""
        self._data, seal = _opened(self.where, key)
        start, size = _placed(seal, len(self._data), self.where)
        self.manifest = _manifest(bytes(self._data[start : start + size]), self.where)
        """The manifest that the exporter wrote."""
        self._end = start

    def member(self, name: str) -> memoryview:
        """The bytes of a member, which the seal covers."""
        try:
            start, size, _ = self.manifest["members"][name]
            fits = min(start, size) >= 0 and start + size <= self._end
        except (KeyError, TypeError, ValueError):
            raise PackageError(f"it has no member {name!r}", where=self.where) from None
        if not fits:
            raise PackageError(f"member {name!r} is not where the manifest says", where=self.where, remedy=_AGAIN)
        return self._data[start : start + size]


_AGAIN = "Copy the file once more, or export the model again"


def _opened(path: str, key: bytes | None) -> tuple[memoryview, re.Match[bytes]]:
    """The mapped file and its seal, after checking the seal.

    It is checked through a small buffer, so that unused parts are not kept in memory. A signed file
    that others may write to is checked as a copy: they could alter it afterwards."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            is_safe = key is None or not size or not others_may_write(os.fstat(file.fileno()))
            data = None if is_safe else mmap.mmap(-1, size)
            if data is not None:
                file.readinto(data)
            source: Any = file if data is None else data
            source.seek(max(0, size - _LENGTH))
            seal = _SEAL.fullmatch(source.read(_LENGTH))
            if seal is None:
                cause = "this is not a package of Partita's, or it was cut short or added to" if size else "it is empty"
                remedy = "pt.load reads ONNX files" if path.endswith(".onnx") else _AGAIN
                raise PackageError(cause, where=path, remedy=remedy)
            _check(source, size, seal, key, path)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if data is None else data), seal
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PackageError(f"the package cannot be read: {reason}", where=path) from None


def _check(file: BinaryIO, size: int, seal: re.Match[bytes], key: bytes | None, where: str) -> None:
    if _fed(hashlib.sha256(), file, size - 64).hexdigest().encode() != seal[5]:
        raise PackageError("the package was altered or damaged: its checksum is wrong", where=where, remedy=_AGAIN)
    if int(seal[1]) != FORMAT:
        remedy = "Install another version of Partita, or export the model again"
        raise PackageError(f"its format is version {int(seal[1])}, and this is version {FORMAT}", where=where, remedy=remedy)
    if key is None:
        return
    if seal[4] == b"-" * 64:
        remedy = "Export it with key=, or import it without if you trust the file"
        raise PackageError("the package is not signed", where=where, remedy=remedy)
    if not hmac.compare_digest(_signature(key, file, size - _SIGNED), seal[4]):
        cause = "the package was signed with another key, or altered by somebody without it"
        raise PackageError(cause, where=where, remedy="Use the signer's key byte for byte: a file of it may end with a newline")


def _placed(seal: re.Match[bytes], size: int, where: str) -> tuple[int, int]:
    """The offset and the length of the manifest."""
    start, length = int(seal[2]), int(seal[3])
    if start + length > size - _LENGTH:
        raise PackageError("its manifest lies outside the file", where=where, remedy=_AGAIN)
    return start, length


def _manifest(data: bytes, where: str) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"its manifest cannot be read: {error}", where=where, remedy=_AGAIN) from None
    if not isinstance(manifest, dict):
        raise PackageError("its manifest is not a table", where=where, remedy=_AGAIN)
    return manifest


def _signature(key: bytes, file: BinaryIO, end: int) -> bytes:
    digest = hashlib.sha256(key).digest()  # HMAC treats keys as equal that differ only in trailing zero bytes
    signature: bytes = _fed(hmac.new(digest, digestmod=hashlib.sha256), file, end).hexdigest().encode()
    return signature


def _fed(digest: Any, file: BinaryIO, end: int) -> Any:
    """Feeds the file up to `end` to the digest; the file's position is `end` afterwards."""
    file.seek(0)
    left = end
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    file.seek(end)
    return digest
