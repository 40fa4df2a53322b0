"""How recorded calls are streamed: batches, pace, holds, routes and retries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import SettingsError
from acp_agent.providers.base import RetryPolicy
from acp_agent.session.events import Chunk, Failure, ModelConfig, TextDelta, ToolCallDelta
from replay.pace import Burst, Every, Recorded, parse_pace, schedule
from replay.rows import CallRow, ChunkRow, Piece, decode_rows
from replay.stream import BATCH, batches, expand
from tests.unit.replay.recordings import Log, answers, caller, opened, prepared, request, served, text_of

ERROR = {"type": "finish", "reason": {"kind": "error", "failure": {"message": "busy", "code": "AUTH"}}}


def pieces(*lines: bytes) -> list[Piece]:
    rows: list[Any] = decode_rows(b"".join(lines))
    return rows


def packed(count: int, *, gap: int = 1, time: int | None = None) -> bytes:
    texts = ",".join(f'"{number}."' for number in range(count))
    start = "" if time is None else f'"seq0":0,"time0":{time},'
    data = f'"turn":1,"step":1,"index":0,"dt":[{",".join([str(gap)] * (count - 1))}],"texts":[{texts}]'
    return f'{{"type":"text-chunks",{start}"data":{{{data}}}}}\n'.encode()


def single(text: str, time: int | None = None) -> bytes:
    start = "" if time is None else f'"seq":0,"time":{time},'
    chunk = f'{{"type":"text-delta","index":0,"text":"{text}"}}'
    return f'{{"type":"assistant/chunk",{start}"data":{{"turn":1,"step":1,"chunk":{chunk}}}}}\n'.encode()


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("sizes", [(1,), (63, 2), (64, 64), (3, 200, 1), (1, 1, 62, 1, 65)])
def test_batches_hold_every_chunk_in_order_and_are_full(sizes: tuple[int, ...]) -> None:
    rows = pieces(*(single("one") if size == 1 else packed(size) for size in sizes))
    cut = list(batches(rows))
    assert [chunk for batch in cut for chunk in batch] == [chunk for row in rows for chunk in expand(row)]
    assert all(len(batch) == BATCH for batch in cut[:-1])
    assert 0 < len(cut[-1]) <= BATCH


def test_every_member_of_a_tool_call_row_keeps_id_and_name() -> None:
    line = (b'{"type":"tool-call-chunks","data":{"turn":1,"step":1,"index":2,"dt":[0,0],"id":"c","name":"bash",'
            b'"args":["{","\\"a\\"","}"]}}\n')
    (row,) = pieces(line)
    assert isinstance(row, CallRow)
    assert list(expand(row)) == [ToolCallDelta(2, "c", "bash", part) for part in ("{", '"a"', "}")]  # type: ignore[arg-type]  # an id is a string


def test_a_cancel_gets_in_between_batches(tmp_path: Path) -> None:
    head, *rows = answers("root", "x").lines()
    (tmp_path / "session.jsonl").write_bytes(b"".join([head, *rows[:4], packed(100_000), *rows[4:]]))
    replay = opened(tmp_path)
    seen: list[Chunk] = []

    async def consume(begun: asyncio.Event) -> None:
        async for batch in replay.provider.stream(request(caller("x"))):
            seen.extend(batch)
            begun.set()

    async def cut_off() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(consume(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut_off())
    assert len(seen) <= 2 * BATCH


def test_a_held_call_streams_what_was_recorded_and_then_waits(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "part", finish=None).end(1, "aborted").write(tmp_path)
    replay = opened(tmp_path)

    async def cut_off() -> str:
        stream = replay.provider.stream(request(caller("x")))
        first = await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await stream.aclose()
        return text_of(first)

    assert asyncio.run(cut_off()) == "part"


def test_the_call_is_decided_when_it_is_made_not_when_it_is_consumed(tmp_path: Path) -> None:
    answers("root", "one", "two").write(tmp_path)
    replay = opened(tmp_path)
    first, second = (replay.provider.stream(request(caller(None))) for _ in range(2))

    async def swapped() -> list[str]:
        return [text_of([chunk async for batch in stream for chunk in batch]) for stream in (second, first)]

    assert asyncio.run(swapped()) == ["two", "one"]


# ---------------------------------------------------------------- pace


def test_a_pace_is_burst_recorded_or_milliseconds() -> None:
    assert [parse_pace(text) for text in ("burst", "recorded", "25", "0")] == [
        Burst(), Recorded(), Every(25), Burst(),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "fast", "-1", "1.5", "²", " 5"])
def test_any_other_pace_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="it must be burst, recorded or a number of milliseconds"):
        parse_pace(text)


def test_a_pace_in_milliseconds_spaces_single_chunks() -> None:
    due = [(moment, len(batch)) for moment, batch in schedule(pieces(packed(3)), Every(250))]
    assert due == [(0.25, 1), (0.5, 1), (0.75, 1)]


def test_the_recorded_pace_keeps_the_gaps_of_single_and_packed_chunks() -> None:
    rows = pieces(single("a", 5_000), packed(3, gap=20, time=5_100), single("b", 5_140), single("c", 5_120))
    due = [(moment, len(batch)) for moment, batch in schedule(rows, Recorded(), 4_900)]
    assert due == [(0.1, 1), (0.2, 1), (0.22, 1), (0.24, 3)]


def test_the_recorded_pace_of_a_projected_log_keeps_the_gaps_inside_packed_rows() -> None:
    rows = pieces(single("a"), packed(3, gap=10), single("b"), packed(2, gap=30))
    due = [(moment, len(batch)) for moment, batch in schedule(rows, Recorded())]
    assert due == [(0.0, 2), (0.01, 1), (0.02, 3), (0.05, 1)]


def test_a_paced_stream_serves_what_a_burst_serves(tmp_path: Path) -> None:
    answers("root", "hello").write(tmp_path, complete=True)
    heard = [asyncio.run(served(opened(tmp_path, pace=pace), caller("x"))) for pace in ("burst", "recorded", "1")]
    assert heard[0] == heard[1] == heard[2]


# ---------------------------------------------------------------- routes


def configured(log: Log, model: str, window: int | None = None) -> Log:
    log.add("request/header", header={"config": {"provider": "acme", "model": model, "maxTokens": 9},
                                      "system": "{{system}}", "tools": "{{tools}}"}, reason="initial")
    extra = {} if window is None else {"contextWindow": window}
    return log.add("request/context", provider="acme", model=model, **extra)


def test_the_route_is_the_recorded_one_as_it_was_when_the_call_was_made(tmp_path: Path) -> None:
    log = configured(Log("root").begin(1), "small", 1000).say(1, 1, "a").end(1)
    configured(log.begin(2), "large").say(2, 1, "b").end(2).write(tmp_path)
    replay = opened(tmp_path)
    first, second = (prepared(replay, caller("x", ordinal=ordinal)).route for ordinal in range(2))
    assert (first.config, first.context_window) == (ModelConfig("acme", "small", 9), 1000)
    assert second.config == ModelConfig("acme", "large", 9)


def test_a_fork_s_route_is_inherited(tmp_path: Path) -> None:
    log = configured(Log("fork", seed=5).begin(1), "small")
    log.add("turn/end", turn=1, reason={"kind": "completed"}).add("session/end-seed")
    log.begin(2).say(2, 1, "x").end(2).write(tmp_path)
    assert prepared(opened(tmp_path), caller("x")).route.config.model == "small"


def test_a_recording_that_names_no_model_has_a_route_that_says_so(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    assert prepared(opened(tmp_path), caller("x")).route.config == ModelConfig("replay", "recorded")


# ---------------------------------------------------------------- retries


def retried(directory: Path) -> None:
    log = Log("root").begin(1).say(1, 1, "lost", finish=ERROR)
    log.add("llm/retry", retryId="r", turn=1, step=1, provider="p", mode="normal", retry=1, maxRetries=2,
            delayMs=70, policyKey='["normal",2,["AUTH"],70,80,0]', failure={"message": "busy", "code": "AUTH"})
    log.add("llm/retry-started", retryId="r", turn=1, step=1, retry=1)
    log.say(1, 1, "kept").end(1).begin(2).say(2, 1, "next", finish=ERROR).end(2, "error").write(directory)


def test_a_call_is_retried_where_the_recorded_one_was(tmp_path: Path) -> None:
    retried(tmp_path)
    failure = Failure("busy", "AUTH")
    for pace, delay in (("burst", 0), ("recorded", 70)):
        provider = opened(tmp_path, pace=pace).provider
        assert provider.retry_delay(request(caller("x", ordinal=0)), failure, 1) == delay
        assert provider.retry_delay(request(caller("x", ordinal=1)), failure, 1) is None
        assert provider.retry_delay(request(caller("x", ordinal=2), turn=2), failure, 1) is None


def test_the_retry_policy_is_the_recorded_one(tmp_path: Path) -> None:
    retried(tmp_path)
    assert opened(tmp_path).provider.retry_policy == RetryPolicy("normal", 2, ("AUTH",), 70, 80, 0.0)


def test_the_retry_policy_is_the_usual_one_where_none_was_recorded(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    assert opened(tmp_path).provider.retry_policy == RetryPolicy()


def test_an_overridden_call_is_retried_as_the_usual_policy_says_if_there_is_another(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    entry = '{"kind":"throw","chunks":[],"message":"m","code":"c"}'
    (tmp_path / "replay.override.json").write_text(f"[{entry},{entry}]")
    provider = opened(tmp_path).provider
    assert provider.retry_delay(request(caller("x")), Failure("m", "RATE_LIMIT"), 1) == 0
    assert provider.retry_delay(request(caller("x")), Failure("m", "AUTH"), 1) is None
    assert provider.retry_delay(request(caller("x", ordinal=1)), Failure("m", "RATE_LIMIT"), 1) is None


def test_closing_the_provider_twice_is_safe(tmp_path: Path) -> None:
    provider = opened(tmp_path).provider
    asyncio.run(provider.aclose())
    asyncio.run(provider.aclose())


def test_rows_of_chunks_are_what_the_log_holds() -> None:
    (row,) = pieces(single("a"))
    assert isinstance(row, ChunkRow)
    assert row.data.chunk == TextDelta(0, "a")
