"""Parsing of types, arrays and attribute values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.readers.text.lexer import Lexer
from partita.graph.sparse import SparseTensor
from partita.graph.text.arrays import array_type, element_count, from_base64, from_numbers, shaped
from partita.graph.text.digests import arrays_in, digest, remembered
from partita.graph.text.literals import MAX_NESTING
from partita.graph.text.words import unquoted, unquoted_bytes
from partita.graph.types import ELEMENT_TYPES, Array, Dim, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

Constants = Mapping[str, Array]

_SIMPLE_TYPE = re.compile(r"[a-z0-9_]+\[[A-Za-z0-9_, ?]*\]")
_INTEGERS = re.compile(r"\[-?[0-9]{1,18}(?:, ?-?[0-9]{1,18})*\]")

WORDS = {"true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan")}
"""Values written as words."""


class StatementReader:
    """Reads the parts of the text below statements."""

    def __init__(self, text: str, constants: Graph | Constants | None) -> None:
        self.lexer = Lexer(text)
        self.constants = constants
        self.depth = 0
        self._known: Constants | None = None
        self._types: dict[str, Type | None] = {}

    def nested(self, read: Callable[[], Any]) -> Any:
        """The result of `read`, one nesting level deeper."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.lexer.fail(f"graphs, lists or types nest more than {MAX_NESTING} deep")
        value = read()
        self.depth -= 1
        return value

    def name(self, what: str) -> str:
        """Reads a name, bare or quoted."""
        lexer = self.lexer
        if lexer.kind == "word":
            return lexer.advance()
        if lexer.kind == "string":
            return self.string()
        return lexer.expected(what)

    def string(self, what: str = "a string") -> str:
        """Reads a quoted string."""
        if self.lexer.kind != "string":
            self.lexer.expected(what)
        text = self.checked(unquoted, self.lexer.token)
        self.lexer.advance()
        return text

    def integer(self, what: str) -> int:
        """Reads an integer."""
        if self.lexer.kind != "int":
            self.lexer.expected(what)
        number = self.checked(int, self.lexer.token)
        self.lexer.advance()
        return number

    def checked(self, make: Callable[..., Any], *given: Any, start: int | None = None) -> Any:
        """The result of `make`; errors in it get the position in the text."""
        try:
            return make(*given)
        except PartitaError as error:
            self.lexer.fail(error.cause, start=start, remedy=error.remedy)
        except (ValueError, OverflowError) as error:
            self.lexer.fail(f"this is {error}", start=start)

    def listed(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Reads items separated by commas up to the closing mark; the last may be followed by a comma."""
        lexer = self.lexer
        items = []
        while not lexer.take(close):
            items.append(item())
            if not lexer.take(","):
                lexer.need(close)
                break
        return items

    def type(self) -> Type | None:
        """Reads a type, or `?`. Equal texts give the same object."""
        start = self.lexer.start
        simple = _SIMPLE_TYPE.match(self.lexer.text, start)
        if simple is not None and simple[0] in self._types:
            self.lexer.shortcut(_SIMPLE_TYPE)
            return self._types[simple[0]]
        spelled = self.spelled_type()
        return self._types.setdefault(self.lexer.text[start : self.lexer.before], spelled)

    def spelled_type(self) -> Type | None:
        """Reads a type token by token."""
        lexer = self.lexer
        if lexer.take("?"):
            return None
        if lexer.kind != "word":
            lexer.expected("a type")
        start, word = lexer.start, lexer.advance()
        if word in ("sequence", "optional", "sparse", "map") and lexer.take("("):
            return self.nested(lambda: self.compound(word, start))
        if word not in ELEMENT_TYPES:
            lexer.fail(f"{word!r} is not a dtype", start=start, remedy=f"Use one of {', '.join(sorted(ELEMENT_TYPES))}")
        shape = self.listed(self.dim, "]") if lexer.take("[") else None
        return self.checked(TensorType, word, shape, start=start)

    def compound(self, word: str, start: int) -> Type:
        """Reads the part of a type in parentheses."""
        if word == "map":
            key = self.name("the type of the keys")
            self.lexer.need(",")
        element = self.type()
        self.lexer.need(")")
        if word == "map":
            if key not in ELEMENT_TYPES:
                self.lexer.fail(f"{key!r} is not a dtype", start=start)
            return MapType(key, element)
        if word == "sparse":
            if not isinstance(element, TensorType):
                self.lexer.fail("a sparse tensor is one of a dense type: sparse(float32[3, 4])", start=start)
            return SparseTensorType(element.dtype, element.shape)
        return SequenceType(element) if word == "sequence" else OptionalType(element)

    def dim(self) -> Dim:
        """Reads a dimension."""
        if self.lexer.take("?"):
            return None
        return self.integer("") if self.lexer.kind == "int" else self.name("a dimension")

    def array(self) -> Array:
        """Reads an array: a static type, then the content."""
        lexer = self.lexer
        start = lexer.start
        array_type = self.type()
        if not isinstance(array_type, TensorType) or not array_type.is_static:
            lexer.fail("the type of a constant is a dtype with sizes, such as float32[2, 3]", start=start)
        if lexer.kind == "hash":
            return self.reference(array_type)
        start = lexer.start
        if lexer.at_word("base64"):
            lexer.advance()
            return self.checked(from_base64, array_type, self.string("the bytes in base64"), start=start)
        many = lexer.take("[")
        items = self.listed(lambda: self.element(array_type.dtype), "]") if many else [self.element(array_type.dtype)]
        if many != bool(array_type.shape) or len(items) != element_count(array_type):
            lexer.fail(f"{len(items)} elements do not make {array_type}", start=start)
        flat = self.checked(from_numbers, array_type.dtype, items, start=start)
        return self.checked(shaped, array_type, flat, start=start)

    def element(self, dtype: str) -> Any:
        """Reads one element of an array."""
        lexer = self.lexer
        if dtype == "string":
            return self.string_or_bytes("a string")
        if dtype == "bool":
            if not (lexer.at_word("true") or lexer.at_word("false")):
                lexer.expected("true or false")
            return lexer.advance() == "true"
        if "int" in dtype:
            return self.integer(f"an element of {dtype}")
        if dtype.startswith("complex"):
            lexer.need("(")
            real = self.number(dtype)
            lexer.need(",")
            number = complex(real, self.number(dtype))
            lexer.need(")")
            return number
        return self.number(dtype)

    def number(self, dtype: str) -> float:
        """Reads a number, integral or not."""
        lexer = self.lexer
        if lexer.kind not in ("int", "float") and lexer.token not in ("inf", "nan"):
            lexer.expected(f"an element of {dtype}")
        return float(lexer.advance())

    def string_or_bytes(self, what: str) -> str | bytes:
        """Reads "..." or b"..."."""
        if self.lexer.kind == "bytes":
            data: bytes = self.checked(unquoted_bytes, self.lexer.token)
            self.lexer.advance()
            return data
        return self.string(what)

    def reference(self, expected: TensorType) -> Array:
        """Reads a hash and returns its array."""
        sought = self.lexer.token[1:]
        if self.constants is None:
            array = remembered(sought)
            remedy = "Give the graph that was printed as constants=, or print with big=None to have arrays written in full"
        else:
            array = self.known.get(sought)
            remedy = "Give a graph or a mapping that holds it as constants="
        if array is None:
            self.lexer.fail(f"the array {self.lexer.token} is not known here", remedy=remedy)
        if not isinstance(array, np.ndarray) or array_type(array) != expected:
            self.lexer.fail(f"the array {self.lexer.token} is not a {expected}")
        self.lexer.advance()
        return array

    def sparse(self) -> SparseTensor:
        """Reads a sparse tensor: `(const values, const indices, [sizes])`."""
        lexer = self.lexer
        arrays = []
        lexer.need("(")
        for _ in range(2):
            if not lexer.at_word("const"):
                lexer.expected("const")
            lexer.advance()
            arrays.append(self.array())
            lexer.need(",")
        lexer.need("[")
        sizes = self.listed(lambda: self.integer("a size"), "]")
        lexer.need(")")
        return SparseTensor(arrays[0], arrays[1], tuple(sizes))

    @property
    def known(self) -> Constants:
        """The caller's arrays, by hash."""
        if self._known is None:
            given = self.constants
            if given is None or isinstance(given, Mapping):
                self._known = {key.lstrip("#"): array for key, array in (given or {}).items()}
            else:
                self._known = {digest(array): array for array in arrays_in(given)}
        return self._known

    def integers(self) -> list[int] | None:
        """Reads a list of integers, by far the most common list, in one step; None for anything else."""
        listed = self.lexer.shortcut(_INTEGERS)
        return None if listed is None else list(map(int, listed[1:-1].split(",")))

    def plain(self) -> Any:
        """Reads an attribute value other than a graph."""
        lexer = self.lexer
        if lexer.kind == "int":
            return self.integer("")
        if lexer.kind == "float":
            return float(lexer.advance())
        if lexer.kind in ("string", "bytes"):
            return self.string_or_bytes("")
        if lexer.kind == "word":
            if lexer.token in WORDS:
                return WORDS[lexer.advance()]
            if lexer.at_word("const"):
                lexer.advance()
                return self.array()
            if lexer.at_word("type"):
                lexer.advance()
                return self.type()
            if lexer.at_word("sparse"):
                lexer.advance()
                return self.sparse()
        return lexer.expected(
            "a value (a number, a string, true, false, none, a list, const ..., type ..., graph ..., func ...)"
        )
