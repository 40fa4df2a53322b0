from __future__ import annotations

import json
from typing import Any

import pytest

from acp_agent.tools.base import Tool
from acp_agent.tools.bash import Bash
from acp_agent.tools.edit import Edit
from acp_agent.tools.permission import Allow, Ask, Deny, Mode, judge
from acp_agent.tools.read import Read
from acp_agent.tools.todo_write import TodoWrite
from acp_agent.tools.write import Write

CALLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "bash": (Bash(), {"command": "make", "description": "build"}),
    "edit": (Edit(), {"file_path": "f", "old_string": "a", "new_string": "b"}),
    "write": (Write(), {"file_path": "f", "content": "a"}),
    "read": (Read(), {"file_path": "f"}),
    "todo_write": (TodoWrite(), {"todos": []}),
}


def judged(mode: Mode, name: str, grants: dict[str, bool] | None = None, **more: Any) -> Allow | Deny | Ask:
    tool, arguments = CALLS[name]
    return judge(mode, tool, tool.decode(json.dumps(arguments | more)), grants or {})


@pytest.mark.parametrize(
    ("mode", "edits", "commands"),
    [
        (Mode.READ_ONLY, Deny, Deny),
        (Mode.ASK, Ask, Ask),
        (Mode.ACCEPT_EDITS, Allow, Ask),
        (Mode.FULL_ACCESS, Allow, Allow),
    ],
)
def test_the_mode_decides(mode: Mode, edits: type, commands: type) -> None:
    assert isinstance(judged(mode, "read"), Allow)
    assert isinstance(judged(mode, "todo_write"), Allow)
    assert isinstance(judged(mode, "edit"), edits)
    assert isinstance(judged(mode, "write"), edits)
    assert isinstance(judged(mode, "bash"), commands)


def test_a_denial_names_the_mode() -> None:
    mode = "the permission mode is read-only, and"
    assert judged(Mode.READ_ONLY, "bash") == Deny(f'{mode} tool "bash" runs commands')
    assert judged(Mode.READ_ONLY, "edit") == Deny(f'{mode} tool "edit" changes files')


def ask(name: str, **more: Any) -> Ask:
    verdict = judged(Mode.ASK, name, **more)
    assert isinstance(verdict, Ask)
    return verdict


def test_an_answer_for_a_command_covers_exactly_that_command() -> None:
    assert ask("bash").covers == "this exact command: make"
    assert ask("bash", workdir="sub").covers == "this exact command: make in sub"
    assert ask("bash").key == ask("bash", description="other words", timeoutMs=5).key
    assert len({ask("bash").key, ask("bash", command="make ").key, ask("bash", workdir="sub").key}) == 3


def test_an_answer_for_an_edit_covers_all_edits() -> None:
    assert ask("edit").covers == ask("write").covers == "all file edits in this session"
    assert ask("edit").key == ask("write", file_path="other").key
    assert ask("edit").reason == 'tool "edit" changes files, and the permission mode is ask'


def test_an_earlier_answer_decides_at_once() -> None:
    key = ask("bash").key
    assert judged(Mode.ASK, "bash", {key: True}) == Allow()
    assert judged(Mode.ASK, "bash", {key: False}) == Deny('the user rejected tool "bash"')
    assert isinstance(judged(Mode.ASK, "bash", {key: True}, command="make install"), Ask)


def test_an_earlier_answer_does_not_outrank_the_mode() -> None:
    key = ask("edit").key
    assert isinstance(judged(Mode.READ_ONLY, "edit", {key: True}), Deny)
    assert judged(Mode.FULL_ACCESS, "edit", {key: False}) == Allow()
