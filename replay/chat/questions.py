"""How the agent's questions are answered: by whoever sits at the terminal, or by a rule."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from replay.chat.forms import FormFiller
from replay.chat.keyboard import Keyboard
from replay.chat.protocol import Cancelled, Chosen, Form, FormAnswer, PermissionAnswer
from replay.chat.screen import Screen
from replay.printer import one_line
from replay.transcript_frames import Option, Permission

T = TypeVar("T")

NO_ANSWER = PermissionAnswer(Cancelled())
_WORDS = {"y": "allow", "yes": "allow", "n": "reject", "no": "reject"}


class Asker(Protocol):
    """Decides what the agent asks."""

    @property
    def fills_forms(self) -> bool:
        """Whether `form` can be answered at all."""
        ...

    async def permission(self, question: Permission, /) -> PermissionAnswer:
        """Whether a tool may run."""
        ...

    async def form(self, form: Form, /) -> FormAnswer:
        """What stands in a form."""
        ...

    def cancel(self) -> None:
        """The turn was cancelled: what is open is answered so."""
        ...


class Rule:
    """Nobody is there: every permission question gets a yes, or a no, if the agent offers one for once."""

    fills_forms = False

    def __init__(self, *, yes: bool) -> None:
        self._word = "allow" if yes else "reject"

    async def permission(self, question: Permission) -> PermissionAnswer:
        return _answer(_of_kind(question.options, self._word))

    async def form(self, _form: Form, /) -> FormAnswer:
        return FormAnswer("cancel")

    def cancel(self) -> None:
        """Nothing is ever open."""


class Person:
    """Puts questions at the terminal, one at a time. With `yes`, permission is given without asking."""

    fills_forms = True

    def __init__(self, keyboard: Keyboard, screen: Screen, *, yes: bool) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._rule = Rule(yes=True) if yes else None
        self._one_at_a_time = asyncio.Lock()
        self._open: set[asyncio.Task[Any]] = set()
        self._withdrawn: set[asyncio.Task[Any]] = set()

    async def permission(self, question: Permission) -> PermissionAnswer:
        if self._rule is not None:
            return await self._rule.permission(question)
        return await self._until_cancelled(self._choose(question.options), NO_ANSWER)

    async def form(self, form: Form) -> FormAnswer:
        return await self._until_cancelled(self._fill(form), FormAnswer("cancel"))

    def cancel(self) -> None:
        for task in self._open:
            self._withdrawn.add(task)
            task.cancel()

    async def choose(self, names: Sequence[str]) -> int | None:
        """Let one of several things be chosen by its number; its position, None without an answer."""
        options = [Option(str(number), name) for number, name in enumerate(names)]
        answer = await self._choose(options)
        return int(answer.outcome.option_id) if isinstance(answer.outcome, Chosen) else None

    async def _until_cancelled(self, work: Coroutine[Any, Any, T], cancelled: T) -> T:
        """Wait for an answer; `cancelled` when the turn is cancelled meanwhile."""
        task = asyncio.ensure_future(work)
        self._open.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if task in self._withdrawn:
                return cancelled
            raise
        finally:
            self._open.discard(task)
            self._withdrawn.discard(task)

    async def _choose(self, options: Sequence[Option]) -> PermissionAnswer:
        async with self._one_at_a_time:
            for number, option in enumerate(options, 1):
                self._screen.note(f"  {number}  {one_line(option.name or option.option_id)}")
            while True:
                line = await self._ask(f"choose [1-{len(options)}]: ")
                if line is None:
                    return NO_ANSWER
                chosen = _chosen(options, line.strip())
                if chosen is not None:
                    return _answer(chosen)
                self._screen.problem(f"a number from 1 to {len(options)}, please; Ctrl-C cancels the turn")

    async def _fill(self, form: Form) -> FormAnswer:
        async with self._one_at_a_time:
            return await FormFiller(self._ask, self._screen).fill(form)

    async def _ask(self, text: str) -> str | None:
        self._screen.prompt(text)
        line: str | None = None
        try:
            line = await self._keyboard.answer()
        finally:
            if line is None:
                self._screen.withdraw()
            else:
                self._screen.entered()
        return line


def _answer(option: Option | None) -> PermissionAnswer:
    return NO_ANSWER if option is None else PermissionAnswer(Chosen(option.option_id))


def _of_kind(options: Sequence[Option], word: str) -> Option | None:
    kinds = {option.kind: option for option in reversed(options)}
    return kinds.get(f"{word}_once") or kinds.get(f"{word}_always")


def _chosen(options: Sequence[Option], line: str) -> Option | None:
    if line.isdecimal() and 1 <= int(line) <= len(options):
        return options[int(line) - 1]
    word = _WORDS.get(line.lower())
    return _of_kind(options, word) if word is not None else None
