"""Checks the form of untrusted JSON data once, when it is read."""

from __future__ import annotations

import sys
from typing import Any

Form = type | list[Any] | dict[Any, Any]
"""`str`, `int`, `bool`, or `float` for any finite number; `[form]` for a list of such values; `{name: form}` for a table with at
least these names, `{str: form}` for one with any names."""


def form_error(value: Any, form: Form, path: str = "") -> str | None:
    """The first part of the value that has another form, in words; None if the form is right."""
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{path or 'it'} is not a list"
        parts = [(item, form[0], f"{path}[{number}]") for number, item in enumerate(value)]
    elif isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{path or 'it'} is not a table"
        wanted = dict.fromkeys(value, form[str]) if str in form else form
        missing = next((name for name in wanted if name not in value), None)
        if missing is not None:
            return f"{path or 'it'} has no {missing!r}"
        parts = [(value[name], inner, f"{path}.{name}".lstrip(".")) for name, inner in wanted.items()]
    else:
        return None if _is(value, form) else f"{path or 'it'} is {value!r:.40}, which is not {_WORDS[form]}"
    return next((error for part in parts if (error := form_error(*part)) is not None), None)


_WORDS = {str: "text", int: "an integer", float: "a finite number", bool: "a truth value"}


def _is(value: Any, form: type) -> bool:
    if form is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    return type(value) is form
