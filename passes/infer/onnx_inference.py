"""ONNX's inference of types, and its version converter: in this process, or in a child process that may crash.

ONNX's inference relies on assumptions about a file, and crashes the process if one is wrong. Files known to do
so are rejected before (`partita.graph.ops.onnx_crashes`). For untrusted files `settings.isolate_inference` runs all
of it in one child process, started once, and again after a crash.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.protos import TypeReader
from partita.passes.infer import child_messages
from partita.passes.infer.hidden_nodes import answer_hidden
from partita.passes.infer.onnx_child import type_bytes, type_of
from partita.passes.python_child import environment, module_command
from partita.passes.settings import settings

STARTING = 60.0
"""Time limit in seconds for the child to import ONNX."""

LONGEST = 120.0
"""Time limit in seconds for an answer or question of the child."""

REMEDY = "The model is damaged, or shows a mistake of the onnx package; without InferShape it can be looked at all the same"

COMMAND = module_command("partita.passes.infer.onnx_child")
"""The command that starts the child."""

SHOWN = 1024
"""Maximum bytes of a constant that is passed to the inference, which may compute shapes from it."""


def onnx_types(g: Graph, propagates: bool = True) -> tuple[Any, str]:
    """ONNX's copy of the graph with types, and the errors of its strict inference. Unless `propagates` it computes no shapes from
    values. With `settings.isolate_inference` a crash becomes an exception.

    This is the only call of ONNX's inference beside that of the writer, which needs the element types of outputs."""
    from onnx.shape_inference import InferenceError

    from partita.graph.writers.onnx import to_model

    model = to_model(g, elide_constants_above=SHOWN, drop_control=True)
    try:
        return _infer(model, propagates, True), ""
    except InferenceError as error:
        return _infer(model, propagates, False), str(error)


def _infer(model: Any, data_prop: bool, strict_mode: bool) -> Any:
    """The ModelProto with types; in strict mode `InferenceError` if ONNX reports one."""
    if not settings.isolate_inference:
        return _infer_here(model, data_prop, strict_mode)
    with _held.lock:
        return _held.ready().asked("inference", child_messages.INFER, model.SerializeToString(), bytes((data_prop, strict_mode)))


def convert_version(model: Any, opset: int) -> Any:
    """The ModelProto converted to that version by ONNX's converter, which trusts files as much as its inference does."""
    if not settings.isolate_inference:
        from onnx.version_converter import convert_version as convert_here

        return convert_here(model, opset)
    with _held.lock:
        return _held.ready().asked("version converter", child_messages.CONVERT, model.SerializeToString(), str(opset).encode())


def _infer_here(model: Any, data_prop: bool, strict_mode: bool) -> Any:
    from onnx.shape_inference import infer_shapes as infer_here

    try:
        return infer_here(model, data_prop=data_prop, strict_mode=strict_mode)
    except (IndexError, ValueError) as error:  # ONNX's C++ code raises this as "out of range"
        raise TypeMismatch(f"ONNX's inference failed: {type(error).__name__}: {error}", remedy=REMEDY) from error


def stop_isolation() -> None:
    """Ends the child process, if any; the next model starts another."""
    with _held.lock:
        _held.end()


class _Child:
    """The child process, seen from this one."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
        )
        self.reader = TypeReader()
        self.started = False
        self.tool = "inference"
        """The tool of ONNX's that is running."""

    def asked(self, tool: str, kind: bytes, *question: bytes) -> Any:
        """The resulting model. An interrupt ends the child, whose pending answer would be taken for the next one."""
        before, self.tool = self.tool, tool
        try:
            return self._answered(kind, question)
        except KeyboardInterrupt:
            _held.end()
            raise
        finally:
            self.tool = before

    def _answered(self, kind: bytes, question: Sequence[bytes]) -> Any:
        """The resulting model. Questions of the child are answered meanwhile, which may need the inference of another model."""
        import onnx
        from onnx.shape_inference import InferenceError

        if not self.started:
            self.receive(STARTING)
            self.started = True
        self.send(kind, *question)
        failed: Exception | None = None
        while True:
            kind, parts = self.receive(LONGEST)
            if kind == child_messages.RESULT:
                return onnx.ModelProto.FromString(parts[0] or b"")
            if kind == child_messages.QUESTION:
                failed = failed or self.answer(parts)
                continue
            if failed is not None:
                raise failed
            said = (parts[0] or b"").decode(errors="replace")
            if kind == child_messages.COMPLAINT:
                raise InferenceError(said)
            raise TypeMismatch(f"ONNX's {self.tool} failed: {said}")

    def answer(self, parts: Sequence[bytes | None]) -> Exception | None:
        """Answers a question; an error is returned, to be raised after the child was told to abort."""
        key, *inputs = parts
        try:
            types = answer_hidden(int(key or b"0"), [type_of(part, self.reader) for part in inputs])
        except Exception as error:
            if self.process.poll() is not None:
                raise
            self.send(child_messages.ABORT)
            return error
        self.send(child_messages.ANSWER, *map(type_bytes, types))
        return None

    def send(self, kind: bytes, *parts: bytes | None) -> None:
        try:
            child_messages.send(cast(BinaryIO, self.process.stdin), kind, *parts)
        except OSError:
            raise self.died() from None

    def receive(self, seconds: float) -> tuple[bytes, Sequence[bytes | None]]:
        stream = cast(BinaryIO, self.process.stdout)
        ready, _, _ = select.select([stream], [], [], seconds)
        if not ready:
            _held.end()
            raise TypeMismatch(f"ONNX's {self.tool} took more than {seconds:g} s, and was ended", remedy=REMEDY)
        try:
            return child_messages.receive(stream)
        except EOFError:
            raise self.died() from None

    def died(self) -> TypeMismatch:
        code = self.process.wait()
        _held.end()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return TypeMismatch(f"ONNX's {self.tool} ended its process ({how})", remedy=REMEDY)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def forget(self) -> None:
        """Closes a forked process's copies of the pipes. Their buffered data is the parent's to send."""
        self.process.returncode = 0
        for stream in (self.process.stdin, self.process.stdout):
            cast(Any, stream).raw.close()


class _Held:
    """The one child of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while communicating; reentrant, since a question may need another model."""
        self._child: _Child | None = None

    def ready(self) -> _Child:
        """The child process, started if necessary."""
        if self._child is None:
            self._child = _Child()
        return self._child

    def end(self) -> None:
        """Ends the child process; a forked process only drops that of its parent."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def renew(self) -> None:
        """Resets the state in a forked process, whose parent communicates with the child."""
        child, self.lock, self._child = self._child, threading.RLock(), None
        if child is not None:
            child.forget()


_held = _Held()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.renew)
