"""How names, strings and bytes are spelled, at the ends of what is spelled as it is."""

from __future__ import annotations

import pytest

from partita.graph.text.words import quoted, quoted_bytes, unquoted, unquoted_bytes, word

STRINGS = {
    "": '""', "plain words": '"plain words"', "é → 中": '"é → 中"', 'a "b"': r'"a \"b\""', "a\\b": r'"a\\b"',
    "\n\t\r": r'"\n\t\r"', "é\n": r'"é\n"', "\x00\x1f~\x7f": r'"\u{0}\u{1f}~\u{7f}"', "\u2028": r'"\u{2028}"',
    "\U0010ffff": r'"\u{10ffff}"',
    "\ud800": r'"\u{d800}"',
}
BYTES = {
    b"": 'b""', b" ~": 'b" ~"', b"\x1f\x7f\x80\xff\x00": r'b"\x1f\x7f\x80\xff\x00"', b'"\\\n\t\r': r'b"\"\\\n\t\r"',
    b"Az09": 'b"Az09"',
}


@pytest.mark.parametrize("text", STRINGS)
def test_strings(text: str) -> None:
    assert quoted(text) == STRINGS[text]
    assert unquoted(STRINGS[text]) == text


@pytest.mark.parametrize("data", BYTES)
def test_bytes(data: bytes) -> None:
    assert quoted_bytes(data) == BYTES[data]
    assert unquoted_bytes(BYTES[data]) == data


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("conv1.weight_", "conv1.weight_"), ("_a", "_a"), ("Z", "Z"), ("_", '"_"'), ("", '""'), ("1a", '"1a"'), (".a", '".a"'),
        ("a-b", '"a-b"'), ("a\n", r'"a\n"'), ("é", '"é"'),
    ],
)
def test_names(name: str, spelled: str) -> None:
    assert word(name) == spelled


def test_escapes_that_people_write() -> None:
    assert unquoted(r'"\x41\xe9\u{4e2d}\u{41}"') == "Aé中A"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (r'"\u{110000}"', r"the escape \u{110000}, which is not a character"), (r'"\q"', r"the escape \q, which does not exist"),
        (r'"\u{1000000}"', r"the escape \u, which does not exist"), (r'"\u41"', r"the escape \u, which does not exist"),
        (r'"\xe"', r"the escape \x, which does not exist"), (r'"\xEE"', r"the escape \x, which does not exist"),
    ],
)
def test_escapes_that_are_none(token: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        unquoted(token)
    assert str(caught.value) == said


def test_a_character_that_is_no_byte() -> None:
    assert unquoted_bytes(r'b"\u{ff}"') == b"\xff"
    with pytest.raises(ValueError, match=r"a character that is not a byte \(write \\x and two hexadecimal digits\)"):
        unquoted_bytes(r'b"\u{100}"')
