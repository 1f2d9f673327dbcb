"""The text form as a stream of tokens; one token is looked at, none is kept."""

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
    """A cursor over the text that stands on one token."""

    __slots__ = ("text", "kind", "token", "start", "end", "before")

    def __init__(self, text: str) -> None:
        self.text = text
        self.kind = ""
        """What the token is: word, string, bytes, int, float, hash, mark, end or bad."""
        self.token = ""
        """The token as it is written."""
        self.start = 0
        """Where it begins."""
        self.end = 0
        """Where it ends."""
        self.before = 0
        """Where the token before it ended."""
        self.advance()

    def advance(self) -> str:
        """Go to the next token; returns the one left behind."""
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
        """Go past all that the pattern matches from here, in one step; None if it does not match."""
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
        """Is the token the first of its line?"""
        return self.text.find("\n", self.before, self.start) >= 0

    def at(self, mark: str) -> bool:
        """Is the token this mark?"""
        return self.token == mark and self.kind == "mark"

    def at_word(self, word: str) -> bool:
        """Is the token this (unquoted) word?"""
        return self.token == word and self.kind == "word"

    def take(self, mark: str) -> bool:
        """Go past this mark if the token is it."""
        if self.token == mark and self.kind == "mark":
            self.advance()
            return True
        return False

    def need(self, mark: str) -> None:
        """Go past this mark, which must be here."""
        if not self.take(mark):
            self.expected(repr(mark))

    def expected(self, what: str) -> NoReturn:
        """The error that something else should stand here."""
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
