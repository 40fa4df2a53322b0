"""The words of one statement, taken from left to right; whatever does not fit is an error with its line."""

from __future__ import annotations

from collections.abc import Iterable

from acp_agent.providers.script_grammar import ScriptError
from acp_agent.providers.script_lexer import Statement, Token

_DIGITS = 9


class Words:
    """A cursor over a statement's tokens."""

    def __init__(self, statement: Statement, file: str) -> None:
        self.line = statement.line
        self._file = file
        self._tokens = statement.tokens
        self._at = 0

    # -- looking

    @property
    def done(self) -> bool:
        """Whether every word was taken."""
        return self._at == len(self._tokens)

    @property
    def quoted(self) -> bool:
        """Whether a JSON string comes next."""
        return not self.done and self._tokens[self._at].quoted

    def next_is(self, word: str) -> bool:
        """Whether this bare word comes next."""
        return not self.done and not self.quoted and self._tokens[self._at].raw == word

    # -- taking

    def keyword(self, known: Iterable[str]) -> str:
        """The first word, where it is one of those known; else "" and nothing is taken."""
        for word in known:
            if self.option(word):
                return word
        return ""

    def option(self, word: str) -> bool:
        """Take this bare word if it comes next."""
        taken = self.next_is(word)
        self._at += taken
        return taken

    def must(self, word: str) -> None:
        """Take this bare word."""
        if not self.option(word):
            raise self.wrong(f"`{word}`")

    def name(self, meaning: str) -> str:
        """A bare word, or a JSON string that is not empty."""
        if self.done or not self._tokens[self._at].text:
            raise self.wrong(meaning)
        return self._take().text

    def number(self, meaning: str, least: int = 0) -> int:
        """A whole number of at most nine digits."""
        text = "" if self.done or self.quoted else self._tokens[self._at].text
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) >= least):
            raise self.wrong(f"{meaning}, a whole number" + (f" from {least} up" if least else ""))
        self._at += 1
        return int(text)

    def index(self) -> int:
        """A number in brackets if one comes next, else 0."""
        text = "" if self.done or self.quoted else self._tokens[self._at].text
        inner = text[1:-1]
        if not (text == f"[{inner}]" and inner.isascii() and inner.isdigit() and len(inner) <= _DIGITS):
            return 0
        self._at += 1
        return int(inner)

    def string(self, meaning: str) -> str:
        """A JSON string."""
        if not self.quoted:
            raise self.wrong(meaning)
        return self._take().text

    def strings(self, meaning: str) -> list[str]:
        """One JSON string or more."""
        found = [self.string(meaning)]
        while self.quoted:
            found.append(self._take().text)
        return found

    def rest(self) -> str:
        """Everything left as it stands in the file, save for white space and comments."""
        raw = " ".join(token.raw for token in self._tokens[self._at:])
        self._at = len(self._tokens)
        return raw

    def end(self) -> None:
        """Nothing may be left."""
        if not self.done:
            raise self.wrong("the end of the line")

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    # -- errors

    def wrong(self, expected: str) -> ScriptError:
        """The next word is not what was expected."""
        found = "the end of the line" if self.done else self._tokens[self._at].raw
        line = (self._tokens[-1] if self.done else self._tokens[self._at]).line
        return ScriptError(f"expected {expected}, found {found}", file=self._file, line=line)

    def unknown(self, where: str, known: Iterable[str]) -> ScriptError:
        """The next word is none of those known."""
        return self.wrong(f"{where} {', '.join(known)}")

    def error(self, message: str) -> ScriptError:
        """The whole statement is wrong."""
        return ScriptError(message, file=self._file, line=self.line)
