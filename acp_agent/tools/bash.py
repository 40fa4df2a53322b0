"""The `bash` tool: run a shell command to its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from acp_agent.session.events import ToolResult
from acp_agent.tools.arguments import ESCALATION, JsonDecoder, decode_arguments, invalid
from acp_agent.tools.base import (
    Access,
    CallView,
    Diff,
    Effect,
    Kind,
    Outcome,
    ResultView,
    ToolContext,
    ToolFailure,
)
from acp_agent.tools.paths import shown_path
from acp_agent.tools.views import fenced, is_error, result_text, safe_name, shorten

if TYPE_CHECKING:
    from acp_agent.tools.terminals import Terminals

TIMEOUT_MS = 120_000
"""How long a command may run unless it asks for more or less."""

MAX_TIMEOUT_MS = 600_000

ENVIRONMENT = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
"""What commands see beside the agent's own environment: nobody is there to page or to admire colours."""


class RawBashArguments(Struct, frozen=True, rename={"timeout_ms": "timeoutMs"}):
    command: str
    description: str
    timeout_ms: float | None = None
    workdir: str | None = None
    run_in_background: bool | None = None


class BashArguments(Struct, frozen=True):
    """`timeout_ms` within its bounds; `workdir` as the model wrote it, None for the session's directory."""

    command: str
    description: str
    timeout_ms: int
    workdir: str | None
    run_in_background: bool


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The command to run."},
        "description": {"type": "string", "description": "What it does, in a few words."},
        "timeoutMs": {
            "type": "number",
            "description": "Milliseconds after which it is stopped: 120000 unless given, at most 600000.",
        },
        "workdir": {
            "type": "string",
            "description": "The directory to run in, absolute or relative to the working directory.",
        },
        "run_in_background": {"type": "boolean", "description": "Not available: commands run to their end."},
        **ESCALATION,
    },
    "required": ["command", "description"],
}


