"""The text form as a stream of tokens, of which only the current one is held."""

from __future__ import annotations

import re
from typing import NoReturn

from partita.graph.errors import ReadError

_TOKEN = re.compile(
    r"""(?:[ \t\r\n]|//[^\n]*)*
    (?: (?P<bytes>b"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<float>-?(?:[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)|-inf|-nan)
      | (?P<int>-?[0-9]+)
      | (?P<hash>\#[0-9a-f]+)
      | (?P<mark>->|::|[(){}\[\],:=@%?])
      | (?P<end>\Z)
      | (?P<bad>.) )""",
    re.VERBOSE,
)

_KINDS = ["", *_TOKEN.groupindex]


class Lexer:
    """A cursor over the text, positioned at one token."""

    __slots__ = ("text", "kind", "token", "start", "end", "before")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind = ""
        """The kind of token: word, string, bytes, int, float, hash, mark, end or bad."""
        self.token = ""
        """The token as it is written."""
        self.start = 0
        """Its start."""
        self.end = 0
        """Its end."""
        self.before = 0
        """The end of the previous token."""
        self.advance()

    def advance(self) -> str:
        """Advances to the next token and returns the previous one."""
        left = self.token
        self.before = self.end
        match = _TOKEN.match(self.text, self.end)
        assert match is not None and match.lastindex is not None  # the last alternative takes anything
        which = match.lastindex
        self.kind = _KINDS[which]
        self.token = match[which]
        self.start, self.end = match.span(which)
        return left

    def shortcut(self, pattern: re.Pattern[str]) -> str | None:
        """Skips the match of the pattern at the current position and returns it; None if there is none."""
        match = pattern.match(self.text, self.start)
        if match is None:
            return None
        self.end = match.end()
        self.advance()
        return match[0]

    def following(self) -> str:
        """The token after this one."""
        match = _TOKEN.match(self.text, self.end)
        assert match is not None and match.lastindex is not None
        return match[match.lastindex]

    @property
    def on_new_line(self) -> bool:
        """True if the token is the first of its line."""
        return self.text.find("\n", self.before, self.start) >= 0

    def at(self, mark: str) -> bool:
        """True if the token is this mark."""
        return self.token == mark and self.kind == "mark"

    def at_word(self, word: str) -> bool:
        """True if the token is this (unquoted) word."""
        return self.token == word and self.kind == "word"

    def take(self, mark: str) -> bool:
        """Skips this mark, if it is the current token."""
        if self.token == mark and self.kind == "mark":
            self.advance()
            return True
        return False

    def need(self, mark: str) -> None:
        """Skips this mark, or raises."""
        if not self.take(mark):
            self.expected(repr(mark))

    def expected(self, what: str) -> NoReturn:
        """Raises an error for an unexpected token."""
        shown = {"end": "the end of the text"}.get(self.kind) or repr(self.token[:40])
        if self.token == '"':
            shown = "a string that does not end on its line"
        self.fail(f"expected {what}, found {shown}")

    def fail(self, cause: str, *, start: int | None = None, remedy: str | None = None) -> NoReturn:
        """Raise an error at the current token, or at the earlier position `start`."""
        raise ReadError(cause, where=self.location(start), remedy=remedy)

    def location(self, start: int | None = None) -> str:
        """The line and column of a position in the text."""
        at = self.start if start is None else start
        line_start = self.text.rfind("\n", 0, at) + 1
        return f"line {self.text.count(chr(10), 0, at) + 1}, column {at - line_start + 1}"
