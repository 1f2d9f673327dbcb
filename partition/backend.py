"""Backends: named, ordered lists of property factories."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import attrs

from partita.graph.errors import did_you_mean
from partita.partition.errors import PartitionError, hook_error, not_a, raised
from partita.partition.property import SubgraphProperty

PropertyFactory = Callable[[], SubgraphProperty]
"""A property class, or a function without arguments that makes a property."""

_backends: dict[str, list[PropertyFactory]] = {}


@attrs.frozen(slots=True)
class BackendSource:
    """A source of backends that need no registration, looked up on demand: the devices."""

    names: Callable[[], Iterable[str]]
    """Returns the names of all of them."""
    factory: Callable[[str], PropertyFactory]
    """Returns the factory of one of them."""


_sources: list[BackendSource] = []


def add_backend_source(source: BackendSource) -> None:
    """Adds a source of backends; a registered backend of the same name takes precedence."""
    _sources.append(source)


def register_property(backend: str, *factories: PropertyFactory) -> None:
    """Adds factories to the end of a backend's list; a new name makes a new backend.

    A class or function of a module that is defined again (a notebook's cell run twice) replaces its earlier definition."""
    if not isinstance(backend, str) or not backend:
        raise PartitionError(f"{backend!r} does not name a backend", remedy='Write register_property("mybackend", MyProperty)')
    for factory in factories:
        if isinstance(factory, SubgraphProperty) or not callable(factory):
            raise PartitionError(
                f"{factory!r} makes no properties",
                where=f"backend {backend!r}",
                remedy="Register the class, or a function that returns a new property: every run gets a fresh one",
            )
    if backend not in _backends and any(backend in source.names() for source in _sources):
        warn_of_two(backend)
    listed = _backends.setdefault(backend, [])
    for factory in factories:
        same = [i for i, known in enumerate(listed) if _origin(known) == _origin(factory)]
        if same:
            listed[same[0]] = factory
        else:
            listed.append(factory)


def has_properties(backend: str) -> bool:
    """True if properties are registered under this name."""
    return backend in _backends


def warn_of_two(name: str) -> None:
    """Warns that the name stands for a device and for registered properties."""
    warnings.warn(
        f"{name!r} is a device, and has registered properties too: PartitionGraph cuts by these with backend={name!r},"
        " and compile by what the device supports. Match patterns for compile in the device's transform",
        stacklevel=3,
    )


def unregister_property(backend: str, factory: PropertyFactory | None = None) -> None:
    """Removes one factory from a backend, or the whole backend."""
    listed = _known(backend)
    if backend not in _backends:
        raise PartitionError("it is a device, which was not registered as a backend", where=f"backend {backend!r}")
    if factory is None:
        del _backends[backend]
        return
    if factory not in listed:
        raise PartitionError(f"it has no factory {factory!r}", where=f"backend {backend!r}")
    listed.remove(factory)
    if not listed:
        del _backends[backend]


def list_backends() -> tuple[str, ...]:
    """The names of all backends, sorted."""
    return tuple(sorted({*_backends, *(name for source in _sources for name in source.names())}))


def list_properties(backend: str) -> tuple[PropertyFactory, ...]:
    """A backend's factories in order."""
    return tuple(_known(backend))


def make_properties(backend: str) -> list[SubgraphProperty]:
    """A new property from each of a backend's factories."""
    properties = []
    for factory in _known(backend):
        title = getattr(factory, "__name__", repr(factory))
        try:
            fresh = factory()
        except Exception as error:
            raise hook_error(title, "factory", f"backend {backend!r}", raised(error)) from error
        if not isinstance(fresh, SubgraphProperty):
            raise hook_error(title, "factory", f"backend {backend!r}", not_a("a SubgraphProperty", fresh))
        properties.append(fresh)
    return properties


def _known(backend: str) -> list[PropertyFactory]:
    if not isinstance(backend, str):
        raise PartitionError(f"a backend is named by a string, not by {backend!r:.80}")
    if backend not in _backends:
        for source in _sources:
            if backend in source.names():
                return [source.factory(backend)]
        known = ", ".join(list_backends()) or "none"
        hint = did_you_mean(str(backend), list_backends()) or 'Register one with register_property("name", MyProperty)'
        raise PartitionError(f"there is no backend {backend!r}; known are: {known}", remedy=hint)
    return _backends[backend]


def _origin(factory: PropertyFactory) -> object:
    name = getattr(factory, "__qualname__", None)
    return factory if name is None or "<" in name else (getattr(factory, "__module__", None), name)
