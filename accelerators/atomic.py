"""Text files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from accelerators.errors import AcceleratorError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write aside, then rename."""
    target = Path(path)
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=".partita-", suffix=".part", delete=False
        ) as aside:
            try:
                aside.write(text)
                aside.close()
                os.replace(aside.name, target)
            except BaseException:
                os.unlink(aside.name)
                raise
    except OSError as error:
        raise AcceleratorError(f"the file cannot be written: {error.strerror or error}", where=str(target)) from None
