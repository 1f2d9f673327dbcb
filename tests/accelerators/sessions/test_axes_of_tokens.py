"""The axis along which ops compute, against their schemas."""

from __future__ import annotations

import onnx.defs

from partita.accelerators.decoder.tokens import ALONG_ONE


def test_axes_that_are_not_stated_are_the_schemas() -> None:
    for op, axis in ALONG_ONE.items():
        attribute = onnx.defs.get_schema(op, 21).attributes["axis"]
        assert attribute.required or onnx.helper.get_attribute_value(attribute.default_value) == axis, op
