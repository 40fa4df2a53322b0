"""A model script's text as statements: words and JSON strings, comments gone, continued lines joined."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from acp_agent.providers.script_grammar import ScriptError


class Token(Struct, frozen=True):
    """A word or a JSON string. `raw` is how it stands in the file, `text` what it means."""

    line: int
    raw: str
    text: str
    quoted: bool


class Statement(Struct, frozen=True):
    """A directive, or an action of a call (`indented`) with the lines that continue it. Never without tokens."""

    line: int
    indented: bool
    tokens: list[Token]


def statements(data: bytes, file: str) -> list[Statement]:
    """All statements of a script. Raises `ScriptError` for what cannot be read as one.

    Lines end with LF or CRLF. A line at the left margin is a directive; the first indented line after it sets how
    far actions are indented. A line indented deeper continues the action above it, and so does an indented one that
    begins with a closing bracket, where people put those.
    """
    found: list[Statement] = []
    body = 0
    for number, line in enumerate(_text(data, file).split("\n"), 1):
        indent, tokens = _indent(line, number, file), list(_tokens(line, number, file))
        if not tokens:
            continue
        if indent == 0:
            body = 0
            found.append(Statement(number, False, tokens))
        elif body and (indent > body or tokens[0].raw[0] in "]}"):
            found[-1].tokens.extend(tokens)
        elif body in (0, indent):
            body = indent
            found.append(Statement(number, True, tokens))
        else:
            raise ScriptError(f"expected {body} spaces, as before the actions above, or none; found {indent}",
                              file=file, line=number)
    return found


def _text(data: bytes, file: str) -> str:
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise ScriptError("expected UTF-8 text, found other bytes", file=file, line=line) from None


def _indent(line: str, number: int, file: str) -> int:
    left = line[: len(line) - len(line.lstrip(" \t"))]
    if "\t" in left and line.strip():
        raise ScriptError("expected spaces before the first word, found a tab", file=file, line=number)
    return len(left)


def _tokens(line: str, number: int, file: str) -> Iterator[Token]:
    at, end = 0, len(line)
    while at < end:
        letter = line[at]
        if letter in " \t\r":
            at += 1
        elif letter == "#":  # only where a token could begin: a#b is a word
            return
        elif letter == '"':
            close = _closing_quote(line, at, number, file)
            raw = line[at:close]
            yield Token(number, raw, _string(raw, number, file), True)
            at = close
        else:
            close = at + 1
            while close < end and line[close] not in ' \t\r"':
                close += 1
            yield Token(number, line[at:close], line[at:close], False)
            at = close


def _closing_quote(line: str, opening: int, number: int, file: str) -> int:
    """The position after the string that begins at `opening`."""
    at = opening + 1
    while at < len(line):
        if line[at] == '"':
            return at + 1
        at += 2 if line[at] == "\\" else 1
    raise ScriptError(f"expected a closing quote for {_short(line[opening:])}", file=file, line=number)


def _string(raw: str, number: int, file: str) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError as error:
        why = reason(error)
        raise ScriptError(f"expected a JSON string, found {_short(raw)} ({why})", file=file, line=number) from None


def reason(error: Exception) -> str:
    """A JSON error's cause, without the byte it counted to: that is not where the file has it."""
    return str(error).partition(" (byte ")[0]


def _short(raw: str) -> str:
    return raw if len(raw) <= 40 else raw[:37] + "..."
