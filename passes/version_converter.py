"""ONNX's version converter: in this process, or in a child process that may crash: python -m partita.passes.version_converter

The converter relies on assumptions about a file, and crashes the process if one is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from partita.graph.errors import TypeMismatch
from partita.passes.manager import settings
from partita.passes.python_child import environment, module_command

LONGEST = 120.0
"""Time limit in seconds for the child."""

REFUSED = 3
"""The child's exit status if ONNX refuses the model; its output is then the reason."""

REMEDY = "The model is damaged, or the onnx package has a bug; keep the opset of the model"

COMMAND = module_command("partita.passes.version_converter")
"""The command that starts the child; the version follows."""


class Refused(ValueError):
    """ONNX's converter does not convert a model; the text is its reason."""


def convert_version(model: Any, opset: int) -> Any:
    """The ModelProto converted to that version, or `Refused`; with `settings.isolate_inference` a crash is an exception."""
    import onnx

    if not settings.isolate_inference:
        return _converted(model, opset)
    try:
        done = subprocess.run(
            [*COMMAND, str(opset)], input=model.SerializeToString(), capture_output=True, env=environment(), timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TypeMismatch(f"ONNX's version converter took more than {LONGEST:g} s and was stopped", remedy=REMEDY) from None
    if done.returncode == REFUSED:
        raise Refused(done.stdout.decode(errors="replace"))
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        raise TypeMismatch(f"ONNX's version converter ended its process ({how})", remedy=REMEDY)
    return onnx.ModelProto.FromString(done.stdout)


def _converted(model: Any, opset: int) -> Any:
    from onnx.shape_inference import InferenceError
    from onnx.version_converter import ConvertError, convert_version

    try:
        return convert_version(model, opset)
    except (InferenceError, ConvertError, RuntimeError, ValueError, TypeError, LookupError) as error:
        raise Refused(str(error)) from error


def main() -> int:
    """Converts the model on the input to the version in the arguments."""
    import onnx

    try:
        converted = _converted(onnx.ModelProto.FromString(sys.stdin.buffer.read()), int(sys.argv[1]))
    except Refused as error:
        sys.stdout.buffer.write(str(error).encode())
        return REFUSED
    sys.stdout.buffer.write(converted.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main())
