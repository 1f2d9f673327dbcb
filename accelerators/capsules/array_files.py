"""Arrays by name in one .npz file, which numpy reads without unpickling anything."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from partita.accelerators.errors import NotSupported


def name_in_file(name: str) -> str:
    """The name with NUL, which would end it in a zip file, replaced by a visible character."""
    return name.replace("\0", "\u2400")


def write_arrays(target: str | os.PathLike[str] | BinaryIO, arrays: Mapping[str, Any]) -> None:
    """Writes the arrays to a path or an open file, under any names. Text becomes fixed-width text."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, value in arrays.items():
            if not isinstance(value, (np.ndarray, np.generic)):
                cause = f"a {type(value).__name__} cannot be kept in a file of arrays"
                raise NotSupported(cause, where=f"value {name!r}", remedy="Cut the model where arrays leave it")
            array = np.asarray(value)
            plain = array.astype(str) if array.dtype.hasobject else array
            with archive.open(f"{name_in_file(name)}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, plain, allow_pickle=False)
