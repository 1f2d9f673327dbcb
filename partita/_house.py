"""Are the packages that Python finds ours? Their names are plain words, so a user's own file can shadow them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("graph", "passes", "partition", "accelerators")
"""The packages that stand beside this one."""


class ShadowedPackage(ImportError):
    """A file of the user's bears the name of one of Partita's packages."""


def check_house() -> None:
    """Raise ShadowedPackage if `import graph` and the like would bring something that is not Partita's."""
    house = Path(__file__).resolve().parent.parent
    for package in PACKAGES:
        location = _location(package)
        if location is not None and location.resolve() != (house / package / "__init__.py").resolve():
            raise ShadowedPackage(
                f"Partita's package {package!r} is shadowed by {location}\n"
                f"  Rename that file or folder, or run Python where it is not on sys.path (ours is in {house / package})."
            )


def _location(package: str) -> Path | None:
    module = sys.modules.get(package)
    if module is not None:
        location = getattr(module, "__file__", None)
    else:
        spec = importlib.util.find_spec(package)
        location = spec.origin if spec is not None else None
        if spec is not None and location is None:
            location = next(iter(spec.submodule_search_locations or ()), None)
    return Path(location) if location else None
