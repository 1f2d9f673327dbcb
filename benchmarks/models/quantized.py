"""The models in QDQ form, as onnxruntime's quantizer writes them, calibrated with seeded inputs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.models.files import Model, cache_folder, model

RECIPE = 1
"""Part of each file's name: one more whenever the recipe changes."""

OLDEST = 13
"""The first version of ONNX whose scales may differ from channel to channel."""

SEEDS = (0, 1)
"""Of the inputs that the model is calibrated with."""


def quantized_model(name: str) -> Model:
    """The model of that name at batch 1 with unsigned activations, and signed weights with a scale for each channel; its file is
    made if it is not there yet."""
    path = cache_folder() / "models" / f"{name}-qdq-r{RECIPE}.onnx"
    if not path.exists():
        aside = path.with_suffix(f".{os.getpid()}.part.onnx")
        try:
            quantize_file(model(name), aside)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    return Model(name, 1, path)


def quantize_file(given: Model, path: Path) -> None:
    """Write the model in QDQ form to a file."""
    import onnx
    from onnx.version_converter import convert_version
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Inputs(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[dict[str, np.ndarray]] = map(given.inputs, SEEDS)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    with tempfile.TemporaryDirectory() as folder:
        start, prepared = Path(folder) / "start.onnx", Path(folder) / "prepared.onnx"
        proto = onnx.load(given.path)
        version = next(opset.version for opset in proto.opset_import if not opset.domain)
        onnx.save(convert_version(proto, OLDEST) if version < OLDEST else proto, start)
        quant_pre_process(str(start), str(prepared), skip_symbolic_shape=True)
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(str(prepared), str(path), Inputs(), quant_format=QuantFormat.QDQ, per_channel=True, **types)
