"""`replay.override.json`: what it replaces, and how a wrong one is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.errors import ModelError, RecordingError
from acp_agent.session.events import (
    BlockStart,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    Source,
    TextBlock,
    TextDelta,
    UserMessage,
)
from replay.engine import Replay
from tests.unit.replay.recordings import Log, answers, asked, caller, hops, opened, prepared, request, served

FINISH = {"type": "finish", "reason": {"kind": "stop"}}


def override(directory: Path, document: Any) -> Path:
    path = directory / "replay.override.json"
    path.write_bytes(document if isinstance(document, bytes) else msgspec.json.encode(document))
    return path


def chunks(text: str, *, finish: bool = True) -> dict[str, Any]:
    delta = {"type": "text-delta", "index": 0, "text": text}
    return {"kind": "chunks", "chunks": [delta, FINISH] if finish else [delta]}


def throw(text: str = "", message: str = "busy", code: str = "RATE_LIMIT") -> dict[str, Any]:
    prefix = [{"type": "text-delta", "index": 0, "text": text}] if text else []
    return {"kind": "throw", "chunks": prefix, "message": message, "code": code}


async def gathered(replay: Replay, into: list[Chunk], **who: Any) -> None:
    async for batch in replay.provider.stream(request(caller(**who))):
        into.extend(batch)


# ---------------------------------------------------------------- what it serves


def test_a_bare_list_is_the_primary_lane_s_whole_script(tmp_path: Path) -> None:
    answers("root", "recorded 1", "recorded 2").delegate(2, 1, "call", "task").write(tmp_path)
    answers("child", "child's", parent="root", task="task").write(tmp_path, "session.1.jsonl")
    override(tmp_path, [chunks("instead")])
    replay = opened(tmp_path)
    assert asked(replay, caller("x")) == "instead"
    assert asked(replay, caller("y", root="x", path=hops("call"))) == "child's"
    with pytest.raises(RecordingError, match="only 1 recorded"):
        prepared(replay, caller("x", ordinal=1))


def test_a_bare_list_replaces_a_script_that_has_an_unfinished_call(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "cut", finish=None).end(1).write(tmp_path)
    override(tmp_path, [chunks("instead")])
    assert asked(opened(tmp_path), caller("x")) == "instead"


def test_a_patch_replaces_one_call_and_may_append_one(tmp_path: Path) -> None:
    answers("root", "one", "two", "three").write(tmp_path)
    override(tmp_path, {"patches": [{"at": 3, "entry": chunks("four")}, {"at": 1, "entry": chunks("2")}]})
    replay = opened(tmp_path)
    assert [asked(replay, caller("x", ordinal=ordinal)) for ordinal in range(4)] == ["one", "2", "three", "four"]


def test_a_patch_serves_for_an_unfinished_call(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "cut", finish=None).end(1).begin(2).say(2, 1, "two").end(2).write(tmp_path)
    override(tmp_path, {"patches": [{"at": 0, "entry": chunks("one")}]})
    replay = opened(tmp_path)
    assert [asked(replay, caller("x", ordinal=ordinal)) for ordinal in range(2)] == ["one", "two"]


def test_a_patch_keeps_the_route_of_the_call_it_replaces(tmp_path: Path) -> None:
    log = Log("root").add("request/header", header={"config": {"provider": "p", "model": "m"}}, reason="initial")
    log.begin(1).say(1, 1, "x").end(1).write(tmp_path)
    override(tmp_path, {"patches": [{"at": 0, "entry": throw()}]})
    assert prepared(opened(tmp_path), caller("x")).route.config.model == "m"


def test_a_throw_streams_its_prefix_and_raises_a_model_error(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [throw("begin", "too busy", "RATE_LIMIT")])
    seen: list[Chunk] = []
    with pytest.raises(ModelError) as caught:
        asyncio.run(gathered(opened(tmp_path), seen, session="x"))
    assert seen == [TextDelta(0, "begin")]
    assert (caught.value.message, caught.value.kind) == ("too busy", "RATE_LIMIT")


def test_a_hang_streams_a_beginning_makes_its_ready_file_and_waits(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    answers("root", "x").write(tmp_path)
    override(tmp_path, [{"kind": "hang", "readyFile": ".ready"}])
    replay = opened(tmp_path)

    async def cancelled_when_ready() -> list[Chunk]:
        seen: list[Chunk] = []
        task = asyncio.create_task(gathered(replay, seen, session="x", cwd=str(workspace)))
        while not (workspace / ".ready").exists():
            assert not task.done()
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(cancelled_when_ready()) == [BlockStart(0, "text"), TextDelta(0, "partial")]
    assert (workspace / ".ready").read_bytes() == b""


def test_a_ready_file_that_exists_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    answers("root", "x").write(tmp_path)
    override(tmp_path, [{"kind": "hang", "readyFile": "precious"}])
    replay = opened(tmp_path)

    async def cut_off() -> None:
        stream = replay.provider.stream(request(caller("x", cwd=str(tmp_path))))
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cut_off())
    assert (tmp_path / "precious").read_text() == "keep me"


def test_a_ready_file_that_cannot_be_made_fails_the_call(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [{"kind": "hang", "readyFile": "no/such/folder"}])
    with pytest.raises(RecordingError, match="a hang's ready file no/such/folder cannot be made in"):
        asyncio.run(gathered(opened(tmp_path), [], session="x", cwd=str(tmp_path)))


def test_chunks_without_a_finish_break_off_like_a_lost_connection(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [chunks("lost", finish=False)])
    seen: list[Chunk] = []
    with pytest.raises(ModelError) as caught:
        asyncio.run(gathered(opened(tmp_path), seen, session="x"))
    assert seen == [TextDelta(0, "lost")]
    assert caught.value.kind == "TRANSPORT"


def test_an_error_finish_is_served_as_it_is(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    failure = {"message": "no", "code": "AUTH"}
    override(tmp_path, [{"kind": "chunks", "chunks": [{"type": "finish", "reason": {
        "kind": "error", "failure": failure}}]}])
    assert asyncio.run(served(opened(tmp_path), caller("x"))) == [
        Finish(FinishReason("error", Failure("no", "AUTH")))
    ]


# ---------------------------------------------------------------- placeholders


def said(*texts: str) -> list[UserMessage]:
    return [UserMessage((TextBlock(text),), Source("user"), "user", "m") for text in texts]  # type: ignore[arg-type]  # ids are strings


@pytest.mark.parametrize(
    ("pattern", "messages", "filled"),
    [
        (r"job-(\d+)", ("job-1 job-2", "job-3"), "3"),
        (r"job-\d+", ("job-1", "no job"), "job-1"),
        (r"a{2}", ("aaa",), "aa"),
        (r"(?<n>x+)y", ("xxy",), "xx"),
        (r"(?<=v)\d", ("v7",), "7"),
    ],
)
def test_a_placeholder_is_filled_from_the_last_match_in_the_request(
    tmp_path: Path, pattern: str, messages: tuple[str, ...], filled: str
) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [chunks(f"<{{{{fromRequest:{pattern}}}}}> and {{{{fromRequest:{pattern}}}}}")])
    assert asked(opened(tmp_path), caller("x"), said(*messages)) == f"<{filled}> and {filled}"


def test_recorded_calls_hold_placeholders_too_even_in_packed_rows(tmp_path: Path) -> None:
    head, *rows = answers("root", "plain").lines()
    row = (b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[0,0],'
           b'"texts":["a ","{{fromRequest:id=(\\\\w+)}}"," z"]}}\n')
    (tmp_path / "session.jsonl").write_bytes(b"".join([head, *rows[:4], row, *rows[4:]]))
    assert asked(opened(tmp_path), caller("x"), said("id=q9")) == "a q9 zplain"


def test_the_text_of_a_throw_is_filled_too(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [throw("", "no {{fromRequest:who=(\\w+)}}")])
    with pytest.raises(ModelError, match="no bob"):
        asked(opened(tmp_path), caller("x"), said("who=bob"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{{fromRequest:absent}}", r"nothing in the request matches the placeholder \{\{fromRequest:absent\}\}"),
        ("{{fromRequest:(}}", r"\{\{fromRequest:\(\}\} holds an invalid pattern"),
        ("{{fromRequest:open", "has no closing braces"),
    ],
)
def test_a_placeholder_that_cannot_be_filled_fails_the_call(tmp_path: Path, text: str, what: str) -> None:
    answers("root", "x").write(tmp_path)
    override(tmp_path, [chunks(text)])
    with pytest.raises(RecordingError, match=what):
        asked(opened(tmp_path), caller("x"), said("hello"))


# ---------------------------------------------------------------- how a wrong one is told


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (b"not json", "neither a list of entries nor"),
        (b'"text"', "neither a list of entries nor"),
        ({"patch": []}, "neither a list of entries nor"),
        ({"patches": [], "more": 1}, "neither a list of entries nor"),
        ([chunks("a"), {"kind": "dance"}], "entry 1: Invalid value 'dance'"),
        ([{"kind": "chunks"}], "entry 0: Object missing required field `chunks`"),
        ([chunks("a") | {"extra": 1}], "entry 0: Object contains unknown field `extra`"),
        ([{"kind": "chunks", "chunks": [FINISH, {"type": "song"}]}], "entry 0.chunks[1]: Invalid value 'song'"),
        ([throw(message="")], "entry 0: Expected `str` of length >= 1 - at `$.message`"),
        ([throw(code="")], "entry 0: Expected `str` of length >= 1 - at `$.code`"),
        ([{"kind": "hang", "readyFile": ""}], "entry 0: Expected `str` of length >= 1 - at `$.readyFile`"),
        ([{"kind": "hang", "readyFile": "/etc/x"}], "entry 0: readyFile must be a path inside the session's"),
        ([{"kind": "hang", "readyFile": "a/../../x"}], "entry 0: readyFile must be a path inside the session's"),
        ({"patches": [{"at": -1, "entry": chunks("a")}]}, "patch 0: Expected `int` >= 0 - at `$.at`"),
        ({"patches": [{"at": 0}]}, "patch 0: Object missing required field `entry`"),
        ({"patches": [{"at": 0, "entry": throw(code="")}]}, "patch 0: Expected `str` of length >= 1"),
        ({"patches": [{"at": 0, "entry": chunks("a")}] * 2}, "patch 1: an earlier patch is at 0 too"),
        ({"patches": [{"at": 2, "entry": chunks("a")}]}, "a patch is at 2, but the primary session has 1"),
    ],
)
def test_a_wrong_override_is_told_with_file_and_place(tmp_path: Path, document: Any, what: str) -> None:
    answers("root", "x").write(tmp_path)
    file = override(tmp_path, document)
    with pytest.raises(RecordingError) as caught:
        prepared(opened(tmp_path), caller("x"))
    assert caught.value.message.startswith(f"{file}: {what}")
