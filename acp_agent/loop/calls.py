"""The tool calls of one assistant message: a rolling pool of parallel ones, barriers for the rest.

Results are committed in the model's order, and the next call of a full pool starts when a result is
committed, not when a call happens to finish: so the log is the same whatever the scheduling (law 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from msgspec import Struct

from acp_agent.errors import AgentError
from acp_agent.loop.host import Answer, Host, Question
from acp_agent.mcp.shown import AbsentTool
from acp_agent.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalGrant,
    FileSeen,
    Source,
    Todo,
    TodoWrite,
    ToolCall,
    ToolCallBlock,
    ToolContent,
    ToolError,
    ToolResult,
    ToolResultBlock,
)
from acp_agent.tools.base import (
    Access,
    CallKey,
    Effect,
    Outcome,
    RecordedCall,
    Tool,
    ToolContext,
    ToolFailure,
)
from acp_agent.tools.permission import Allow, Ask, Deny, Mode, judge, rejected
from acp_agent.tools.registry import unknown_tool

POOL = 10
"""How many parallel calls may be under way at once."""

ABORTED = Outcome.failure("tool call aborted", ToolError("AbortError", "ABORTED"))
NEVER_STARTED = Outcome.failure(
    "tool call aborted before dispatch", ToolError("AbortError", "ABORTED_BEFORE_DISPATCH")
)


class Pending(Struct, frozen=True):
    """Asked for, not started."""


class Running(Struct, frozen=True):
    """Started: its tool/call event has this seq."""

    seq: int


class Settled(Struct, frozen=True):
    """Came to an outcome that is not in the log yet."""

    seq: int
    outcome: Outcome


class Committed(Struct, frozen=True):
    """Its result is in the log."""


CallState = Pending | Running | Settled | Committed


class CallRunner:
    """Runs the calls of one message to their results."""

    def __init__(self, host: Host, turn: int, step: int, blocks: Sequence[ToolCallBlock]) -> None:
        self._host = host
        self._turn = turn
        self._step = step
        self._blocks = blocks
        self._registry = host.registry()
        self._states: list[CallState] = [Pending() for _ in blocks]
        self._broken: AgentError | None = None

    async def run(self) -> None:
        """Run all calls. On cancellation every call still gets its result before this raises.

        Raises `StoreError` when the log cannot be written: the call in question does not run then.
        """
        try:
            at = 0
            while at < len(self._blocks):
                end = self._group_end(at)
                await self._run_group(at, end)
                at = end
        finally:
            self._close_rest()

    def _group_end(self, start: int) -> int:
        end = start
        while end < len(self._blocks) and self._is_parallel(end):
            end += 1
        return max(end, start + 1)

    def _is_parallel(self, position: int) -> bool:
        tool = self._registry.get(self._blocks[position].name)
        return tool is not None and tool.parallel

    async def _run_group(self, start: int, end: int) -> None:
        if end - start == 1:
            self._begin(start)
            await self._settle(start)
            self._commit(start)
            return
        done = [anyio.Event() for _ in range(start, end)]

        async def work(position: int) -> None:
            await self._settle(position)
            done[position - start].set()
            if self._broken is not None:
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for position in range(start, min(start + POOL, end)):
                self._begin(position)
                group.start_soon(work, position)
            for position in range(start, end):
                await done[position - start].wait()
                if self._broken is not None:
                    break
                self._commit(position)
                if position + POOL < end:
                    self._begin(position + POOL)
                    group.start_soon(work, position + POOL)
        if self._broken is not None:
            raise self._broken

    # -- one call's way

    def _begin(self, position: int) -> None:
        block = self._blocks[position]
        event = self._host.log.append(ToolCall(self._turn, self._step, block.id, block.name, block.arguments))
        self._states[position] = Running(event.seq)

    async def _settle(self, position: int) -> None:
        """Bring one call to its outcome. An error of the agent's own (store, recording) ends the whole turn."""
        try:
            outcome = await self._outcome(position)
            await self._host.fetch(outcome.content)
        except AgentError as error:
            self._broken = error
            outcome = NEVER_STARTED
        state = self._states[position]
        if isinstance(state, Running):
            self._states[position] = Settled(state.seq, outcome)

    async def _outcome(self, position: int) -> Outcome:
        block = self._blocks[position]
        tool = self._registry.get(block.name)
        if tool is None:
            return unknown_tool(block.name)
        try:
            args = tool.decode(block.arguments)
            return await self._allowed_outcome(position, tool, args)
        except ToolFailure as failure:
            return Outcome(
                Outcome.failure(failure.message).content, True, failure.error, observed=failure.observed
            )
        except AgentError:
            raise
        except Exception as error:
            self._host.warn(f"the tool {block.name} failed unexpectedly: {type(error).__name__}: {error}")
            return Outcome.failure(f"the tool {block.name} failed unexpectedly ({type(error).__name__})")

    async def _allowed_outcome(self, position: int, tool: Tool, args: Any) -> Outcome:
        block = self._blocks[position]
        key = CallKey(self._host.session, self._turn, self._step, position, block.id, block.name,
                      block.arguments, str(self._host.cwd))
        recorded = self._host.effects.recorded(key) if tool.effect is Effect.WORLD else None
        if recorded is None and isinstance(tool, AbsentTool):
            return unknown_tool(block.name)
        refusal = await self._refusal(position, tool, args, recorded)
        if refusal is not None:
            return refusal
        if tool.access in (Access.EDIT, Access.EXECUTE):
            await self._host.log.sync()
        else:
            await self._host.log.write()
        self._host.live.running(position)
        if recorded is not None:
            if recorded.held:
                await anyio.sleep_forever()
            return recorded.outcome
        outcome = await tool.run(args, self._context(position))
        self._host.effects.observe(key, outcome)
        return outcome

    async def _refusal(
        self, position: int, tool: Tool, args: Any, recorded: RecordedCall | None
    ) -> Outcome | None:
        """Why the call may not run, or None when it may."""
        if recorded is not None and recorded.approved is not None:
            self._log_question(position, "replayed", "approved" if recorded.approved else "rejected")
            if recorded.grant is not None:
                self._host.log.append(recorded.grant)
            return None if recorded.approved else recorded.outcome
        verdict = judge(self._host.mode(), tool, args, self._host.grants())
        if isinstance(verdict, Deny):
            return Outcome.failure(verdict.reason)
        if isinstance(verdict, Allow):
            return None
        block = self._blocks[position]
        approval = self._host.ids.token()
        diffs = () if recorded is not None else await tool.preview(args, self._context(position))
        question = Question(position, block.id, block.name, args, tool.announce(args, self._host.cwd), diffs,
                            verdict.covers)
        self._host.log.append(ApprovalAsked(approval, block.name, block.id, verdict.reason))
        decided = "cancelled"
        try:
            decision = await self._decision(question, tool, args)
            allowed = isinstance(decision, Allow) or (isinstance(decision, Answer) and decision.allow)
            decided = "approved" if allowed else "rejected"
        finally:
            self._host.log.append(ApprovalDecided(approval, decided))
        if isinstance(decision, Deny):
            return Outcome.failure(decision.reason)
        if isinstance(decision, Answer) and decision.always:
            self._host.log.append(ApprovalGrant(verdict.key, decision.allow, verdict.covers))
        return None if allowed else Outcome.failure(rejected(block.name))

    async def _decision(self, question: Question, tool: Tool, args: Any) -> Answer | Allow | Deny:
        """The user's answer, or what a mode that was set meanwhile says, where that leaves nothing to ask."""
        host = self._host
        while True:
            verdict = judge(host.mode(), tool, args, host.grants())
            if not isinstance(verdict, Ask):
                return verdict
            answer = await self._asked(question, tool, args)
            if answer is not None:
                return answer

    async def _asked(self, question: Question, tool: Tool, args: Any) -> Answer | None:
        """The user's answer; None when the question was withdrawn, because another mode may need none."""
        host = self._host
        with anyio.CancelScope() as scope:
            def reconsider() -> None:
                if not isinstance(judge(host.mode(), tool, args, host.grants()), Ask):
                    scope.cancel()

            with host.watching(reconsider):
                return await host.ask(question)
        return None

    def _log_question(self, position: int, reason: str, outcome: str) -> None:
        block, approval = self._blocks[position], self._host.ids.token()
        self._host.log.append(ApprovalAsked(approval, block.name, block.id, reason))
        self._host.log.append(ApprovalDecided(approval, outcome))

    def _context(self, position: int) -> ToolContext:
        host, block = self._host, self._blocks[position]

        def set_todos(todos: tuple[Todo, ...]) -> None:
            host.log.append(TodoWrite(todos))

        def progress(text: str) -> None:
            host.live.output(position, text)

        return ToolContext(
            session_id=host.session, call_id=block.id, turn=self._turn, step=self._step, cwd=host.cwd,
            roots=host.roots, confined=host.mode() is not Mode.FULL_ACCESS, seen=host.log.state.seen,
            progress=progress, spill=host.spill, set_todos=set_todos, delegate=host.delegate,
            trace=host.trace, editor=host.desk.editor, terminals=host.desk.terminals, elicit=host.desk.elicit(position),
            show_terminal=lambda terminal, remark: host.live.terminal(position, terminal, remark),
        )  # fmt: skip

    # -- results

    def _commit(self, position: int) -> None:
        state = self._states[position]
        if self._broken is not None:
            raise self._broken
        if isinstance(state, Settled):
            self._append_result(position, state.seq, state.outcome)

    def _append_result(self, position: int, seq: int, outcome: Outcome) -> None:
        block, log = self._blocks[position], self._host.log
        for seen in outcome.observed:
            log.append(FileSeen(seen.path, seen.version))
        result = ToolResultBlock(block.id, outcome.content, outcome.is_error)
        message = ToolContent(Source("tool", call_id=block.id), (result,), "user", self._host.ids.message())
        log.append(ToolResult(self._turn, self._step, message, outcome.error, outcome.meta),
                   sources=[seq], surface="append")
        self._states[position] = Committed()

    def _close_rest(self) -> None:
        """Give every call that has none its result, in order, so that history stays balanced (law 7)."""
        for position, state in enumerate(self._states):
            match state:
                case Settled(seq=seq, outcome=outcome):
                    self._append_result(position, seq, outcome)
                case Running(seq=seq):
                    self._append_result(position, seq, ABORTED)
                case Pending():
                    self._begin(position)
                    begun = self._states[position]
                    if isinstance(begun, Running):
                        self._append_result(position, begun.seq, NEVER_STARTED)
                case Committed():
                    pass
