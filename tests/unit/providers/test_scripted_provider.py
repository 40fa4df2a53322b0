"""What the scripted provider serves whom, and what it says when there is nothing to serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from acp_agent.errors import AgentError, ModelError
from acp_agent.ids import CallId, MessageId, SessionId
from acp_agent.providers.base import MAIN, Caller, Hop, ModelRequest, Prepared
from acp_agent.providers.script_grammar import ScriptError
from acp_agent.providers.scripted import BATCH, ScriptedProvider
from acp_agent.session.events import (
    AssistantMessage,
    Chunk,
    Completed,
    Failed,
    Failure,
    Finish,
    HeaderContent,
    LlmRetry,
    ModelConfig,
    ReplayBound,
    TextDelta,
)
from tests.support.fakes import FakeTool
from tests.support.world import World, bodies, finishes

pytestmark = pytest.mark.anyio

CONFIG = ModelConfig("scripted", "script")


class Bench:
    """One provider on a script of its own, and what it logged."""

    def __init__(self, directory: Path, text: str | None) -> None:
        self.directory = directory
        self.file = directory / "a.script"
        self.logged: list[str] = []
        if text is not None:
            self.file.write_text(text, encoding="utf-8")
        self.provider = ScriptedProvider(self.file, self.logged.append)

    def caller(self, session: str | None = "s", *path: str | Hop, root: str | None = None, ordinal: int = 0,
               purpose: str = MAIN, bound: ReplayBound | None = None) -> Caller:
        hops = tuple(one if isinstance(one, Hop) else Hop(CallId(one)) for one in path)
        root = root or (session if not path else "s")
        return Caller(None if session is None else SessionId(session), None if root is None else SessionId(root),
                      hops, purpose, ordinal, str(self.directory), bound)

    def prepared(self, caller: Caller) -> Prepared:
        return self.provider.prepare(caller)

    def stream(self, caller: Caller) -> AsyncGenerator[Sequence[Chunk], None]:
        return self.provider.stream(request(caller))

    async def said(self, caller: Caller) -> str:
        """The text of one whole call, prepared and streamed."""
        self.prepared(caller)
        return text_of([chunk async for batch in self.stream(caller) for chunk in batch])

    def refusal(self, caller: Caller) -> str:
        with pytest.raises(ScriptError) as caught:
            self.prepared(caller)
        return caught.value.message.removeprefix(f"{self.file}: ")


def request(caller: Caller) -> ModelRequest:
    return ModelRequest(caller, 1, 1, MessageId("m"), HeaderContent(CONFIG), ())


def text_of(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


FAMILY = """
call
  say "root 0"
  tool c1 subagent {}
  tool c1 subagent {}
call
  say "root 1"
lane root > c1
call
  say "child"
  tool c1 subagent {}
lane root > c1[1]
call
  say "twin"
lane root > c1 > c1
call
  say "grandchild"
purpose compaction
call
  say "summary"
