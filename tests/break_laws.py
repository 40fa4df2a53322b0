"""Breaks the laws of the agent on purpose, one at a time in a copy of the tree, and tells which tests notice.

usage: python -m tests.break_laws [--json] [LAW ...]

Without numbers every law is broken. Exit status 1 when a break went unnoticed or no longer fits the source.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("acp_agent", "replay", "tests", "golden", "docs", "pyproject.toml")
GOLDENS = "tests/test_goldens.py"
STORAGE = "tests/unit/loop/test_storage_order.py"
SECONDS = 900
"""How long the tests of one break may take together."""


class Break(NamedTuple):
    """One way to break a law: in `file`, `old`, which stands there once, becomes `new`; `tests` should notice."""

    law: int
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = (GOLDENS,)


BREAKS = (
    Break(1, "stray text is written to stdout between two updates", "acp_agent/acp/view.py",
          "        self.client.send(update_frame(",
          "        self.client.send(b'shown\\n')\n        self.client.send(update_frame("),
    Break(1, "descriptor 1 stays the protocol's, so that libraries and children write there",
          "acp_agent/rpc/stdio.py", "    os.dup2(2, 1)\n", "",
          ("tests/unit/rpc/test_rpc_process.py",)),
    Break(2, "a prompt is answered before its turn has ended", "acp_agent/acp/handlers.py",
          "        await admitted.done.wait()\n        return PromptResult(stop_reason(admitted))",
          '        return PromptResult("end_turn")'),
    Break(2, "a prompt's answer is sent twice", "acp_agent/rpc/connection.py",
          "            send(reply.frame)\n", "            send(reply.frame)\n            send(reply.frame)\n"),
    Break(3, "the client is told of an event before it is in the log", "acp_agent/session/log.py",
          "        self._appender.append(event)\n        self.state.apply(event)\n"
          "        if self._listener is not None:\n            self._listener(event)\n",
          "        if self._listener is not None:\n            self._listener(event)\n"
          "        self._appender.append(event)\n        self.state.apply(event)\n", (STORAGE,)),
    Break(3, "the live client is not shown its plan, history is", "acp_agent/acp/projection.py",
          "            case TodoWrite():\n", "            case TodoWrite() if self._settled:\n"),
    Break(4, "the log is not written before the model is asked", "acp_agent/loop/turn.py",
          "            await self._log.write()\n            await self._stream(attempt)",
          "            await self._stream(attempt)", (STORAGE, "tests/wire/test_end.py")),
    Break(4, "the log is not synced before a tool changes the world", "acp_agent/loop/calls.py",
          "            await self._host.log.sync()", "            await self._host.log.write()", (STORAGE,)),
    Break(4, "the log is not synced before a prompt is answered", "acp_agent/loop/turn.py",
          "            await self._log.sync()\n        return outcome", "            pass\n        return outcome",
          (STORAGE,)),
    Break(5, "a call never comes to a final status", "acp_agent/acp/projection.py",
          'status="failed" if result.is_error else "completed"', 'status="in_progress"'),
    Break(5, "two calls of a session share an id on the wire", "acp_agent/acp/projection.py",
          "        while candidate in self._used:", "        while number > 1:",
          ("tests/unit/acp/test_projection.py", "tests/wire/test_replay_children.py")),
    Break(6, "a cancelled command's processes live on", "acp_agent/tools/processes.py",
          "    start = time.monotonic()\n    # A first look", "    return\n    # A first look",
          ("tests/wire/test_tool_turns.py",)),
    Break(6, "a cancel leaves queued prompts to run", "acp_agent/session/session.py",
          "        queued, self._queue = list(self._queue), deque()", "        queued: list[QueuedPrompt] = []",
          ("tests/wire/test_sessions.py",)),
    Break(6, "a cancelled turn says that it ended by itself", "acp_agent/acp/outcomes.py",
          '            return "cancelled"', '            return "end_turn"'),
    Break(6, "a cancelled parent is answered before its children have ended", "acp_agent/subagents/inprocess.py",
          """                await child.aclose("parent")
        return child_result(child.log.state.history[own:], admitted.outcome, admitted.error)

    @staticmethod
    async def _finish(child: Session, admitted: QueuedPrompt) -> None:
        \"""Wait for the child's end. It runs outside this task's cancel scope, so that its log ends properly.\"""
        try:
            await admitted.done.wait()
        except anyio.get_cancelled_exc_class():
            child.cancel("parent")
            with anyio.CancelScope(shield=True):
                await admitted.done.wait()
            raise
""",
          """                await child.log.write()
        return child_result(child.log.state.history[own:], admitted.outcome, admitted.error)

    @staticmethod
    async def _finish(child: Session, admitted: QueuedPrompt) -> None:
        await admitted.done.wait()
""",
          ("tests/unit/subagents/test_children_together.py", "tests/wire/test_replay_children.py")),
    Break(7, "calls that a cancel cut off get no result", "acp_agent/loop/calls.py",
          "        for position, state in enumerate(self._states):\n            match state:",
          "        for position, state in enumerate(self._states[:0]):\n            match state:"),
    Break(8, "a fork inherits the turn it was made in", "acp_agent/subagents/inprocess.py",
          "        cut = state.last_end if", "        cut = state.count if"),
    Break(8, "a fork leaves a mark in its parent's log", "acp_agent/subagents/inprocess.py",
          "            log.append(EndSeed())\n",
          "            log.append(EndSeed())\n            parent.log.append(EndSeed())\n"),
    Break(9, "results are committed as calls finish, not in the model's order", "acp_agent/loop/calls.py",
          "            done[position - start].set()\n",
          "            self._commit(position)\n            done[position - start].set()\n"),
    Break(9, "children are served recordings in the order they ask", "replay/lanes.py",
          "            lane = self._lanes.get((id(root.recording), caller.path))\n",
          "            lane = next((one for (_, path), one in self._lanes.items()\n"
          "                         if len(path) == len(caller.path) and not one.sessions), None)\n"),
    Break(9, "a forked child is served the calls it inherited", "replay/fixture.py",
          "enumerate(self.rows[self.own :] if self.own else self.rows, self.own)", "enumerate(self.rows)"),
    Break(10, "questions stay open when the input has ended", "acp_agent/rpc/connection.py",
          "        if self._ending is not Ending.STOPPED:\n            self.peer.fail_all()\n",
          "        if self._ending is not Ending.STOPPED:\n",
          ("tests/wire/test_end.py", "tests/unit/rpc/test_rpc_process.py")),
    Break(10, "a script in a file is cut like one in a pipe", "acp_agent/rpc/connection.py",
          "        return self._reader.kind is Kind.FILE and", "        return False and",
          ("tests/unit/rpc/test_rpc_process.py", "tests/wire/test_input_kinds.py")),
    Break(10, "the process ends without ending its work", "acp_agent/rpc/connection.py",
          "        await self._shut_down()\n", "", ("tests/wire/test_end.py", "tests/unit/rpc/test_rpc_process.py")),
)


