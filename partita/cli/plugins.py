"""A user's own Python file: its properties, selectors and patterns, and anything that it registers."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import partita as pt
from partita.graph.errors import ReadError, did_you_mean

MODULE = "partita_plugin"
"""Prefix of the module name of a plugin file; the file's name follows."""


def load_plugin(text: str) -> list[pt.SubgraphProperty]:
    """All properties of FILE.py, or only NAME of FILE.py:NAME; the file itself may register more."""
    path, _, wanted = text.partition(".py:")
    module = _run_file(path + ".py" if wanted else path)
    properties = dict(_properties(module))
    if not wanted:
        return list(properties.values())
    if wanted not in properties:
        known = ", ".join(properties) or "none"
        remedy = did_you_mean(wanted, properties) or f"It defines {known}"
        raise ReadError(f"it defines no property, selector or pattern {wanted!r}", where=module.__file__, remedy=remedy)
    return [properties[wanted]]


def _run_file(path: str) -> ModuleType:
    file = Path(path)
    if not file.is_file():
        raise ReadError("there is no such file", where=path, remedy="Give the path of a Python file, or FILE.py:NAME")
    name = f"{MODULE}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ReadError("this is not a Python file", where=path, remedy="Its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except pt.PartitaError:
        raise
    except (Exception, SystemExit) as error:
        line = _line_in(file, error)
        raise ReadError(
            f"it raises {type(error).__name__}: {error}", where=f"{path}{line}", remedy="Fix the file"
        ) from error
    return module


@contextmanager
def blaming(plugin: str | None) -> Iterator[None]:
    """A context that adds the line in the user's file to an error from it."""
    try:
        yield
    except pt.PartitaError as error:
        file = None if plugin is None else Path(plugin.partition(".py:")[0]).with_suffix(".py")
        reason: BaseException | None = error
        while file is not None and reason is not None:
            line = _line_in(file, reason)
            if line:
                where = f"{file}{line}: {error.where}" if error.where else f"{file}{line}"
                raise type(error)(error.cause, where=where, remedy=error.remedy) from error
            reason = reason.__cause__
        raise


def _line_in(file: Path, error: BaseException) -> str:
    """`:12`, the last line of the file that the error passed through."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    line, trace = "", error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _properties(module: ModuleType) -> Iterator[tuple[str, pt.SubgraphProperty]]:
    """Properties and selectors that the file itself defines, by name; a selector class is skipped if the file has properties."""
    defined = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    properties = [(name, value) for name, value in defined if _is_own(value, pt.SubgraphProperty, module)]
    for name, value in properties:
        yield name, value if isinstance(value, pt.SubgraphProperty) else _new_property(value, name, module)
    for name, value in defined:
        if isinstance(value, (pt.Pattern, pt.SubgraphSelector)):
            yield name, pt.PatternProperty(value, name)
        elif _is_own(value, pt.SubgraphSelector, module) and not properties:
            yield name, _SelectorProperty(value, name)


def _is_own(value: object, base: type, module: ModuleType) -> bool:
    if isinstance(value, base):
        return True
    return inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__


def _new_property(cls: type[pt.SubgraphProperty], name: str, module: ModuleType) -> pt.SubgraphProperty:
    try:
        return cls()
    except Exception as error:
        cause = f"{name}() raises {type(error).__name__}: {error}"
        raise ReadError(
            cause, where=module.__file__, remedy="A property that is named here takes no arguments"
        ) from error


class _SelectorProperty(pt.SubgraphProperty):
    """Creates a new selector of the class for each seed."""

    def __init__(self, cls: type[pt.SubgraphSelector], name: str) -> None:
        self.cls = cls
        self.name = name

    def create_subgraph_selector(self) -> pt.SubgraphSelector:
        return self.cls()