"""

ROOTS = 'call\n  say "one"\n  tool c t {}\ncall\nlane root 2\ncall\n  say "two"\n  tool c t {}\n' \
        'lane root > c\ncall\n  say "child of one"\nlane root 2 > c\ncall\n  say "child of two"\n'


# ---------------------------------------------------------------- who is served what


async def test_every_address_is_served_its_own_lane_in_whatever_order_it_asks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FAMILY)
    twin = Hop(CallId("c1"), 1)
    assert await bench.said(bench.caller("g", "c1", "c1")) == "grandchild"
    assert await bench.said(bench.caller("t", twin)) == "twin"
    assert await bench.said(bench.caller("c", "c1")) == "child"
    assert await bench.said(bench.caller("g", "c1", "c1", purpose="compaction")) == "summary"
    assert [await bench.said(bench.caller(ordinal=ordinal)) for ordinal in (1, 0, 1)] == ["root 1", "root 0", "root 1"]


async def test_every_root_session_is_served_the_only_root_lane_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FAMILY)
    for root in ("s", "t", "u"):
        assert await bench.said(bench.caller(root)) == "root 0"
        assert await bench.said(bench.caller(f"{root}-child", "c1", root=root)) == "child"
        assert bench.prepared(bench.caller(root)).notes == ()


async def test_numbered_roots_are_served_in_the_order_of_their_first_calls(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ROOTS)
    late, early = bench.caller("late"), bench.caller("early")
    assert [await bench.said(one) for one in (early, late, early)] == ["one", "two", "one"]
    assert await bench.said(bench.caller("x", "c", root="late")) == "child of two"
    assert await bench.said(bench.caller("y", "c", root="early")) == "child of one"
    assert bench.refusal(bench.caller("third")) == (
        "session third is root session 3 of this process, and the script has lanes for 2; add `lane root 3`, or keep"
        " one root lane, which serves every root")


def test_a_numbered_root_is_written_to_its_log_once_and_read_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ROOTS)
    first, second = (bench.prepared(bench.caller(name)).notes for name in "ab")
    assert (first, second) == ((ReplayBound("root", 0),), (ReplayBound("root 2", 1),))
    assert bench.prepared(bench.caller("b")).notes == ()
    again = Bench(tmp_path, ROOTS)
    assert again.prepared(again.caller("b", bound=ReplayBound("root 2", 1))).notes == ()
    assert again.prepared(again.caller("new")).notes == (ReplayBound("root", 0),), "the place that is left"
    assert again.refusal(again.caller("other", bound=ReplayBound("recorded-7", 0))) == (
        "the log of session other binds it to recorded-7, which is no root of this script; its roots: root, root 2")


def test_a_child_of_a_root_that_called_nothing_is_not_served_by_guess(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ROOTS)
    assert bench.refusal(bench.caller("x", "c", root="r")).startswith("session x is a child of r, which has called no")
    assert bench.prepared(bench.caller("r")).notes == (ReplayBound("root", 0),)


async def test_requests_without_a_session_are_served_the_root_lane_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FAMILY)
    assert [await bench.said(bench.caller(None)) for _ in range(2)] == ["root 0", "root 1"]
    assert bench.refusal(bench.caller(None)).startswith("call 3 of a request without a session: lane root has 2;")


def test_the_route_names_the_script_s_model(tmp_path: Path) -> None:
    named = Bench(tmp_path, "model small-1 window 64000\ncall")
    route = named.prepared(named.caller()).route
    assert (route.config, route.context_window) == (ModelConfig("scripted", "small-1"), 64000)


# ---------------------------------------------------------------- nothing to serve


@pytest.mark.parametrize(("path", "purpose", "ordinal", "message"), [
    ((), MAIN, 2, "call 3 of session s: lane root has 2; add a `call` to it, or let its last one `repeat`"),
    (("c1",), MAIN, 5, "call 6 of session s: lane root > c1 has 1; "),
    ((), "compaction", 0, "compaction call 1 of session s: lane root has 0; "),
    (("c9",), MAIN, 0, "session s stands at root > c9, and the script has no such lane; its lanes: root, root > c1, "
                       "root > c1[1], root > c1 > c1"),
])
def test_a_call_the_script_lacks_is_refused_with_numbers_and_names(
    tmp_path: Path, path: tuple[str, ...], purpose: str, ordinal: int, message: str,
) -> None:
    bench = Bench(tmp_path, FAMILY)
    assert bench.refusal(bench.caller("s", *path, root="s", purpose=purpose, ordinal=ordinal)).startswith(message)


def test_a_script_that_is_wrong_fails_every_call_and_is_logged_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "call\n  sing")
    for session in ("a", "b"):
        assert bench.refusal(bench.caller(session)).startswith(f"{bench.file}:2: expected an action: say")
    assert len(bench.logged) == 1
    assert bench.logged[0].startswith(f"{bench.file}:2: expected an action: say")


def test_a_script_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path) -> None:
    bench = Bench(tmp_path, None)
    assert bench.refusal(bench.caller()) == (
        "the model script cannot be read: No such file or directory; ACP_MODEL=scripted/FILE names it")
    assert len(bench.logged) == 1


async def test_a_script_is_read_at_the_first_call_and_never_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "nonsense")
    bench.file.write_text('call\n  say "good"')
    assert await bench.said(bench.caller()) == "good"
    bench.file.unlink()
    assert await bench.said(bench.caller()) == "good"


# ---------------------------------------------------------------- streams


async def test_a_gate_holds_what_stands_after_it_until_the_file_is_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  say "before"\n  wait go\n  say "after"')
    stream = bench.stream(bench.caller())
    assert text_of(await anext(stream)) == "before"
    held = asyncio.ensure_future(anext(stream))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not held.done()
    (tmp_path / "go").touch()
    rest = [*await asyncio.wait_for(held, 10), *[chunk async for batch in stream for chunk in batch]]
    assert text_of(rest) == "after"
    assert isinstance(rest[-1], Finish)


async def test_a_gate_that_is_open_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    bench = Bench(tmp_path, 'call\n  wait go\n  say "after"')
    assert await asyncio.wait_for(bench.said(bench.caller()), 10) == "after"


async def test_a_hanging_call_makes_its_file_after_what_stands_before_it_and_ends_with_a_cancel(
    tmp_path: Path,
) -> None:
    (tmp_path / "ready").write_text("kept")
    bench = Bench(tmp_path, 'call\n  say "partial"\n  hang ready\ncall\n  hang sub/ready')
    stream = bench.stream(bench.caller())
    assert text_of(await anext(stream)) == "partial"
    waiting = asyncio.ensure_future(anext(stream))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stream.aclose()
    assert (tmp_path / "ready").read_text() == "kept"
    with pytest.raises(ScriptError, match=r"a\.script:4: the ready file sub/ready cannot be made in .*: No such file"):
        await anext(bench.stream(bench.caller(ordinal=1)))


async def test_a_thrown_failure_comes_after_what_stands_before_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  say "half"\n  throw RATE_LIMIT "slow down" retry-after 100 status 429')
    stream = bench.stream(bench.caller())
    assert text_of(await anext(stream)) == "half"
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    error = caught.value
    assert (error.message, error.kind, error.retry_after_ms, error.status) == ("slow down", "RATE_LIMIT", 100, 429)


async def test_a_long_answer_comes_in_batches_between_which_a_cancel_gets_in(tmp_path: Path) -> None:
    bench = Bench(tmp_path, f'call\n  say by 1 "{"x" * 100_000}"')
    seen: list[Chunk] = []
    begun = asyncio.Event()

    async def consume() -> None:
        async for batch in bench.stream(bench.caller()):
            seen.extend(batch)
            begun.set()

    task = asyncio.create_task(consume())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(seen) <= 2 * BATCH


def test_which_call_is_served_is_decided_when_it_is_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FAMILY)

    async def swapped() -> list[str]:
        first, second = (bench.stream(bench.caller(None)) for _ in range(2))
        return [text_of([chunk async for batch in stream for chunk in batch]) for stream in (second, first)]

    assert asyncio.run(swapped()) == ["root 1", "root 0"]


# ---------------------------------------------------------------- retries


FAILURES = """
call
  throw RATE_LIMIT "a"
