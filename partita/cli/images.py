"""An image as a model's input: resized to the input's size, with channels in the input's order, normalised."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import InputError
from partita.graph.errors import MissingDependency, ReadError
from partita.graph.types import TensorType, Type

IMAGES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""File extensions of images."""

NORMALIZE = ("imagenet", "unit", "none")
"""imagenet: (v/255 - mean) / deviation by channel, as in torchvision; unit: v/255; none: v unchanged, 0 to 255."""

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
"""Means of ImageNet's red, green and blue, as fractions of 255."""

DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
"""The standard deviations."""


@attrs.frozen(slots=True)
class _Plan:
    """Layout of an image for an input."""

    channels: int
    height: int | None
    width: int | None
    channels_first: bool


def read_image(path: str, name: str, kind: Type | None, normalize: str) -> Any:
    """The image for an input of shape [1, C, H, W] or [1, H, W, C] with C of 1 or 3; a dynamic size is the image's own.

    It is scaled to H x W as a whole (bilinear; not cropped). Integer inputs get the bytes unchanged."""
    plan = _plan(path, name, kind)
    pixels = _pixels(path, plan)
    assert isinstance(kind, TensorType)
    if kind.dtype in ("float32", "float16", "float64"):
        pixels = _normalized(pixels.astype(np.float32), normalize).astype(kind.dtype)
    elif kind.dtype != "uint8":
        raise InputError(
            f"input {name!r} is {kind}", where=path, remedy="An image goes into uint8 or float inputs"
        )
    if plan.channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[np.newaxis])


def _plan(path: str, name: str, kind: Type | None) -> _Plan:
    shape = kind.shape if isinstance(kind, TensorType) else None
    if shape is not None and len(shape) == 4 and (shape[0] in (1, None) or isinstance(shape[0], str)):
        for channels_first, (c, h, w) in ((True, shape[1:]), (False, (shape[3], shape[1], shape[2]))):
            if c in (1, 3):
                return _Plan(
                    c, h if isinstance(h, int) else None, w if isinstance(w, int) else None, channels_first
                )
    raise InputError(
        f"an image does not go into input {name!r}: {'?' if kind is None else kind}",
        where=path,
        remedy="It needs [1, C, H, W] or [1, H, W, C] with one channel or three; give an .npy file instead",
    )


def _pixels(path: str, plan: _Plan) -> Any:
    """Bytes of height x width x channels."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency("pillow", "image", f"reading the image {path!r}") from None
    try:
        with Image.open(path) as image:
            picture = image.convert("L" if plan.channels == 1 else "RGB")
    except MemoryError as error:  # A chunk that claims to be larger than memory is allocated as a whole.
        raise ReadError("no image can be read from it: it wants more memory than there is", where=path) from error
    except Exception as error:  # A decoder may raise any exception for a damaged file.
        raise ReadError(f"no image can be read from it: {error}", where=path) from error
    size = (plan.width or picture.width, plan.height or picture.height)
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR)).reshape(size[1], size[0], plan.channels)


def _normalized(pixels: Any, normalize: str) -> Any:
    if normalize == "none":
        return pixels
    scaled = pixels / np.float32(255)
    if normalize == "unit":
        return scaled
    if pixels.shape[2] == 1:
        return (scaled - MEAN.mean()) / DEVIATION.mean()
    return (scaled - MEAN) / DEVIATION
