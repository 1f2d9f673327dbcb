"""Are the packages that Python finds ours? Their names are plain words, so that a user's own file can bear one of them.

A file that only lies there (the script that runs is called `partition.py`, say) is passed by: ours are found beside `partita`.
But Python keeps one module for each name. So where code beside such a file imports the name, nobody could say which of the two it
means, and that is an error, as it is if theirs was imported before `partita`."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = ("graph", "passes", "partition", "accelerators")
"""The packages that stand beside this one."""

HOUSE = Path(__file__).resolve().parent.parent
"""Where they stand."""


class ShadowedPackage(ImportError):
    """A file of the user's bears the name of one of Partita's packages."""


def check_house() -> None:
    """See to it that our own imports find our packages; ShadowedPackage if others of their names are loaded."""
    shadows = {}
    for package in PACKAGES:
        location = _location(package)
        if location is None or location.resolve() == (HOUSE / package / "__init__.py").resolve():
            continue
        if package in sys.modules:
            raise _shadowed(package, location, "was imported before partita")
        shadows[package] = location
    if shadows:
        sys.meta_path.insert(0, _Finder(tuple(shadows)))
        builtins.__import__ = _guarding(builtins.__import__, shadows)


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


class _Finder:
    """Finds these packages beside `partita`, whatever stands before them on the path. It has no base: importing importlib.abc
    takes longer than all else that `import partita` does."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.packages:
            return None
        folder = HOUSE / name
        return importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


Import = Callable[..., ModuleType]


def _guarding(python_s: Import, shadows: Mapping[str, Path]) -> Import:
    """Python's own import, but an error for code beside a file that bears the name of a package, if it asks for that name."""
    folders = {package: location.resolve().parent for package, location in shadows.items()}

    def guarded(
        name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        package = name.partition(".")[0]
        if level == 0 and package in folders and _stands_in(folders[package], globals or {}):
            raise _shadowed(package, shadows[package], "stands beside the code that imports it")
        return python_s(name, globals, locals, fromlist, level)

    return guarded


def _stands_in(folder: Path, module: Mapping[str, Any]) -> bool:
    """Is the module a file in that folder, or no file at all, as what a notebook or the interpreter's own prompt runs?"""
    if module.get("__file__") is None:
        return module.get("__name__") == "__main__"
    path = Path(module["__file__"]).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_relative_to(folder) and not path.is_relative_to(HOUSE) and not installed


def _shadowed(package: str, location: Path, why: str) -> ShadowedPackage:
    return ShadowedPackage(
        f"{package!r} is the name of a package of Partita's and of {location}, which {why}\n"
        f"  Rename that file or folder, or run Python where it is not on sys.path (ours is in {HOUSE / package})."
    )
