"""Properties that are computed on first access, and lazy imports of a package's names: importing the package loads only what most
programs need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):
    """A property whose value is computed once and kept in the object. Two threads may compute it at the same time, with equal
    results.

    functools.cached_property of Python 3.11 holds a lock meanwhile, which a process forked at that moment would never get."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for the package that imports each name from the module that defines it; `homes` lists by module the names,
    with spaces between them."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return __getattr__
