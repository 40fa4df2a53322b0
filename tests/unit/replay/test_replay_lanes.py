"""Each live session is served its own recording: the regressions that addressing exists for.

Every test drives the provider as the agent does: `prepare`, then `stream`, for each model call.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from acp_agent.errors import RecordingError
from acp_agent.providers.base import Caller
from acp_agent.session.events import ReplayBound
from replay.engine import Replay
from tests.unit.replay.recordings import (
    Log,
    answers,
    asked,
    caller,
    hops,
    opened,
    prepared,
    request,
    served,
    text_of,
)


def spawned(directory: Path) -> Replay:
    """A root that delegates to three different children at once."""
    log = Log("root").begin(1)
    for name in ("a", "b", "c"):
        log.called(1, 1, f"call-{name}", "subagent", f'{{"prompt":"do {name}"}}')
    log.say(1, 1, "delegating")
    for name in ("a", "b", "c"):
        log.result(1, 1, f"call-{name}", f"{name} done")
    log.add("step/start", turn=1, step=2).say(1, 2, "all done").end(1, step=2).write(directory)
    for number, name in enumerate(("c", "a", "b"), 1):
        child = answers(name, f"{name}1", f"{name}2", parent="root", task=f"do {name}", created=number)
        child.write(directory, f"session.{number}.jsonl")
    return opened(directory)


def child(name: str, ordinal: int = 0) -> Caller:
    return caller(f"live-{name}", root="live", path=hops(f"call-{name}"), ordinal=ordinal)


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_three_different_children_at_once_are_served_their_own_in_every_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    replay = spawned(tmp_path)
    assert asked(replay, caller("live")) == "delegating"
    first = {name: asked(replay, child(name)) for name in order}
    second = {name: asked(replay, child(name, 1)) for name in reversed(order)}
    assert first == {"a": "a1", "b": "b1", "c": "c1"}
    assert second == {"a": "a2", "b": "b2", "c": "c2"}
    assert asked(replay, caller("live", ordinal=1)) == "all done"


def test_children_that_stream_side_by_side_do_not_mix(tmp_path: Path) -> None:
    replay = spawned(tmp_path)
    prepared(replay, caller("live"))

    async def together() -> list[str]:
        every = await asyncio.gather(*(served(replay, child(name)) for name in "bca"))
        return [text_of(chunks) for chunks in every]

    assert asyncio.run(together()) == ["b1", "c1", "a1"]


def test_a_fork_child_is_not_served_what_it_inherited(tmp_path: Path) -> None:
    root = answers("root", "inherited")
    seed = len(root.events)
    root.begin(2).delegate(2, 1, "fork", "go on").say(2, 1, "asking").end(2).write(tmp_path)
    fork = Log("child", parent="root", seed=seed)
    fork.events = root.events[:seed]
    fork.add("session/end-seed").begin(2).user("go on").say(2, 1, "own").end(2).write(tmp_path, "session.1.jsonl")
    replay = opened(tmp_path)
    prepared(replay, caller("live"))
    assert asked(replay, caller("forked", root="live", path=hops("fork"))) == "own"
    with pytest.raises(RecordingError, match="only 1 recorded"):
        prepared(replay, caller("forked", root="live", path=hops("fork"), ordinal=1))


def test_a_boundary_beyond_the_file_s_line_count_replays(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    texts = ",".join(f'"{number}"' for number in range(50))
    gaps = ",".join("0" for _ in range(49))
    log = Log("fork", seed=54)
    head, *own = log.add("session/end-seed").begin(2).say(2, 1, "own").end(2).lines()
    inherited = [
        b'{"type":"turn/start","data":{"turn":1}}\n',
        b'{"type":"step/start","data":{"turn":1,"step":1}}\n',
        f'{{"type":"text-chunks","data":{{"turn":1,"step":1,"index":0,"dt":[{gaps}],"texts":[{texts}]}}}}\n'.encode(),
        b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":'
        b'{"type":"finish","reason":{"kind":"stop"}}}}\n',
        b'{"type":"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}\n',
    ]
    file.write_bytes(b"".join([head, *inherited, *own]))
    assert len(file.read_bytes().splitlines()) < 54
    replay = opened(tmp_path)
    assert asked(replay, caller("live")) == "own"


def test_two_delegations_with_the_same_call_id_are_told_apart(tmp_path: Path) -> None:
    root = Log("root").begin(1).say(1, 1, "one").delegate(1, 1, "call_0", "first").end(1)
    root.begin(2).say(2, 1, "two").delegate(2, 1, "call_0", "second").end(2).write(tmp_path)
    answers("b", "to the second", parent="root", task="second", created=2).write(tmp_path, "session.1.jsonl")
    answers("a", "to the first", parent="root", task="first", created=1).write(tmp_path, "session.2.jsonl")
    replay = opened(tmp_path)
    prepared(replay, caller("live"))
    assert asked(replay, caller("y", root="live", path=hops(("call_0", 1)))) == "to the second"
    assert asked(replay, caller("x", root="live", path=hops(("call_0", 0)))) == "to the first"


def test_two_roots_interleave_without_mixing(tmp_path: Path) -> None:
    answers("first", "f1", "f2").write(tmp_path, "session.jsonl")
    answers("second", "s1", "s2", created=1).write(tmp_path, "session.1.jsonl")
    replay = opened(tmp_path)
    heard = [asked(replay, caller(session, ordinal=ordinal)) for session, ordinal in
             (("x", 0), ("y", 0), ("y", 1), ("x", 1))]
    assert heard == ["f1", "s1", "s2", "f2"]


def test_a_child_of_a_child_is_found_by_its_whole_path(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "r").delegate(1, 1, "down", "middle").end(1).write(tmp_path)
    middle = Log("middle", parent="root").begin(1).user("middle").say(1, 1, "m").delegate(1, 1, "down", "deep")
    middle.end(1).write(tmp_path, "session.1.jsonl")
    answers("deep", "d", parent="middle", depth=2, task="deep").write(tmp_path, "session.2.jsonl")
    replay = opened(tmp_path)
    prepared(replay, caller("live"))
    assert asked(replay, caller("b", root="live", path=hops("down", "down"))) == "d"
    assert asked(replay, caller("a", root="live", path=hops("down"))) == "m"


def test_sessions_resumed_in_another_order_keep_their_recordings(tmp_path: Path) -> None:
    answers("first", "f1", "f2").write(tmp_path, "session.jsonl")
    answers("second", "s1", "s2", created=1).write(tmp_path, "session.1.jsonl")
    before = opened(tmp_path)
    (note_x,) = prepared(before, caller("x")).notes
    (note_y,) = prepared(before, caller("y")).notes
    assert (note_x, note_y) == (ReplayBound("first", 0), ReplayBound("second", 1))
    assert isinstance(note_x, ReplayBound)
    assert isinstance(note_y, ReplayBound)
    after = opened(tmp_path)
    assert asked(after, caller("y", ordinal=1, bound=note_y)) == "s2"
    assert asked(after, caller("x", ordinal=1, bound=note_x)) == "f2"
    assert prepared(after, caller("x", ordinal=1, bound=note_x)).notes == ()


def test_a_new_session_beside_a_resumed_one_is_served_the_free_recording(tmp_path: Path) -> None:
    answers("first", "f1").write(tmp_path, "session.jsonl")
    answers("second", "s1", created=1).write(tmp_path, "session.1.jsonl")
    replay = opened(tmp_path)
    prepared(replay, caller("x", bound=ReplayBound("first", 0)))
    assert asked(replay, caller("new")) == "s1"


def test_a_resumed_session_binds_its_children_too(tmp_path: Path) -> None:
    replay = spawned(tmp_path)
    bound = ReplayBound("root", 0)
    who = caller("live-a", root="live", path=hops("call-a"), ordinal=1, bound=bound)
    assert asked(replay, who) == "a2"


def test_a_binding_is_noted_once_and_only_for_roots(tmp_path: Path) -> None:
    replay = spawned(tmp_path)
    assert prepared(replay, caller("live")).notes == (ReplayBound("root", 0),)
    assert prepared(replay, caller("live", ordinal=1)).notes == ()
    assert prepared(replay, child("a")).notes == ()


def test_a_request_without_a_session_is_served_the_primary_recording(tmp_path: Path) -> None:
    answers("second", "no").write(tmp_path, "session.1.jsonl")
    answers("first", "one", "two", created=9).write(tmp_path, "session.jsonl")
    replay = opened(tmp_path)
    assert [asked(replay, caller(None)), asked(replay, caller(None))] == ["one", "two"]
    with pytest.raises(RecordingError, match=r"call 3 of a request without a session .* only 2 recorded"):
        prepared(replay, caller(None))


# ---------------------------------------------------------------- more, and fewer


def test_more_root_sessions_than_recorded_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    answers("only", "hello").write(tmp_path)
    replay = opened(tmp_path)
    prepared(replay, caller("x"))
    with pytest.raises(RecordingError) as caught:
        prepared(replay, caller("y"))
    assert caught.value.message == (
        "session y is root session 2 of this process, and the recording has 1; set ACP_REPLAY_SESSIONS=repeat to"
        " serve every new session the whole recording again")


def test_with_repeat_every_new_root_is_served_a_whole_recording(tmp_path: Path) -> None:
    answers("first", "f1", "f2").write(tmp_path, "session.jsonl")
    answers("second", "s1", "s2", created=1).write(tmp_path, "session.1.jsonl")
    replay = opened(tmp_path, sessions="repeat")
    heard = [asked(replay, caller(session, ordinal=ordinal)) for session, ordinal in
             (("x", 0), ("y", 0), ("z", 0), ("z", 1), ("x", 1))]
    assert heard == ["f1", "s1", "f1", "f2", "f2"]


def test_with_repeat_children_of_every_root_are_served(tmp_path: Path) -> None:
    spawned(tmp_path)
    replay = opened(tmp_path, sessions="repeat")
    for root in ("x", "y"):
        prepared(replay, caller(root))
        assert asked(replay, caller(f"{root}-b", root=root, path=hops("call-b"))) == "b1"


def test_more_calls_than_recorded_is_an_error_with_numbers(tmp_path: Path) -> None:
    answers("only", "one", "two").write(tmp_path)
    replay = opened(tmp_path)
    with pytest.raises(RecordingError) as caught:
        prepared(replay, caller("x", ordinal=2))
    assert caught.value.message == (
        "call 3 of session x (lane root (session.jsonl)): only 2 recorded; record the session again, or add the"
        " call to replay.override.json")
    with pytest.raises(RecordingError, match="only 2 recorded"):
        asyncio.run(consumed(replay, caller("x", ordinal=2)))


async def consumed(replay: Replay, who: Caller) -> None:
    async for _ in replay.provider.stream(request(who)):
        pass


def test_an_address_that_is_not_recorded_is_an_error_that_lists_those_that_are(tmp_path: Path) -> None:
    Log("root").begin(1).say(1, 1, "r").delegate(1, 1, "known", "task").end(1).write(tmp_path)
    answers("child", "c", parent="root", task="task").write(tmp_path, "session.1.jsonl")
    answers("lost", "c", parent="root", task="nobody asks").write(tmp_path, "session.2.jsonl")
    replay = opened(tmp_path)
    prepared(replay, caller("live"))
    with pytest.raises(RecordingError) as caught:
        prepared(replay, caller("kid", root="live", path=hops("other")))
    assert caught.value.message == (
        "session kid stands at root > other, and nothing is recorded there; recorded are root (session.jsonl),"
        " root > known (session.1.jsonl); recorded without an address: session.2.jsonl")


def test_a_binding_to_a_recording_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    answers("here", "x").write(tmp_path)
    with pytest.raises(RecordingError, match=r"binds it to the recorded session gone, .* \(its roots: here\)"):
        prepared(opened(tmp_path), caller("x", bound=ReplayBound("gone", 0)))


def test_a_child_of_a_root_that_called_no_model_is_an_error(tmp_path: Path) -> None:
    replay = spawned(tmp_path)
    with pytest.raises(RecordingError, match="is a child of live, which has called no model yet"):
        prepared(replay, child("a"))


def test_purposes_have_their_own_ordinals(tmp_path: Path) -> None:
    log = Log("root").begin(1).sent(1, 1, 0).say(1, 1, "m1").sent(1, 1, 0, purpose="title").say(1, 1, "t1")
    log.sent(1, 2, 1).say(1, 2, "m2").end(1).write(tmp_path)
    replay = opened(tmp_path)
    assert asked(replay, caller("x", ordinal=1)) == "m2"
    assert asked(replay, caller("x", purpose="title")) == "t1"
    with pytest.raises(RecordingError, match="title call 2 of session x"):
        prepared(replay, caller("x", purpose="title", ordinal=1))


# ---------------------------------------------------------------- faulty directories


def test_a_faulty_directory_fails_every_call_and_is_logged_once(tmp_path: Path) -> None:
    file = Log("root").begin(1).say(1, 1, "x", finish=None).end(1).write(tmp_path)
    said: list[str] = []
    replay = opened(tmp_path, said=said)
    assert said == []
    with pytest.raises(RecordingError) as first:
        prepared(replay, caller("x"))
    with pytest.raises(RecordingError) as second:
        prepared(replay, caller("x", ordinal=1))
    assert first.value.message.startswith(f"{file}:4: the model call of turn 1 step 1 has no finish chunk")
    assert first.value.facts == {"file": str(file), "line": 4}
    assert said == [first.value.message] == [second.value.message]


def test_several_faults_are_counted_in_the_message(tmp_path: Path) -> None:
    answers("root", "x").write(tmp_path)
    for number in (1, 2):
        answers(f"c{number}", "x", parent="gone").write(tmp_path, f"session.{number}.jsonl")
    with pytest.raises(RecordingError, match=r"\(and 1 more: run `acp-agent explain` on the directory\)"):
        prepared(opened(tmp_path), caller("x"))


def test_a_missing_directory_fails_the_first_call_only_when_it_comes(tmp_path: Path) -> None:
    replay = opened(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="does not exist; name a directory of session logs"):
        prepared(replay, caller("x"))
