"""Every public function, given arguments that make no sense: each is one PartitaError, never a traceback from the depths."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import partita as pt
from partita import names

RESULTS = {"AutoChoice", "CompiledModel", "Placement", "PrecisionPlan", "Diagnosis"}
"""Classes that functions return, and nobody makes."""

ODD = [None, 5, -1, float("nan"), "nonesuch", b"ab", [], {}, [None], {"a": None}, (1, 2), object()]
"""Arguments that few options can take."""

SIMPLE = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)), name="relu")], name="simple")
RIGHT = {**dict.fromkeys(("graph", "g", "subject", "model"), SIMPLE), **dict.fromkeys(("device", "devices"), "reference")}
"""Arguments that fit parameters of these names."""

LONG = {"auto", "bench", "choose_precision", "diagnose", "measure", "reduce", "tune"}
"""Functions that start long work, and whose options are left alone."""


def functions() -> list[str]:
    named = ((name, getattr(pt, name)) for name in names.__all__ if name not in RESULTS)
    return [name for name, one in named if callable(one) and not (inspect.isclass(one) and issubclass(one, BaseException))]


def required(function: Callable[..., Any]) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.default is one.empty and one.kind in positional]


def calls(name: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """The positional and keyword arguments of each call to try."""
    function = getattr(pt, name)
    needed = required(function)
    tried: list[tuple[list[Any], dict[str, Any]]] = []
    for odd in ODD if needed else []:
        tried.append(([odd] * len(needed), {}))
        if name != "bench":  # it measures for five seconds
            tried.append(([RIGHT.get(parameter, odd) for parameter in needed], {}))
    if name not in LONG and all(parameter in RIGHT for parameter in needed):
        options = [one.name for one in inspect.signature(function).parameters.values() if one.default is not one.empty]
        tried += [([RIGHT[parameter] for parameter in needed], {option: odd}) for option in options for odd in ODD]
    return tried


@pytest.mark.filterwarnings("ignore:choose_precision is given")
@pytest.mark.parametrize("name", functions())
def test_wrong_arguments(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for arguments, options in calls(name):
        try:
            getattr(pt, name)(*arguments, **options)
        except pt.PartitaError:
            pass
        except Exception as error:  # noqa: BLE001  the subject of the test
            wrong.append(f"{arguments!r:.60} {options!r:.60}: {type(error).__name__}: {error!s:.80}")
    assert not wrong, "\n".join(wrong)