class Bash:
    name = "bash"
    description = (
        "Run a command with bash in the session's working directory. Each call is a new shell. stdout and stderr "
        "are returned, of long output the end (all of it is kept in a file that is named). What is still running "
        "in the background when the command ends is stopped. Prefer the file tools for reading, searching and "
        "editing."
    )
    parameters = _PARAMETERS
    access = Access.EXECUTE
    effect = Effect.WORLD
    parallel = False

    def decode(self, arguments: str) -> BashArguments:
        raw = decode_arguments(self.name, arguments, _DECODER)
        if not raw.command.strip():
            raise invalid(self.name, "command: expected a command, got an empty string")
        if "\0" in raw.command:
            raise invalid(self.name, "command: expected text without NUL characters")
        if raw.timeout_ms is not None and raw.timeout_ms <= 0:
            raise invalid(self.name, f"timeoutMs: expected more than 0, got {raw.timeout_ms}")
        timeout = TIMEOUT_MS if raw.timeout_ms is None else max(1, int(min(raw.timeout_ms, MAX_TIMEOUT_MS)))
        return BashArguments(raw.command, raw.description, timeout, raw.workdir, bool(raw.run_in_background))

    def announce(self, args: BashArguments, cwd: Path) -> CallView:  # noqa: ARG002 - contract
        return CallView(shorten(args.command), Kind.execute)

    async def preview(self, args: BashArguments, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002 - contract
        return ()

    def present(self, args: BashArguments, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002 - contract
        text = result_text(result)
        return ResultView(text if is_error(result) else fenced(text))

    async def run(self, args: BashArguments, context: ToolContext) -> Outcome:
        if args.run_in_background:
            raise ToolFailure(
                "background jobs are not available; run the command in the foreground, with a longer timeoutMs "
                "if it needs one",
                "BashError", "BACKGROUND_UNAVAILABLE",
            )
        directory = _directory(args, context)
        if context.terminals is not None:
            return await _run_in_terminal(context.terminals, args, context, directory)
        from acp_agent.tools.output import Output, Ticker
        from acp_agent.tools.processes import Exit, run_process

        output = Output(context.spill, f"bash-{context.turn}-{context.step}-{safe_name(context.call_id)}.txt")
        ticker = Ticker(lambda text: context.progress(fenced(text)))

        def sink(stream: int, data: bytes) -> None:
            output.feed(stream, data)
            ticker.feed(data)

        try:
            end: Exit = await run_process(
                (_shell(), "-c", args.command), cwd=directory, env={**os.environ, **ENVIRONMENT, "PWD": directory},
                timeout=args.timeout_ms / 1000, sink=sink,
            )
        except OSError as error:
            raise _not_started(error) from None
        finally:
            ticker.close()
            output.close()
        markers = _markers(args, end.code, end.signal, timed_out=end.timed_out)
        if (missing := output.marker()) is not None:
            markers.append(missing)
        return Outcome.text(_with_markers(output.body(), markers))


async def _run_in_terminal(terminals: Terminals, args: BashArguments, context: ToolContext, directory: str) -> Outcome:
    """The client runs the command in its own environment. It keeps the end of a long output, and only that."""
    from acp_agent.tools.output import LIMIT
    from acp_agent.tools.terminals import TerminalError, failed, run_in_terminal

    try:
        run = await run_in_terminal(
            terminals, (_shell(), "-c", args.command), cwd=directory, env=ENVIRONMENT,
            timeout=args.timeout_ms / 1000, limit=LIMIT, show=context.show_terminal,
            late=_timeout_marker(args),
        )
    except TerminalError as error:
        raise ToolFailure(failed(error), "BashError", "TERMINAL_FAILED") from None
    markers = _markers(args, run.exit.code, run.exit.signal, timed_out=run.timed_out)
    if run.output.truncated:
        markers.append(f"[output truncated: the last {LIMIT} bytes are shown]")
    return Outcome.text(_with_markers(run.output.text or "(no output)", markers))


def _markers(args: BashArguments, code: int | None, signal: str | None, *, timed_out: bool) -> list[str]:
    """The lines that say how a command ended, where that was not well (format reference 7.4)."""
    markers = [_timeout_marker(args)] if timed_out else []
    if signal is not None:
        markers.append(f"[killed by signal: {signal}]")
    elif code:
        markers.append(f"[exit code: {code}]")
    return markers


def _timeout_marker(args: BashArguments) -> str:
    return f"[timed out after {args.timeout_ms}ms]"


def _with_markers(body: str, markers: list[str]) -> str:
    from acp_agent.tools.output import line_ended

    return line_ended(body) + "\n".join(markers) if markers else body


def _directory(args: BashArguments, context: ToolContext) -> str:
    """Where to run. Raises `ToolFailure` unless it is a directory."""
    directory = shown_path(args.workdir or "", context.cwd)
    if os.path.isdir(directory):  # noqa: PTH112  # Path.is_dir raises for a name that is too long
        return directory
    there = os.path.exists(directory)  # noqa: PTH110  # as above
    raise ToolFailure(
        f'cannot run in "{directory}": {"it is not a directory" if there else "not found"}',
        "FsError", "FS_NOT_DIRECTORY" if there else "FS_NOT_FOUND",
    )


def _shell() -> str:
    """The system's bash, or sh where there is none."""
    for directory in ("/bin", "/usr/bin", *os.get_exec_path()):
        candidate = Path(directory) / "bash"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return "/bin/sh"


def _not_started(error: OSError) -> ToolFailure:
    import errno

    if error.errno == errno.E2BIG:
        problem = "it is too long for the operating system; write it to a file and run that"
    else:
        problem = (error.strerror or str(error)).lower()
    return ToolFailure(f"the command could not be started: {problem}", "BashError", "SPAWN_FAILED")


_DECODER = JsonDecoder(RawBashArguments)
