"""One turn: from a prompt to the point where the model has nothing more to do.

The order of events, what is committed when a turn ends early, and what is stored before what, are those of
format reference 3 and DESIGN's law 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import anyio
import anyio.lowlevel
from msgspec import UNSET, UnsetType

from acp_agent.errors import AgentError, ModelError
from acp_agent.loop.assembly import Assembler
from acp_agent.loop.calls import CallRunner
from acp_agent.loop.host import MAX_STEPS, Host
from acp_agent.loop.title import make_title
from acp_agent.providers.base import MAIN, ModelRequest, Route
from acp_agent.session.events import (
    AbortCause,
    Aborted,
    AssistantContent,
    AssistantMessage,
    Blocked,
    Body,
    Chunk,
    Completed,
    ContentBlock,
    Failed,
    Failure,
    Finish,
    FinishReason,
    HeaderContent,
    LlmRetry,
    LlmRetryStarted,
    MaxTokens,
    Replace,
    ReplayState,
    RequestContext,
    RequestHeader,
    RequestSent,
    SessionTitle,
    Source,
    StepEnd,
    StepStart,
    TextBlock,
    TitleSource,
    ToolCallBlock,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)

MAX_TURN_REQUESTS = "MAX_TURN_REQUESTS"
"""The failure code of a turn that reached `MAX_STEPS`."""

REFUSALS = frozenset({"REFUSAL", "CONTENT_FILTER"})
"""Failure codes with which a model declines a prompt instead of failing at it."""

_WRITE_EVERY = 512
"""Chunks of one answer after which the log is written without waiting for the answer's end."""


