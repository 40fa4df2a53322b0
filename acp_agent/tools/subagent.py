"""`subagent` and `subagent_fork`: delegate a piece of work to a child session and wait for its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.session.events import TextBlock, ToolResult
from acp_agent.tools.arguments import JsonDecoder, decode_arguments, invalid
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
from acp_agent.tools.delegation import ChildKind, Delegation


class SpawnArguments(Struct, frozen=True):
    description: str
    prompt: str
    run_in_background: bool = False


class ForkArguments(Struct, frozen=True):
    description: str
    prompt: str


_DESCRIPTION = {"type": "string", "description": "What the child is to do, in three to five words."}
_PROMPT = {"type": "string", "description": "The whole task. The child's last message is the result."}


class _DelegatingTool:
    """What both delegation tools share."""

    name: str
    description: str
    parameters: dict[str, Any]
    access = Access.NONE
    effect = Effect.SESSION
    parallel = True
    child: ChildKind
    decoder: JsonDecoder[Any]

    def decode(self, arguments: str) -> SpawnArguments | ForkArguments:
        args: SpawnArguments | ForkArguments = decode_arguments(self.name, arguments, self.decoder)
        if not args.prompt.strip():
            raise invalid(self.name, "prompt: expected a task, got nothing")
        return args

    def announce(self, args: SpawnArguments | ForkArguments, cwd: Path) -> CallView:  # noqa: ARG002  # contract
        return CallView(args.description or self.name, Kind.think)

    async def preview(self, args: Any, context: ToolContext) -> tuple[Diff, ...]:  # noqa: ARG002  # contract
        return ()

    def present(self, args: Any, result: ToolResult, cwd: Path) -> ResultView:  # noqa: ARG002  # contract
        blocks = result.message.content[0].content
        return ResultView("".join(block.text for block in blocks if isinstance(block, TextBlock)))

    async def run(self, args: SpawnArguments | ForkArguments, context: ToolContext) -> Outcome:
        if isinstance(args, SpawnArguments) and args.run_in_background:
            raise ToolFailure("background subagents are not available; call again with run_in_background false")
        if context.delegate is None:
            raise ToolFailure("delegation is not available in this session")
        delegation: Delegation = context.delegate
        return await delegation.delegate(self.child, context.call_id, args.description, args.prompt)


class Subagent(_DelegatingTool):
    """Spawns a child that knows nothing of this conversation."""

    name = "subagent"
    description = (
        "Delegate a self-contained task to a child agent that starts with an empty conversation, and wait for its "
        "answer. Several calls in one message run side by side."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012  # read only
        "type": "object",
        "properties": {
            "description": _DESCRIPTION,
            "prompt": _PROMPT,
            "run_in_background": {"type": "boolean", "description": "Not available; leave it out or false."},
        },
        "required": ["description", "prompt"],
    }
    child = ChildKind.SPAWN
    decoder = JsonDecoder(SpawnArguments)


class SubagentFork(_DelegatingTool):
    """Forks a child that knows this conversation's completed turns."""

    name = "subagent_fork"
    description = (
        "Delegate a task to a child agent that inherits this conversation up to the end of its last completed "
        "turn, and wait for its answer."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012  # read only
        "type": "object",
        "properties": {"description": _DESCRIPTION, "prompt": _PROMPT},
        "required": ["description", "prompt"],
    }
    child = ChildKind.FORK
    decoder = JsonDecoder(ForkArguments)
