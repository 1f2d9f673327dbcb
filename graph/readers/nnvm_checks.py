"""Checks for readers of NNVM's JSON form, which trust nothing in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from partita.graph import nnvm
from partita.graph.errors import PartitaError, ReadError
from partita.graph.types import TensorType, Type


def refuse(cause: str, where: str) -> NoReturn:
    raise ReadError(cause, where=where, remedy="Is the file one that SaveJSON, NNVM or MXNet wrote?")


def of_kind(kind: type | tuple[type, ...], value: Any, what: str, where: str) -> Any:
    """The value, checked to be of this kind (booleans are no numbers)."""
    if not isinstance(value, kind) or isinstance(value, bool):
        refuse(f"{what} is expected, not {str(value)!r:.40}", where)
    return value


def a_list(value: Any, where: str) -> list[Any]:
    return of_kind(list, value, "a list", where)


def an_index(value: Any, limit: int, where: str) -> int:
    """An integer, checked to be below the limit."""
    if not 0 <= of_kind(int, value, "a number", where) < limit:
        refuse(f"the number {value} is not below {limit}", where)
    return value


def checked(where: str, make: Callable[..., Any], *given: Any) -> Any:
    """The result of `make`; errors in it get the position in the file."""
    try:
        return make(*given)
    except PartitaError as error:
        inner = f" ({error.where})" if error.where else ""
        raise ReadError(error.cause + inner, where=where, remedy=error.remedy) from None
    except ValueError as error:
        refuse(str(error), where)


def in_pairs(texts: list[str], where: str) -> dict[str, str]:
    """The mapping in a list of alternating keys and values."""
    if len(texts) % 2:
        refuse("a key has no value", where)
    return dict(zip(texts[::2], texts[1::2], strict=True))


class GraphAttributes:
    """The tagged attributes of a graph: {"name": [tag, value]}."""

    def __init__(self, section: Any, where: str) -> None:
        self.section = of_kind(dict, section, "an object", f"{where}.attrs")
        self.where = f"{where}.attrs"
        self.ours = nnvm.FORM in self.section
        if self.ours and self.integer(nnvm.FORM) != nnvm.FORM_VERSION:
            raise ReadError(
                f"this is version {self.integer(nnvm.FORM)} of the form; version {nnvm.FORM_VERSION} is known here",
                where=self.where,
                remedy="Read it with the Partita that wrote it, or a newer one",
            )

    def tagged(self, key: str, kind: type) -> Any:
        pair = a_list(self.section.get(key), f"{self.where}.{key}")
        if len(pair) != 2:
            refuse("a graph attribute is a tag and a value", f"{self.where}.{key}")
        return of_kind(kind, pair[1], f"a value of the kind {kind.__name__}", f"{self.where}.{key}")

    def integer(self, key: str) -> int:
        return self.tagged(key, int)

    def string(self, key: str) -> str:
        return self.tagged(key, str)

    def strings(self, key: str) -> list[str]:
        return [of_kind(str, item, "a string", f"{self.where}.{key}") for item in self.tagged(key, list)]

    def integers(self, key: str) -> list[int]:
        return [of_kind(int, item, "a number", f"{self.where}.{key}") for item in self.tagged(key, list)]

    def shapes_and_dtypes(self, total: int) -> list[Type | None] | None:
        """Types from NNVM's own "shape" and "dtype", if both are present, one per value."""
        if "shape" not in self.section or "dtype" not in self.section:
            return None
        shapes = [a_list(shape, f"{self.where}.shape") for shape in self.tagged("shape", list)]
        dtypes = self.integers("dtype")
        if not len(shapes) == len(dtypes) == total:
            refuse(f"{len(shapes)} shapes and {len(dtypes)} dtypes for {total} values", self.where)
        types: list[Type | None] = []
        for shape, dtype in zip(shapes, dtypes, strict=True):
            dims = [None if of_kind(int, dim, "a size", f"{self.where}.shape") < 0 else dim for dim in shape]
            types.append(TensorType(nnvm.DTYPES[dtype], dims or None) if 0 <= dtype < len(nnvm.DTYPES) else None)
        return types