call
  throw AUTH "b"
call
  throw SERVER "c" final
call
  throw SERVER "d" retry-after 10001
call
  throw SERVER "e" retry-after 10000
call
  throw SERVER "f"
"""


@pytest.mark.parametrize(("ordinal", "failure", "delay"), [
    (0, Failure("a", "RATE_LIMIT"), 0),
    (1, Failure("b", "AUTH"), None),
    (2, Failure("c", "SERVER"), None),
    (3, Failure("d", "SERVER", provider_retry_after_ms=10_001), None),
    (4, Failure("e", "SERVER", provider_retry_after_ms=10_000), 0),
    (5, Failure("f", "SERVER"), None),
])
def test_a_call_is_made_again_at_once_where_policy_script_and_lane_allow_it(
    tmp_path: Path, ordinal: int, failure: Failure, delay: int | None,
) -> None:
    bench = Bench(tmp_path, FAILURES)
    assert bench.provider.retry_delay(request(bench.caller(ordinal=ordinal)), failure, 1) == delay
    assert bench.provider.retry_delay(request(bench.caller(ordinal=ordinal)), failure, 6) is None


async def test_a_request_without_a_session_is_judged_by_the_call_it_was_served(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  throw SERVER "a" final\ncall\n  throw SERVER "b"\ncall')
    delays = []
    for _ in range(2):
        with pytest.raises(ModelError):
            await bench.said(bench.caller(None))
        delays.append(bench.provider.retry_delay(request(bench.caller(None)), Failure("x", "SERVER"), 1))
    assert delays == [None, 0]


# ---------------------------------------------------------------- in a turn


async def test_a_turn_retries_through_failures_and_empty_answers_to_the_next_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  throw TIMEOUT "late" retry-after 9000\ncall\ncall\n  say "done"')
    async with World(tmp_path, bench.provider) as world:
        assert await world.prompt(world.session()) == Completed()
        assert finishes(world.view.events) == ["error", "error", "stop"]
        retries = bodies(world.view.events, LlmRetry)
        assert [(one.failure.code, one.delay_ms) for one in retries] == [("TIMEOUT", 0), ("EMPTY_RESPONSE", 0)]
        assert retries[0].failure.provider_retry_after_ms == 9000


async def test_a_failure_in_the_last_call_ends_the_turn_with_its_own_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  throw RATE_LIMIT "slow down" status 429')
    async with World(tmp_path, bench.provider) as world:
        assert await world.prompt(world.session()) == Failed(Failure("slow down", "RATE_LIMIT", 429))
        assert bodies(world.view.events, LlmRetry) == []


async def test_a_repeated_failure_is_given_up_when_the_policy_gives_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call repeat\n  throw SERVER "down"')
    async with World(tmp_path, bench.provider) as world:
        assert await world.prompt(world.session()) == Failed(Failure("down", "SERVER"))
        assert [one.retry for one in bodies(world.view.events, LlmRetry)] == [1, 2, 3, 4, 5]


async def test_tools_are_called_as_written_and_the_next_call_follows(tmp_path: Path) -> None:
    tool = FakeTool("look")
    bench = Bench(tmp_path, 'model m\ncall\n  tool by 2 c1 look {"at": "it"}\ncall\n  say "seen"')
    async with World(tmp_path, bench.provider, tool) as world:
        assert await world.prompt(world.session()) == Completed()
        assert tool.runs == [{"at": "it"}]
        *_, last = bodies(world.view.events, AssistantMessage)
        assert (last.message.source.provider, last.message.source.model) == ("scripted", "m")


async def test_one_prompt_too_many_fails_and_the_session_lives_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 'call\n  say "only"')
    async with World(tmp_path, bench.provider) as world:
        session = world.session()
        await world.prompt(session)
        for number in (2, 2):
            outcome = await world.prompt(session)
            assert isinstance(outcome, Failed)
            message = f"{bench.file}: call {number} of session session-1: lane root has 1"
            assert outcome.error.message.startswith(message)


async def test_closing_the_provider_twice_is_safe(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "call")
    await bench.provider.aclose()
    await bench.provider.aclose()


def test_a_script_error_is_an_error_of_the_agent_s_that_knows_file_and_line() -> None:
    error = ScriptError("wrong", file="a.script", line=3)
    assert isinstance(error, AgentError)
    assert (str(error), error.facts) == ("a.script:3: wrong", {"file": "a.script", "line": 3})
