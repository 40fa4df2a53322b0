"""The words of a subcommand: its flags and operands, told from one description that `--help` is made from too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from acp_agent.errors import SettingsError
from acp_agent.settings import CONFIG, SETTINGS, within_one_edit

PROGRAM = "acp-agent sessions"


class Flag(Struct, frozen=True):
    """A flag. Without a `metavar` it takes no value."""

    name: str
    metavar: str
    meaning: str


STORE = (
    *(Flag(setting.flag, setting.allowed, setting.meaning) for setting in SETTINGS if setting.attribute == "store"),
    Flag(CONFIG.flag, CONFIG.allowed, "the TOML file that may say so"),
)
"""Every subcommand has these: they name the store, as they do for serving."""


class Usage(Struct, frozen=True):
    """How a subcommand is called. `operands` are named as in its usage line: `ID OUT`, or `ID...` for one or more."""

    name: str
    operands: str
    summary: str
    flags: Sequence[Flag] = ()
    teaching: str = ""

    @property
    def line(self) -> str:
        """What is typed."""
        flags = [f"[{flag.name} {flag.metavar}]" if flag.metavar else f"[{flag.name}]" for flag in self.flags]
        return " ".join(part for part in (PROGRAM, self.name, self.operands, *flags) if part)

    def help(self) -> str:
        """What `--help` prints."""
        rows = [f"  {' '.join((flag.name, flag.metavar)).strip():<16}  {flag.meaning}" for flag in self.flags]
        store = [f"  {flag.name} {flag.metavar}\n  {'':<16}  {flag.meaning}" for flag in STORE]
        parts = [f"usage: {self.line}", self.summary, "\n".join(rows + store), self.teaching.strip("\n")]
        return "\n\n".join(part for part in parts if part)


class Given(Struct, frozen=True):
    """What was typed: operands in order, and flags with their values ("" for one that takes none)."""

    operands: Sequence[str]
    flags: Mapping[str, str]

    def has(self, flag: str) -> bool:
        return flag in self.flags

    @property
    def settings(self) -> dict[str, str]:
        """The flags that are settings."""
        return {flag.name: self.flags[flag.name] for flag in STORE if flag.name in self.flags}


def parse(usage: Usage, words: Sequence[str]) -> Given:
    """The words behind a subcommand's name. Raises `SettingsError` naming the word that is wrong."""
    operands: list[str] = []
    flags: dict[str, str] = {}
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word == "--":
            operands += reversed(left)
            break
        if not word.startswith("-"):
            operands.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = _flag(usage, name)
        if flag.metavar and not equals:
            if not left or left[-1].startswith("--"):
                raise _wrong(usage, f"{name} needs a value: {flag.metavar}")
            value = left.pop()
        elif equals and not flag.metavar:
            raise _wrong(usage, f"{name} takes no value")
        flags[name] = value
    _check_number(usage, operands)
    return Given(operands, flags)


def whole_number(given: Given, flag: str, usage: Usage) -> int | None:
    """A flag's value as a number from 1 up; None when it was not given. Raises `SettingsError`."""
    text = given.flags.get(flag)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text)):
        raise _wrong(usage, f"{flag}: {text!r} is not allowed; allowed: a whole number from 1 up")
    return int(text)


def _flag(usage: Usage, name: str) -> Flag:
    every = (*usage.flags, *STORE)
    for flag in every:
        if flag.name == name:
            return flag
    near = next((flag.name for flag in every if within_one_edit(name.lower(), flag.name)), None)
    advice = f"did you mean {near}?" if near else "write -- before a word that begins with -"
    raise _wrong(usage, f"unknown flag {name}; {advice}")


def _check_number(usage: Usage, operands: Sequence[str]) -> None:
    names = usage.operands.split()
    if len(operands) < len(names):
        raise _wrong(usage, f"{names[len(operands)].removesuffix('...')} is missing")
    if len(operands) > len(names) and not usage.operands.endswith("..."):
        raise _wrong(usage, f"{operands[len(names)]!r} is one word too many")


def _wrong(usage: Usage, message: str) -> SettingsError:
    return SettingsError(f"sessions {usage.name}: {message} (usage: {usage.line})")