class Turn:
    """Runs one prompt. `cancel` may be called at any time, also before `run`."""

    def __init__(self, host: Host, prompt: UserMessage, preface: Sequence[Body] = ()) -> None:
        """`preface` are events that follow turn/start (a child's descriptor)."""
        self._host = host
        self._log = host.log
        self._prompt = prompt
        self._preface = preface
        self._scope = anyio.CancelScope()
        self._cause = AbortCause("user")
        self._number = host.log.state.turn + 1
        self._step = 0

    def cancel(self, cause: str = "user") -> None:
        """Stop as soon as possible; `cause` is user, parent or disposed."""
        if not self._scope.cancel_called:
            self._cause = AbortCause(cause)
            self._scope.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether it is going to end, or ended, because it was cancelled."""
        return self._scope.cancel_called

    async def run(self) -> TurnOutcome:
        """Work the prompt to its end and store everything. Never raises for what happens inside a turn.

        Raises `StoreError` when the finished turn cannot be stored.
        """
        self._log.append(TurnStart(self._number))
        for body in self._preface:
            self._log.append(body)
        outcome: TurnOutcome = Aborted(self._cause)
        with self._scope:
            outcome = await self._steps()
        if self._scope.cancel_called:  # a cancel that came too late to stop anything still wins (reference 3.7)
            outcome = Aborted(self._cause)
        if self._log.state.open_step:
            self._log.append(StepEnd(self._number, self._step))
        if isinstance(outcome, Blocked):
            self._forget_declined()
        self._log.append(TurnEnd(self._number, outcome))
        with anyio.CancelScope(shield=True):
            await self._log.sync()
        return outcome

    async def _steps(self) -> TurnOutcome:
        await anyio.lowlevel.checkpoint()
        try:
            while self._step < MAX_STEPS:
                self._step += 1
                self._log.append(StepStart(self._number, self._step))
                if self._step == 1:
                    self._enter_prompt()
                    await self._host.ready()  # the prompt stays in history when this is cancelled
                outcome = await self._one_step()
                if outcome is not None:
                    return outcome
                self._log.append(StepEnd(self._number, self._step))
        except AgentError as error:
            return Failed(_failure(error))
        except Exception as error:
            self._host.warn(f"a turn failed unexpectedly: {type(error).__name__}: {error}")
            return Failed(Failure(f"the turn failed unexpectedly ({type(error).__name__})", "UNKNOWN"))
        message = f"the turn made {MAX_STEPS} model calls without coming to an end"
        return Failed(Failure(message, MAX_TURN_REQUESTS))

    def _enter_prompt(self) -> None:
        event = self._log.append(self._prompt, surface="append")
        if self._log.state.title is None:
            text = "".join(block.text for block in self._prompt.content if isinstance(block, TextBlock))
            title = make_title(text)
            if title:
                self._log.append(SessionTitle(title, [event.seq], TitleSource("fallback")))

    def _forget_declined(self) -> None:
        """Take the declined prompt and all that followed out of what the model sees (ACP stop reason refusal)."""
        state = self._log.state
        nodes = state.nodes[state.turn_nodes :]
        if nodes:
            note = UserMessage(
                (TextBlock("A prompt was declined here and is not part of the conversation."),),
                Source("plugin", plugin="acp-agent/refusal", form="notice"), "user", self._host.ids.message(),
            )  # fmt: skip
            self._log.append(note, sources=list(nodes), surface=Replace("replace", nodes[0], nodes[-1]))

    # -- a step

    async def _one_step(self) -> TurnOutcome | None:
        """One model call, retried as needed, and its tool calls. None means: go on with another step."""
        answer = await self._answer()
        finish = answer.assembler.finish
        if finish is None or finish.reason.kind in ("error", "aborted"):
            return self._failed(finish)
        if finish.reason.kind == "max-tokens":
            content, state = answer.assembler.within_limit()
            self._commit(answer, content, state)
            return MaxTokens()
        content = tuple(answer.assembler.content())
        self._commit(answer, content, finish.replay_state)
        calls = [block for block in content if isinstance(block, ToolCallBlock)]
        if not calls:
            return Completed()
        await CallRunner(self._host, self._number, self._step, calls).run()
        return None

    @staticmethod
    def _failed(finish: Finish | None) -> TurnOutcome:
        if finish is None or finish.reason.failure is UNSET:
            return Failed(Failure("the model call was aborted", "ABORTED"))
        failure = finish.reason.failure
        return Blocked() if failure.code in REFUSALS else Failed(failure)

    def _commit(
        self, answer: _Attempt, content: tuple[ContentBlock, ...], state: ReplayState | UnsetType,
        interrupted: bool | UnsetType = UNSET,
    ) -> None:
        config = answer.route.config
        source = Source("model", provider=config.provider, model=config.model, replay_state=state)
        message = AssistantContent("assistant", content, source, answer.request.message_id)
        usage = answer.assembler.usage
        self._log.append(
            AssistantMessage(self._number, self._step, message, usage, interrupted),
            sources=answer.seqs, surface="append",
        )
        if usage is not UNSET:
            self._host.live.usage(usage)

    # -- a model call

    async def _answer(self) -> _Attempt:
        """The step's answer: the first attempt that does not fail, or the last one that does."""
        retry = 0
        while True:
            attempt = await self._attempt()
            finish = attempt.assembler.finish
            failure = UNSET if finish is None else finish.reason.failure
            if failure is UNSET or failure.code in REFUSALS:
                return attempt
            retry += 1
            delay = self._host.provider.retry_delay(attempt.request, failure, retry)
            if delay is None:
                return attempt
            await self._wait_to_retry(attempt, failure, retry, delay)

    async def _wait_to_retry(self, attempt: _Attempt, failure: Failure, retry: int, delay: int) -> None:
        policy, token = self._host.provider.retry_policy, self._host.ids.token()
        self._log.append(
            LlmRetry(token, self._number, self._step, attempt.route.config.provider, policy.mode, policy.key,
                     retry, policy.max_retries, delay, failure)
        )  # fmt: skip
        self._host.live.notice(
            "warning", "The model call failed and is made again",
            f"{failure.message} ({failure.code}). Attempt {retry + 1} of at most {policy.max_retries + 1} "
            f"begins {_wait_in_words(delay)}.",
        )
        await anyio.sleep(delay / 1000)
        self._log.append(LlmRetryStarted(token, self._number, self._step, retry))

    async def _attempt(self) -> _Attempt:
        """One model call, from the request to its finish chunk, whatever ends it."""
        attempt = self._open_attempt()
        try:
            await self._log.write()
            await self._stream(attempt)
        except anyio.get_cancelled_exc_class():
            self._interrupt(attempt)
            raise
        except ModelError as error:
            self._fail(attempt, _failure(error))
        except AgentError as error:
            self._fail(attempt, _failure(error))
            raise
        except Exception as error:
            self._host.warn(f"the model call failed unexpectedly: {type(error).__name__}: {error}")
            self._fail(attempt, Failure(f"the provider failed unexpectedly ({type(error).__name__})", "UNKNOWN"))
        self._fail(attempt, Failure("the model's stream ended without a finish", "TRANSPORT"))
        return attempt

    def _open_attempt(self) -> _Attempt:
        """Decide who answers, log what the request is, and make it."""
        host, state = self._host, self._log.state
        caller = host.caller(MAIN)
        prepared = host.provider.prepare(caller)
        config = host.configured(prepared.route.config)
        header = HeaderContent(config, system=host.system, tools=host.registry().schemas())
        self._log_header(header, prepared.route)
        for note in prepared.notes:
            self._log.append(note)
        message_id = host.ids.message()
        root = host.root_ordinal()
        parts = host.digester.parts(header, state.history, state.replaced)
        self._log.append(
            RequestSent(self._number, self._step, MAIN, caller.ordinal, message_id, parts,
                        UNSET if root is None else root)
        )  # fmt: skip
        request = ModelRequest(caller, self._number, self._step, message_id, header, state.history)
        return _Attempt(request, prepared.route)

    def _log_header(self, header: HeaderContent, route: Route) -> None:
        """Request header and context, when they are not what the log says last (format reference 1.8)."""
        state, first = self._log.state, self._host.first_request()
        if state.header is None:
            self._log.append(RequestHeader(header, "initial"))
        elif first:
            self._log.append(RequestHeader(header, "resume"))
        elif state.header != header:
            self._log.append(RequestHeader(header, "change"))
        context = RequestContext(route.config.provider, route.config.model, route.context_window)
        if state.context != context:
            self._log.append(context)

    async def _stream(self, attempt: _Attempt) -> None:
        stream = self._host.provider.stream(attempt.request)
        unwritten = 0
        try:
            async for batch in stream:
                self._take(attempt, attempt.assembler.feed(batch))
                if attempt.assembler.finish is not None:
                    return
                unwritten += len(batch)
                if unwritten >= _WRITE_EVERY:
                    unwritten = 0
                    await self._log.write()
                await self._host.live.drained()
                # A provider whose next batch is ready never suspends: let cancels and other sessions in.
                await asyncio.sleep(0)
        finally:
            with anyio.CancelScope(shield=True):
                await stream.aclose()

    def _take(self, attempt: _Attempt, chunks: Sequence[Chunk]) -> None:
        attempt.seqs.extend(self._log.append_chunks(self._number, self._step, chunks))

    def _fail(self, attempt: _Attempt, failure: Failure) -> None:
        """Finish an attempt with an error; one that has come to its finish has what it needs."""
        if attempt.assembler.finish is None:
            self._take(attempt, attempt.assembler.feed([Finish(FinishReason("error", failure))]))

    def _interrupt(self, attempt: _Attempt) -> None:
        """A cancelled answer: the part that came stays in history, without tool calls (reference 3.3)."""
        if attempt.assembler.finish is None:
            self._take(attempt, attempt.assembler.feed([Finish(FinishReason("aborted"))]))
        prefix = attempt.assembler.prefix()
        if prefix:
            self._commit(attempt, prefix, UNSET, interrupted=True)


class _Attempt:
    """One model call under way."""

    def __init__(self, request: ModelRequest, route: Route) -> None:
        self.request = request
        self.route = route
        self.assembler = Assembler()
        self.seqs: list[int] = []


def _wait_in_words(delay: int) -> str:
    return f"in {delay / 1000:.1f} s" if delay else "at once"


def _failure(error: AgentError) -> Failure:
    if isinstance(error, ModelError):
        status = UNSET if error.status is None else error.status
        wait = UNSET if error.retry_after_ms is None else error.retry_after_ms
        return Failure(error.message, error.kind, status, wait)
    return Failure(error.message, type(error).__name__)