# ---------------------------------------------------------------- running


class Verdict(NamedTuple):
    """What came of a break: the tests that turned red, or why there is nothing to tell."""

    broken: Break
    red: tuple[str, ...]
    problem: str = ""

    @property
    def noticed(self) -> bool:
        return bool(self.red)


def verdicts(laws: Sequence[int]) -> Iterator[Verdict]:
    """Break the laws of these numbers, or all, one break after the other."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
            else:
                shutil.copy(source, copy / name)
        for broken in BREAKS:
            if not laws or broken.law in laws:
                yield _try(broken, copy)


def _try(broken: Break, copy: Path) -> Verdict:
    file = copy / broken.file
    source = file.read_text(encoding="utf-8")
    if source.count(broken.old) != 1:
        return Verdict(broken, (), f"fits {source.count(broken.old)} places of {broken.file}: bring it up to date")
    file.write_text(source.replace(broken.old, broken.new), encoding="utf-8")
    try:
        return _judged(broken, copy)
    finally:
        file.write_text(source, encoding="utf-8")


def _judged(broken: Break, copy: Path) -> Verdict:
    """The tests run on the copy, their agents too: the copy stands first on the module path."""
    environ = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--maxfail", "2")
    try:
        done = subprocess.run([*command, *broken.tests], cwd=copy, env=environ, capture_output=True, text=True,
                              check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Verdict(broken, (), f"its tests took more than {SECONDS} s")
    red = tuple(dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) \S*?([^/\s]+::\S+)", done.stdout, re.MULTILINE)))
    return Verdict(broken, red, "" if red else f"nothing turned red (pytest says {done.returncode})")


def main(arguments: Sequence[str]) -> int:
    """Break, report, and say by the exit status whether all was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.break_laws", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("laws", metavar="LAW", nargs="*", type=int, help="numbers of laws; all without one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    noticed = True
    for verdict in verdicts(options.laws):
        noticed = noticed and verdict.noticed
        sys.stdout.write(_line(verdict, as_json=options.json) + "\n")
        sys.stdout.flush()
    return 0 if noticed else 1


def _line(verdict: Verdict, *, as_json: bool) -> str:
    broken = verdict.broken
    if as_json:
        return json.dumps({"law": broken.law, "break": broken.what, "file": broken.file, "red": verdict.red,
                           "problem": verdict.problem or None})
    told = ", ".join(verdict.red[:2]) or f"UNNOTICED: {verdict.problem}"
    return f"law {broken.law:<2} {broken.what} ({broken.file})\n       {told}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
