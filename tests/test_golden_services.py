"""What the goldens of the client's services are there to show; see `test_golden_meaning`."""

from __future__ import annotations

from typing import Any

from replay.snapshot import Normalised
from tests.test_golden_meaning import asked, calls, endings, events, golden, history, statuses, updates


def requests(run: Normalised, prefix: str) -> list[tuple[str, Any]]:
    """The agent's requests whose method begins so: method and params."""
    found = [(str(frame.value.get("method")), frame.value.get("params")) for frame in run.wire]
    return [(method, params) for method, params in found if method.startswith(prefix)]


def results(run: Normalised) -> list[tuple[str, bool]]:
    """The text of each tool result, and whether it is an error."""
    blocks = [body["message"]["content"][0] for body in events(run.logs[0], "tool/result")]
    return [(block["content"][0]["text"], block["isError"]) for block in blocks]


def test_unsaved_text_is_read_and_changed_in_the_editor_and_the_disk_is_what_the_editor_saved() -> None:
    run = golden("client-files")
    assert asked(run) == ["edit-1", "write-1", "write-2"]
    assert statuses(run) == {"read-1": "completed", "read-2": "failed", "edit-1": "completed",
                             "write-1": "completed", "write-2": "failed"}
    written = {params["path"]: params["content"] for _, params in requests(run, "fs/write_text_file")}
    assert written == {"{{cwd}}/lists/tomorrow.txt": "Buy seeds.\n",
                       "{{cwd}}/notes.txt": "Done: water the roses.\nSaved: feed the cat.\n"}
    assert "1: Unsaved: water the roses." in results(run)[0][0]
    previews = [params["toolCall"]["content"][0]["oldText"] for _, params in requests(run, "session/request")]
    assert previews == ["Unsaved: water the roses.\nSaved: feed the cat.", None,
                        "Done: water the roses.\nSaved: feed the cat."]


def test_each_terminal_is_embedded_and_released_once_and_a_load_shows_what_was_printed() -> None:
    run = golden("client-terminal")
    terminals = [f"{{{{terminal:{number}}}}}" for number in (1, 2, 3, 4)]
    embedded = [update["content"][0]["terminalId"] for update in updates(run, "tool_call_update")
                if (update.get("content") or [{}])[0].get("type") == "terminal"]
    again = terminals[2]  # with what the terminal does not show: running text, which goldens leave out
    assert embedded == sorted([*terminals, again])
    assert sorted(params["terminalId"] for _, params in requests(run, "terminal/release")) == terminals
    assert [params["terminalId"] for _, params in requests(run, "terminal/kill")] == terminals[2:3]
    assert len(requests(run, "terminal/output")) == 3, "nobody asks for the output of what was cancelled"
    assert [text for text, _ in results(run)] == [
        "checked\nwarned\n", "broken\n[exit code: 3]", "waiting\n[timed out after 1000ms]",
        "Error: tool call aborted"]
    assert endings(run) == ["end_turn", "cancelled"]
    loaded = [update["content"][0]["content"]["text"] for update in history(run, 6)
              if update["sessionUpdate"] == "tool_call_update"]
    assert loaded[:2] == ["```\nchecked\nwarned\n```", "```\nbroken\n[exit code: 3]\n```"]


def test_an_answer_counts_when_it_fits_the_form() -> None:
    run = golden("ask-user-form")
    assert [params["toolCallId"] for _, params in requests(run, "elicitation/")] == ["ask-1", "ask-2", "ask-3"]
    assert [is_error for _, is_error in results(run)] == [False, True, False]
    assert results(run)[0][0].endswith("colour: blue\ncount: 3\ngift: yes\nextras: ribbon, card")
    assert results(run)[2][0] == "The user declined to answer."


def test_a_link_is_opened_or_not_and_one_with_a_password_is_never_shown() -> None:
    run = golden("ask-user-link")
    assert [(params["url"], params["elicitationId"]) for _, params in requests(run, "elicitation/")] == [
        ("https://shop.example/login", "{{elicitation:1}}"), ("https://shop.example/terms", "{{elicitation:2}}")]
    assert statuses(run) == {"link-1": "completed", "link-2": "completed", "link-3": "failed"}
    assert calls(run.logs[0]) == 4
