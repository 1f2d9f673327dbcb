"""Arrays for a model's inputs, from the files of a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import InputError
from partita.graph.errors import MissingDependency, ReadError
from partita.graph.readers.arrays import NUMBERS, ZIP, read_npy, read_npz
from partita.graph.types import TensorType, Type

_KINDS = NUMBERS + "cSU"
"""Kinds of element types of inputs, including text."""

Specs = Sequence[tuple[str, Type | None]]
"""Names and types of inputs."""


IMAGE_RANK, IMAGE_SIZE = 4, 224
"""The rank of a batch of images, and the height and width that examples give them."""


def read_inputs(texts: Sequence[str], specs: Specs, normalize: str) -> dict[str, Any]:
    """Arrays of FILE or NAME=FILE by the names of the inputs: .npy for one input, .npz for several by name, an image for one.

    Files without a name are assigned to the remaining inputs, in order."""
    by_name: dict[str, Any] = {}
    for text in texts:
        name, path = _split(text, specs)
        arrays = _read(path, name, specs, by_name, normalize)
        for key, array in arrays.items():
            if key in by_name:
                raise InputError(f"input {key!r} is given twice", where=path)
            by_name[key] = fitted(array, dict(specs)[key])
    return by_name


def _split(text: str, specs: Specs) -> tuple[str | None, str]:
    """NAME=FILE if NAME is an input, else a file's path, which may contain '='."""
    for name, _ in specs:
        if text.startswith(name + "="):
            return name, text[len(name) + 1 :]
    return None, text


def _read(path: str, name: str | None, specs: Specs, taken: Mapping[str, Any], normalize: str) -> dict[str, Any]:
    file = Path(path)
    if not file.is_file():
        cause = "it is a directory" if file.is_dir() else "there is no such file"
        raise ReadError(cause, where=path, remedy="Give FILE or NAME=FILE with a .npy, .npz or image file")
    if file.suffix == ".npz" and name is None:
        return _by_name(path, _numpy(path), specs)
    target = name or next((other for other, _ in specs if other not in taken), None)
    if target is None:
        raise InputError("there is no input left for it", where=path, remedy=listed(specs))
    if file.suffix.lower() in IMAGES:
        return {target: read_image(path, target, dict(specs)[target], normalize)}
    content = _numpy(path)
    if isinstance(content, Mapping):
        if len(content) != 1:
            raise ReadError(f"it holds {len(content)} arrays, and one is wanted for {target!r}", where=path)
        content = next(iter(content.values()))
    return {target: content}


def _numpy(path: str) -> Any:
    """The array of a .npy file, or the arrays of a .npz file. Nothing is unpickled."""
    try:
        content = Path(path).read_bytes()
        if content[: len(ZIP)] == ZIP:
            return dict(read_npz(content, path, _KINDS))
        return read_npy(content, path, _KINDS)
    except (OSError, ReadError) as error:
        cause = error.cause if isinstance(error, ReadError) else error.strerror or str(error)
        inside = (error.where if isinstance(error, ReadError) else None) or path
        kinds = f".npy, .npz, {', '.join(sorted(IMAGES))}"
        raise ReadError(f"no array can be read from it: {cause}", where=inside, remedy=f"Give one of {kinds}") from error


def _by_name(path: str, arrays: Mapping[str, Any], specs: Specs) -> dict[str, Any]:
    known = dict(specs)
    unknown = [name for name in arrays if name not in known]
    if unknown and len(arrays) == len(specs) == 1:
        return {specs[0][0]: next(iter(arrays.values()))}
    if unknown:
        raise InputError(f"it holds {unknown[0]!r}, and there is no such input", where=path, remedy=listed(specs))
    return dict(arrays)


def fitted(array: Any, kind: Type | None) -> Any:
    """The array in the input's dtype if that changes no value, and with a leading 1 for the batch if only that is missing."""
    if not isinstance(kind, TensorType) or not isinstance(array, np.ndarray):
        return array
    if (
        kind.shape is not None
        and array.ndim == len(kind.shape) - 1
        and kind.shape[0] in (1, None) + _symbols(kind)
    ):
        array = array[np.newaxis]
    if (
        kind.dtype in ("float32", "int64")
        and array.dtype.name in ("float64", "int32", "uint8")
        and array.dtype.name != kind.dtype
    ):
        return array.astype(kind.dtype)
    return array


def shape_options(specs: Specs) -> list[str]:
    """An example of --shape for each input whose sizes are not fixed: 1, and the usual 224 for height and width of an image."""
    options = []
    for name, kind in specs:
        if isinstance(kind, TensorType) and kind.shape and not kind.is_static:
            is_image = len(kind.shape) == IMAGE_RANK and not any(isinstance(dim, int) for dim in kind.shape[2:])
            usual = (1, 1, IMAGE_SIZE, IMAGE_SIZE) if is_image else (1,) * len(kind.shape)
            sizes = (dim if isinstance(dim, int) else one for dim, one in zip(kind.shape, usual))
            options.append(f"--shape {name}={','.join(map(str, sizes))}")
    return options


def _symbols(kind: TensorType) -> tuple[str, ...]:
    return tuple(dim for dim in kind.shape or () if isinstance(dim, str))


def listed(specs: Specs) -> str:
    """List of the inputs, for an error message."""
    return "Its inputs are " + ", ".join(f"{name}: {'?' if kind is None else kind}" for name, kind in specs)


IMAGES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""File extensions of images."""

NORMALIZE = ("imagenet", "unit", "none")
"""imagenet: (v/255 - mean) / deviation by channel, as in torchvision; unit: v/255; none: v unchanged, 0 to 255."""

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
"""Means of ImageNet's red, green and blue, as fractions of 255."""

DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
"""The standard deviations."""


@attrs.frozen(slots=True)
class _ImageLayout:
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
        raise InputError(f"input {name!r} is {kind}", where=path, remedy="An image goes into uint8 or float inputs")
    if plan.channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[np.newaxis])


def _plan(path: str, name: str, kind: Type | None) -> _ImageLayout:
    shape = kind.shape if isinstance(kind, TensorType) else None
    if shape is not None and len(shape) == 4 and (shape[0] in (1, None) or isinstance(shape[0], str)):
        for channels_first, (c, h, w) in ((True, shape[1:]), (False, (shape[3], shape[1], shape[2]))):
            if c in (1, 3):
                return _ImageLayout(
                    c, h if isinstance(h, int) else None, w if isinstance(w, int) else None, channels_first
                )
    raise InputError(
        f"an image does not go into input {name!r}: {'?' if kind is None else kind}",
        where=path,
        remedy="It needs [1, C, H, W] or [1, H, W, C] with one channel or three; give an .npy file instead",
    )


def _pixels(path: str, plan: _ImageLayout) -> Any:
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
