"""What the driver's client answers: permissions, files, terminals and elicitations, from the script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.replay_kit.driven import ends, frames, op, requests, said, sdk

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
TERMINAL = {"terminal": True}


def ours(run: Any) -> list[Any]:
    """The driver's answers to the agent's requests."""
    return [frame.get("result", frame.get("error")) for frame in frames(run, "client") if "method" not in frame]


def test_permission_answers_are_taken_in_order_and_then_every_question_is_cancelled(tmp_path: Path) -> None:
    run = sdk(tmp_path, "ask", "ask", "ask", "ask", permissionAnswers=[
        {"kind": "allow_once"}, {"kind": "cancelled"}, {"kind": "reject_once"}])
    assert said(run) == ["call-1:yes", "call-1:cancelled", "call-1:no", "call-1:cancelled"]


def test_questions_in_no_promised_order_get_their_own_answers(tmp_path: Path) -> None:
    run = sdk(tmp_path, "ask-many a b c d", permissionAnswers=[
        {"kind": "allow_once", "toolCallId": "c"}, {"kind": "reject_once", "title": "Write b"},
        {"kind": "cancelled", "toolCallId": "d"}, {"kind": "allow_once"}])
    answers = {frame["id"]: frame["result"]["outcome"].get("optionId", "cancelled")
               for frame in frames(run, "client") if "method" not in frame}
    asked = {frame["params"]["toolCall"]["toolCallId"]: answers[frame["id"]] for frame in frames(run)
             if frame.get("method") == "session/request_permission"}
    assert asked == {"a": "yes", "b": "no", "c": "yes", "d": "cancelled"}


def test_a_held_question_is_answered_when_its_session_is_cancelled(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("startPrompt", text="ask"), op("waitForRequest", method="session/request_permission"),
              op("cancel"), op("awaitPrompt"), permissionAnswers=[{"kind": "hold"}])
    assert ends(run) == ["cancelled"]
    sent = [frame.get("method", "answer") for frame in frames(run, "client")]
    assert sent[-2:] == ["session/cancel", "answer"]


def test_a_held_question_is_answered_when_the_script_ends(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("startPrompt", text="ask"), op("waitForRequest", method="session/request_permission"),
              permissionAnswers=[{"kind": "hold"}])
    assert ours(run) == [{"outcome": {"outcome": "cancelled"}}]
    assert run.status == 0


def test_methods_that_no_capability_offers_do_not_exist(tmp_path: Path) -> None:
    run = sdk(
        tmp_path, op("promptExpectError", text="read a"), op("promptExpectError", text="write a b"),
        op("promptExpectError", text="run true"), op("promptExpectError", text="elicit x"), "extension",
        capabilities={"fs": {"readTextFile": False}, "elicitation": {"form": None}})
    assert ends(run) == ["-32601"] * 4 + ["end_turn"]
    assert said(run)[-1] == "-32601"
    assert {answer["code"] for answer in ours(run)} == {-32601}


def test_files_are_read_from_the_workspace_unless_a_buffer_has_unsaved_text(tmp_path: Path) -> None:
    seed = tmp_path / "scenario" / "workspace"
    seed.mkdir(parents=True)
    (seed / "saved.txt").write_text("one\ntwo\u2028still two\nthree\n")
    (seed / "open.txt").write_text("on disk")
    run = sdk(
        tmp_path, "read saved.txt", "read saved.txt 2 1", "read saved.txt 3", "read saved.txt 9 2", "read open.txt",
        "write open.txt new", "read open.txt", "write sub/made.txt x y", "read unsaved.txt 1 1",
        capabilities=FILES, answers={"files": {"open.txt": "in the editor", "unsaved.txt": "a\nb"}})

    assert said(run) == ["one\ntwo\u2028still two\nthree\n", "two\u2028still two\n", "three\n", "", "in the editor", "",
                         "new", "", "a\n"]
    assert [(file.path, file.data) for file in run.files] == [("open.txt", b"new"), ("sub/made.txt", b"x y")]


def test_files_that_cannot_be_had_are_errors(tmp_path: Path) -> None:
    seed = tmp_path / "scenario" / "workspace"
    (seed / "folder").mkdir(parents=True)
    (seed / "binary").write_bytes(b"\xff\xfe")
    fails = ["read missing", "read folder", "read binary", "read /etc/hostname", "read ./relative", "read a/../../../x",
             "read binary 0", "write folder x"]
    run = sdk(tmp_path, *(op("promptExpectError", text=text) for text in fails), capabilities=FILES)
    codes = [answer["code"] for answer in ours(run)]
    assert codes == [-32002, -32603, -32603, -32602, -32602, -32602, -32602, -32603]
    assert "must be absolute" in ours(run)[4]["message"]
    assert run.files == ()


def test_terminals_are_real_processes(tmp_path: Path) -> None:
    seed = tmp_path / "scenario" / "workspace" / "inner"
    seed.mkdir(parents=True)
    run = sdk(
        tmp_path, "run sh -c 'pwd; echo to-stderr >&2; exit 3'",
        "run-in inner sh -c 'printf \"éééééé$GREETING\"'", "kill sleep 300",
        op("promptExpectError", text="run /no/such/program"), capabilities=TERMINAL)

    assert said(run) == [
        f"[{run.workspace[0]}\nto-stderr\n]False/3/None(-32002)", "[ééhello]True/0/None(-32002)",
        "[]False/None/SIGKILL(-32002)", ""]
    assert [params["terminalId"] for params in requests(run, "terminal/release")] == [
        "terminal-1", "terminal-2", "terminal-3"]
    assert requests(run, "terminal/create")[1]["cwd"] == f"{run.workspace[0]}/inner"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found through /proc")
def test_a_terminal_sees_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    run = sdk(tmp_path, "run sh -c 'echo $SOME_TOKEN $HOME $ACP_REPLAY_TOOLS'", capabilities=TERMINAL)
    assert said(run) == [f"[{run.home}\n]False/0/None(-32002)"]


def test_elicitations_are_answered_in_order_and_then_cancelled(tmp_path: Path) -> None:
    run = sdk(
        tmp_path, "elicit Who?", "elicit Sure?", "elicit More?", capabilities={"elicitation": {"form": {}}},
        answers={"elicitations": [{"action": "accept", "content": {"name": "Ann"}}, {"action": "decline"}]})
    assert said(run) == ["accept:{'name': 'Ann'}", "decline:None", "cancel:None"]


def test_an_elicitation_of_another_mode_than_offered_is_refused(tmp_path: Path) -> None:
    run = sdk(tmp_path, op("promptExpectError", text="elicit x"), capabilities={"elicitation": {"url": {}}})
    assert ours(run)[0]["code"] == -32602
