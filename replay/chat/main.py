"""Puts the chat together: the agent, whoever sits at the terminal, signals, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Raw, Struct

from replay.chat.contract import AgentGone
from replay.chat.keyboard import Keyboard
from replay.chat.link import Link, open_link
from replay.chat.options import HELP, Options, parse
from replay.chat.questions import Asker, Person, Rule
from replay.chat.screen import JsonLines, Readable, Screen, plain_console
from replay.chat.services import Services
from replay.chat.talk import CannotTalk, Talk
from replay.failures import CannotStart

MARK = "ACP_CHAT_RUN"
"""A variable of the agent's environment, by which the processes it leaves behind are found."""

_PROMPT, _MORE = "> ", ". "


def main(words: Sequence[str]) -> int:
    """`acp-agent chat`; the exit status. Raises `SettingsError` for a wrong command line."""
    options = parse(words, Path.cwd())
    if options.help:
        sys.stdout.write(f"{HELP}\n")
        return 0
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # takes the number of the stdin that was closed
    return asyncio.run(Chat(options).run())


class Chat:
    """One run of the command."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._keyboard = Keyboard(0, self._at_once)
        self._typed = self._keyboard.is_terminal and options.prompt is None and not options.json
        self._screen: Screen = (
            JsonLines(sys.stdout, self._unread) if options.json
            else Readable(plain_console(sys.stdout, self._unread), options.wire, typed=self._typed))
        self._asker: Asker = (
            Person(self._keyboard, self._screen, yes=options.yes) if self._typed else Rule(yes=options.yes))
        self._services: Services | None = None
        self._link: Link | None = None
        self._talk: Talk | None = None
        self._work: asyncio.Task[None] | None = None
        self._idle = False
        self._warned = False
        self._nobody_reads = False

    async def run(self) -> int:
        """Chat until the end; the exit status."""
        mark = secrets.token_hex(8)
        environ = {**os.environ, MARK: mark}
        options = self._options
        with tempfile.TemporaryDirectory(prefix="acp-chat-") as folder, self._signals():
            self._services = Services(
                options.cwd, Path(folder, "terminals"), environ, self._asker, self._screen.terminal_output)
            try:
                async with open_link(
                    options.agent, cwd=Path.cwd(), environ=environ, marks=frozenset({f"{MARK}={mark}".encode()}),
                    directory=Path(folder), observer=self._screen, client=self,
                ) as self._link:
                    status = await self._talk_through(self._link)
            except CannotStart as failure:
                self._screen.problem(failure.problem)
                status = 1
            finally:
                self._services.close()
        self._screen.ended(status)
        return status

    # -- the link's client

    async def serve(self, method: str, params: Raw) -> Struct:
        assert self._services is not None
        return await self._services.serve(method, params)

    def child_ended(self) -> None:
        assert self._services is not None
        self._services.look()

    def gone(self, how: AgentGone) -> None:
        self._keyboard.fail(how)

    # -- the conversation

    async def _talk_through(self, link: Link) -> int:
        self._talk = Talk(link, self._screen, self._asker, self._options.cwd)
        self._work = asyncio.create_task(self._converse(self._talk))
        if self._nobody_reads:
            self._work.cancel()
        await asyncio.wait((self._work,))
        if self._work.cancelled():
            return 0 if self._typed and self._idle else 1
        failure = self._work.exception()
        if isinstance(failure, AgentGone | CannotTalk):
            self._screen.problem(str(failure))
            return 1
        if failure is not None:
            raise failure
        return 0 if self._typed or self._talk.all_ended_well else 1

    async def _converse(self, talk: Talk) -> None:
        if self._options.prompt is not None:
            await talk.start()
            await talk.prompt(self._options.prompt)
            return
        with self._keyboard:
            await talk.start()
            if self._typed:
                self._screen.note("type a prompt; /help lists commands, Ctrl-D ends")
            while (line := await self._next()) is not None and await talk.obey(line):
                pass

    async def _next(self) -> str | None:
        """The next prompt or command; None at the end of input."""
        self._idle = True
        line = await self._read(_PROMPT)
        while line is not None and line.endswith("\\"):
            more = await self._read(_MORE)
            line = line[:-1] if more is None else f"{line[:-1]}\n{more}"
        self._idle = self._warned = False
        return line

    async def _read(self, prompt: str) -> str | None:
        if not self._typed:
            return await self._keyboard.line()
        if self._keyboard.ahead:
            line = await self._keyboard.line()
            self._screen.note(f"{prompt}{line}")
            return line
        self._screen.prompt(prompt)
        line = None
        try:
            line = await self._keyboard.line()
        finally:
            if line is None:
                self._screen.withdraw()
            else:
                self._screen.entered()
        return line

    def _at_once(self, line: str) -> bool:
        return self._talk is not None and self._talk.at_once(line)

    # -- signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._quit)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        if self._talk is not None and self._talk.cancel():
            self._screen.note("cancelling; Ctrl-C again ends the agent")
        elif self._typed and self._idle and not self._warned:
            self._warned = True
            self._screen.note("Ctrl-D, /quit or Ctrl-C again ends")
        else:
            self._quit()

    def _unread(self) -> None:
        """Nobody reads our output any more."""
        self._idle = False
        self._nobody_reads = True
        if self._work is not None:
            self._work.cancel()

    def _quit(self) -> None:
        """End without waiting for anything the agent still does."""
        if self._work is not None:
            self._work.cancel()
        if self._link is not None:
            self._link.hurry()
