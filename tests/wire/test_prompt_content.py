"""What a prompt may hold, on the wire: it reaches the model, is stored with the session, and is shown again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Workbench
from tests.support.client import AgentProcess
from tests.support.history_laws import check_history
from tests.support.images import GIF, JPEG, PNG, WEBP, encoded
from tests.support.log_laws import check_store_laws
from tests.support.reopen import KINDS, StorePlace, sessions
from tests.wire.moves import opened, recording, stop_reason, text_prompt
from tests.wire.recordings import Log, call, says, step, tool, write
from tests.wire.runs import ECHO, data, directory_of, order, root_log

INVALID, INTERNAL = -32602, -32603
Json = dict[str, Any]


def image(content: bytes = PNG, media_type: str = "image/png", **more: Any) -> Json:
    return {"type": "image", "data": encoded(content), "mimeType": media_type, **more}


def resource(**members: Any) -> Json:
    return {"type": "resource", "resource": {"uri": "file:///w/notes.md", **members}}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def prompt(running: AgentProcess, session: str, *blocks: Json) -> Json:
    return running.call("session/prompt", {"sessionId": session, "prompt": list(blocks)})


def load(running: AgentProcess, session: str, cwd: Path) -> list[Json]:
    """Load a session; the updates it was shown with."""
    since = running.position
    answer = running.call("session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": []})
    assert "result" in answer, answer
    shown = running.transcript[since : running.transcript.index(
        next(entry for entry in running.transcript[since:] if entry.frame == answer))]
    return [entry.frame["params"]["update"] for entry in shown
            if entry.sender == "agent" and entry.frame.get("method") == "session/update"]


def prompts_of(updates: Sequence[Json]) -> list[Json]:
    return [update["content"] for update in updates if update["sessionUpdate"] == "user_message_chunk"]


def place_of(bench: Workbench, kind: str) -> StorePlace:
    return StorePlace(kind, bench.store if kind == "jsonl" else bench.store.with_suffix(".db"))


# ---------------------------------------------------------------- what is offered and taken


def test_what_can_be_sent_is_offered(agent: Workbench) -> None:
    running = agent()
    capabilities = running.initialize()["agentCapabilities"]
    assert capabilities["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}


def test_texts_links_and_resources_reach_the_model_faithfully_and_in_order(agent: Workbench) -> None:
    running, session = opened(agent, ECHO)
    odd = 'line "one"\n\n  <two> é \U0001f600 \u2028 &amp; \\n'
    answer = prompt(
        running, session, *text_prompt("Read "),
        {"type": "resource_link", "uri": "https://example.invalid/a?b=c#d", "name": "the page", "title": "T"},
        *text_prompt(" and "), resource(text=odd, mimeType="text/markdown"),
        resource(blob=encoded(b"\x00\x01\x02"), mimeType="application/zip"))
    assert stop_reason(answer) == "end_turn"
    (message,) = data(root_log(agent, session), "user/message")
    (block,) = message["content"]
    assert block["text"] == (
        'Read [the page](https://example.invalid/a?b=c#d) (title: T) and \n<resource uri="file:///w/notes.md" '
        f'type="text/markdown">\n{odd}\n</resource>\n\n<resource uri="file:///w/notes.md" type="application/zip">\n'
        "(3 bytes that are not text and not shown)\n</resource>\n")
    for line in block["text"].splitlines():
        assert line in running.text(session)


BAD: list[list[Any]] = [
    [image(PNG[:-1])], [image(PNG, "image/jpeg")], [image(b"")], [image(b"GIF89a")], [{**image(), "data": "?"}],
    text_prompt(""), text_prompt(" \n"), [*text_prompt(""), *text_prompt("\t")],
    [*text_prompt("a"), image(PNG[:16] + b"\xff" * 8 + PNG[24:])], [image(PNG + bytes(6 * 1024 * 1024))],
    [resource(blob=encoded(JPEG[:-2]), mimeType="image/jpeg")], [resource(blob="?")], [resource()],
    [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}], [image()] * 21, [], [{"type": "video"}],
]


def test_a_refused_prompt_starts_no_turn_stores_nothing_and_later_ones_work(agent: Workbench) -> None:
    running, session = opened(agent, says("fine"), says("good"))
    for blocks in BAD:
        answer = prompt(running, session, *blocks)
        assert answer.get("error", {}).get("code") == INVALID, blocks
        assert answer["error"]["message"].startswith("prompt"), answer
    assert {update["sessionUpdate"] for update in running.updates(session)} <= {
        "available_commands_update", "usage_update", "config_option_update"}
    assert stop_reason(prompt(running, session, *text_prompt("go"))) == "end_turn"
    assert stop_reason(prompt(running, session, image(), *text_prompt("and this?"))) == "end_turn"
    assert order(root_log(agent, session), "turn/start") == ["turn/start"] * 2
    assert [file.name for file in (directory_of(agent, session) / "blobs").iterdir()] == [digest(PNG)]


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[Any]]]:
    """A port, and who connected to it."""
    visitors: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    visitors.append(server.accept())

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], visitors


def test_nothing_that_a_prompt_links_to_is_fetched(agent: Workbench) -> None:
    running, session = opened(agent, ECHO)
    with listening() as (port, visitors):
        address = f"http://127.0.0.1:{port}/secret"
        answer = prompt(running, session, {"type": "resource_link", "uri": address, "name": "x"}, image(uri=address),
                        {"type": "resource", "resource": {"uri": address, "text": "known"}})
        assert stop_reason(answer) == "end_turn"
        running.close()
    assert visitors == []


def test_images_as_large_as_may_be_are_taken(agent: Workbench) -> None:
    running, session = opened(agent, says("large"))
    content = PNG + bytes(5 * 1024 * 1024 - len(PNG))
    assert stop_reason(prompt(running, session, *[image(content)] * 3)) == "end_turn"
    running.call("session/close", {"sessionId": session})
    shown = prompts_of(load(running, session, running.cwd))
    assert shown == [image(content)] * 3


def test_a_prompt_of_any_length_is_shown_again_in_lines_that_clients_read(agent: Workbench) -> None:
    running, session = opened(agent, says("long"))
    whole = "é" * 4_500_000
    parts = [resource(text=whole), *text_prompt("!" * 9_000_000), resource(blob=encoded(whole.encode()))]
    assert stop_reason(prompt(running, session, *parts)) == "end_turn"
    running.call("session/close", {"sessionId": session})
    since = running.position
    shown = [update for update in load(running, session, running.cwd)
             if update["sessionUpdate"] == "user_message_chunk"]
    tagged = f'\n<resource uri="file:///w/notes.md">\n{whole}\n</resource>\n'
    assert "".join(update["content"]["text"] for update in shown) == tagged + "!" * 9_000_000 + tagged
    assert len({update["messageId"] for update in shown}) == 1
    assert max(len(entry.raw) for entry in running.transcript[since:] if entry.sender == "agent") < 4 * 1024 * 1024


# ---------------------------------------------------------------- stored, shown again, taken along


MIXED = (*text_prompt("What is "), image(uri="file:///w/shot.png"), *text_prompt(" and "),
         image(WEBP, "image/webp"), resource(blob=encoded(GIF)))
SHOWN = [*MIXED[:4], image(GIF, "image/gif", uri="file:///w/notes.md")]


@pytest.mark.parametrize("kind", KINDS)
def test_images_survive_load_fork_pack_and_the_other_store(agent: Workbench, tmp_path: Path, kind: str) -> None:
    place, other = place_of(agent, kind), place_of(agent, "sqlite" if kind == "jsonl" else "jsonl")
    replay = recording(agent, says("Two pictures."), says("Still there."))
    running = agent(replay=replay, environ=place.environ, unstable=True)
    running.initialize()
    session = running.new_session()
    assert stop_reason(prompt(running, session, *MIXED)) == "end_turn"
    assert prompts_of(running.updates(session)) == [], "a live client knows what it sent"
    running.close()

    again = agent(replay=replay, environ=place.environ, unstable=True)
    again.initialize()
    assert prompts_of(load(again, session, agent.workspace)) == SHOWN
    fork = again.call("session/fork", {"sessionId": session, "cwd": str(agent.workspace)})["result"]["sessionId"]
    assert stop_reason(prompt(again, session, *text_prompt("Are they?"))) == "end_turn"
    again.close()
    blobs = sorted(map(digest, (PNG, WEBP, GIF)))
    for name in (session, fork):
        packed = tmp_path / f"packed-{name}"
        assert sessions(agent, place, "pack", name, str(packed)).returncode == 0
        assert sorted(file.name for file in (packed / "blobs").iterdir()) == blobs
        done = sessions(agent, other, "import", str(packed))
        assert done.returncode == 0, done.stderr

    moved = agent(replay=replay, environ=other.environ, unstable=True)
    moved.initialize()
    for name in (session, fork):
        assert prompts_of(load(moved, name, agent.workspace))[: len(SHOWN)] == SHOWN
    moved.close()
    logs = tmp_path / "exported"
    exported = place.export(logs)
    asked = data(exported[session][0], "user/message")[0]["content"]
    assert [block["attachment"]["attachmentId"] for block in asked if block["type"] == "image"] == [
        digest(PNG), digest(WEBP), digest(GIF)]
    assert check_store_laws(logs) == []
    assert check_history([running.transcript, again.transcript], logs) == []


def test_an_image_that_got_lost_is_told_in_words_and_stops_nothing(agent: Workbench) -> None:
    running, session = opened(agent, says("one"), says("two"), says("three"))
    for _ in range(2):
        prompt(running, session, *MIXED)
    (directory_of(agent, session) / "blobs" / digest(PNG)).unlink()
    (directory_of(agent, session) / "blobs" / digest(GIF)).write_bytes(b"damaged")
    running.call("session/close", {"sessionId": session})
    shown = prompts_of(load(running, session, running.cwd))
    assert [block["type"] for block in shown] == ["text", "text", "text", "image", "text"] * 2
    assert "missing" in shown[1]["text"]
    assert stop_reason(prompt(running, session, *text_prompt("go"))) == "end_turn"
    assert running.stderr.count("an image cannot be shown") == 2, "each once"
    running.unlawful = "what was shown is no longer stored"


def test_when_the_disk_is_full_an_image_fails_its_prompt_and_nothing_runs(agent: Workbench) -> None:
    running, session = opened(agent, says("one"), says("two"))
    assert stop_reason(prompt(running, session, *text_prompt("go"))) == "end_turn"
    obstacle = directory_of(agent, session) / "blobs"
    obstacle.write_text("in the way")
    since = running.position
    error = prompt(running, session, image())["error"]
    assert error["code"] == INTERNAL
    assert "cannot be kept" in error["message"]
    assert running.updates(session, since=since) == []
    obstacle.unlink()
    assert stop_reason(prompt(running, session, image())) == "end_turn"
    assert order(root_log(agent, session), "turn/start") == ["turn/start"] * 2


# ---------------------------------------------------------------- images in results


def test_a_results_images_are_shown_live_and_on_load_alike(agent: Workbench, tmp_path: Path) -> None:
    shot = tool("c", "mcp__camera__shoot", what="sky")
    log = Log("recorded").turn("Shoot.", step(call(shot), "Here."), says("Blue."))
    (result,) = [event for event in log.events if event["type"] == "tool/result"]
    about = {"attachmentId": digest(JPEG), "mediaType": "image/jpeg", "bytes": len(JPEG), "width": 9, "height": 4}
    result["data"]["message"]["content"][0]["content"].append({"type": "image", "attachment": about})
    replay = write(tmp_path / "recording", log)
    (replay / "blobs").mkdir()
    (replay / "blobs" / digest(JPEG)).write_bytes(JPEG)
    running = agent(replay=replay, environ={"ACP_PERMISSION_MODE": "full-access"})
    running.initialize()
    session = running.new_session()
    assert stop_reason(running.prompt(session, "Shoot.")) == "end_turn"
    live = [update for update in running.updates(session) if update.get("status") == "completed"]
    running.call("session/close", {"sessionId": session})
    loaded = [update for update in load(running, session, running.cwd) if update.get("status") == "completed"]
    assert live == loaded
    (update,) = live
    assert [item["content"] for item in update["content"]] == [
        {"type": "text", "text": "Here."}, image(JPEG, "image/jpeg")]
    assert (directory_of(agent, session) / "blobs" / digest(JPEG)).read_bytes() == JPEG
    assert json.dumps(encoded(JPEG)) not in (directory_of(agent, session) / "session.jsonl").read_text()
