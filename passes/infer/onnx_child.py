"""The child process in which ONNX infers types: python -m partita.passes.infer.onnx_child

It reads a model and answers with the typed model, or an error. If ONNX crashes or hangs, only this process does.
For nodes that are hidden from ONNX it asks its parent, which may have another model inferred before it answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from partita.graph.protos import TypeReader, write_type
from partita.graph.types import Type
from partita.passes.infer import child_messages
from partita.passes.infer.hidden_nodes import answering


class _Aborted(Exception):
    """The parent could not answer, and has the reason."""


def main() -> None:
    """Serves until the input ends. ONNX's own output goes to the error stream, to keep messages intact."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import onnx.shape_inference  # noqa: F401  the first question need not wait for it

    child_messages.send(answers, child_messages.READY)
    server = _Server(sys.stdin.buffer, answers)
    while True:
        try:
            kind, parts = child_messages.receive(sys.stdin.buffer)
        except EOFError:
            return
        (server.convert if kind == child_messages.CONVERT else server.infer)(parts)


class _Server:
    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        self.questions = questions
        self.answers = answers
        self.reader = TypeReader()

    def infer(self, parts: Sequence[bytes | None]) -> None:
        """Handles INFER for one model."""
        import onnx
        from onnx.shape_inference import InferenceError, infer_shapes

        model, flags = parts
        assert model is not None and flags is not None
        try:
            with answering(self.ask):
                inferred = infer_shapes(model, data_prop=bool(flags[0]), strict_mode=bool(flags[1]))
            answer = inferred if isinstance(inferred, bytes) else inferred.SerializeToString()
            child_messages.send(self.answers, child_messages.RESULT, answer)
        except InferenceError as error:
            child_messages.send(self.answers, child_messages.COMPLAINT, str(error).encode())
        except (_Aborted, ValueError, RuntimeError, LookupError, TypeError, MemoryError, onnx.checker.ValidationError) as error:
            child_messages.send(self.answers, child_messages.FAILURE, f"{type(error).__name__}: {error}".encode())

    def convert(self, parts: Sequence[bytes | None]) -> None:
        """Handles CONVERT for one model; errors of the converter become COMPLAINT."""
        import onnx
        from onnx.version_converter import convert_version

        model, opset = parts
        assert model is not None and opset is not None
        try:
            converted = convert_version(onnx.ModelProto.FromString(model), int(opset))
            child_messages.send(self.answers, child_messages.RESULT, converted.SerializeToString())
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, TypeError, LookupError, MemoryError) as error:
            child_messages.send(self.answers, child_messages.COMPLAINT, str(error).encode())

    def ask(self, key: int, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
        """The output types of a hidden node, from the parent."""
        child_messages.send(self.answers, child_messages.QUESTION, str(key).encode(), *map(type_bytes, inputs))
        while True:
            kind, parts = child_messages.receive(self.questions)
            if kind == child_messages.ANSWER:
                return [type_of(part, self.reader) for part in parts]
            if kind == child_messages.ABORT:
                raise _Aborted
            self.infer(parts)


def type_bytes(value_type: Type | None) -> bytes | None:
    """The type as a serialized TypeProto."""
    import onnx

    if value_type is None:
        return None
    proto = onnx.TypeProto()
    write_type(proto, value_type)
    return bytes(proto.SerializeToString())


def type_of(data: bytes | None, reader: TypeReader) -> Type | None:
    """The inverse of `type_bytes`."""
    import onnx

    return None if data is None else reader.read(onnx.TypeProto.FromString(data), "a hidden node")


if __name__ == "__main__":
    main()
