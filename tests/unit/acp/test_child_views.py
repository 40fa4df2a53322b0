"""Which view a child gets, and what it sends: at slow clients, at clients that change their mind, for calls that share
an id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_agent.acp.capabilities import ClientCapabilities
from acp_agent.acp.child_session import total
from acp_agent.acp.outcomes import failure, stop_reason
from acp_agent.acp.progress import NEWEST, Progress
from acp_agent.session.events import Completed, Failed, Failure, Interrupted, Usage
from acp_agent.tools.base import Access, Diff, Outcome, Tool, ToolContext
from acp_agent.tools.permission import Mode
from acp_agent.tools.subagent import Subagent, SubagentFork
from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeTool, Script, ScriptedProvider, asks, call, finish, says, text_chunks
from tests.support.schema import Frame
from tests.support.world import World

pytestmark = pytest.mark.anyio


class Watcher(FakeClient):
    """Notes what was last sent whenever somebody waits for it."""

    def __init__(self, *answers: str, knows: bool = True, slow: bool = False) -> None:
        super().__init__(*answers, unstable=True)
        self.capabilities = ClientCapabilities(subagents=knows)
        self.slow = slow
        self.waited_after: list[Frame] = []

    def behind(self) -> bool:
        return self.slow

    async def drained(self) -> None:
        self.waited_after.append(self.frames[-1]["params"])


def job(call_id: str, label: str = "work") -> Any:
    return call(call_id, "subagent", description=label, prompt="do it")


async def played(tmp_path: Path, client: FakeClient, provider: ScriptedProvider, *tools: FakeTool, **more: Any) -> None:
    offered: tuple[Tool, ...] = (*tools, Subagent(), SubagentFork())
    async with World(tmp_path, provider, *offered, views=client.views(*offered), **more) as world:
        assert await world.prompt(world.session()) == Completed()


def progress(client: FakeClient, call_id: str) -> list[str]:
    return [one["content"][0]["content"]["text"] for one in client.updates("tool_call_update")
            if one["toolCallId"] == call_id and one["status"] == "in_progress" and "content" in one]


async def test_what_a_child_streams_waits_for_a_slow_client_where_it_is_sent(tmp_path: Path) -> None:
    for knows in (True, False):
        directory = tmp_path / str(knows)
        directory.mkdir()
        client = Watcher(knows=knows)
        slowly: Script = [text_chunks("the child's words"), [finish()]]
        provider = ScriptedProvider(asks(job("p")), says("done"), children={"p": [slowly]})
        await played(directory, client, provider)
        childs = [one for one in client.waited_after if "the child's words" in str(one)]
        assert bool(childs) is knows


async def test_a_slow_client_is_spared_progress(tmp_path: Path) -> None:
    client = Watcher(knows=False, slow=True)
    provider = ScriptedProvider(asks(job("p")), says("done"), children={"p": [asks(call("c", "peek")), says("ok")]})
    await played(tmp_path, client, provider, FakeTool("peek"))
    assert progress(client, "p") == []
    assert [one["status"] for one in client.updates("tool_call_update")] == ["in_progress", "completed"]


async def test_calls_that_share_an_id_show_each_its_own_child(tmp_path: Path) -> None:
    client = Watcher(knows=False)
    provider = ScriptedProvider(asks(job("p", "one")), asks(job("p", "two")), says("done"),
                                children={"p": [says("first")], "p[1]": [says("second")]})
    await played(tmp_path, client, provider)
    assert (progress(client, "p"), progress(client, "p#2")) == (['- "first"'], ['- "second"'])


async def test_the_child_of_an_announced_child_is_shown_in_its_call_once_the_client_wants_no_more_of_them(
    tmp_path: Path,
) -> None:
    async def forget(args: dict[str, Any], context: ToolContext) -> Outcome:
        client.capabilities = ClientCapabilities()
        return Outcome.text("forgotten")

    client = Watcher("allow-once")
    provider = ScriptedProvider(asks(job("p", "outer")), says("done"), children={
        "p": [asks(call("f", "forget")), asks(job("q", "inner")), says("ok")],
        "p/q": [asks(call("c", "change")), says("deep")]})
    await played(tmp_path, client, provider, FakeTool("forget", forget),
                 FakeTool("change", access=Access.EDIT, diffs=(Diff("/w/x", "new", "old"),)), mode=Mode.ASK)
    announced = [one["sessionId"] for one in client.updates("subagent_update") if "title" in one]
    assert len(announced) == 1
    (question,) = client.questions
    assert (question["sessionId"], question["toolCall"]["toolCallId"]) == (announced[0], "p/q/c")
    assert progress(client, "q") == ["- change something", '- change something\n- "deep"']


async def test_a_child_without_a_description_has_a_name_and_its_fork_is_told(tmp_path: Path) -> None:
    client = Watcher()
    provider = ScriptedProvider(asks(call("p", "subagent_fork", description="", prompt="\n Go on.\nSoon.")),
                                says("done"), children={"p": [says("ok")]})
    await played(tmp_path, client, provider)
    (first, last) = client.updates("subagent_update")
    assert (first["title"], first["description"]) == ("subagent", "fork: Go on.…")
    assert set(last) == {"sessionUpdate", "sessionId", "state"}


def test_the_newest_lines_are_shown_and_deeper_ones_are_indented() -> None:
    outer, inner = Progress(), Progress()
    assert outer.text == ""
    (deed,) = outer.answer("Two\nlines", ["Do it"])
    deed.inside = inner
    inner.answer(" \n", ["Look"])[0].failed = True
    assert outer.text == '- "Two…"\n- Do it\n  - Look (failed)'
    inner.answer("", [str(number) for number in range(NEWEST)])
    assert outer.text.split("\n") == ["- ...", *(f"  - {number}" for number in range(NEWEST))]


def test_tokens_are_added_up_kind_by_kind() -> None:
    both = total([Usage(1, 2, 4), Usage(8, 16, 32, 64, 3)])
    assert msgspec.to_builtins(both) == {
        "totalTokens": 127, "inputTokens": 9, "outputTokens": 18, "cachedReadTokens": 36, "cachedWriteTokens": 64}
    assert total([]) is msgspec.UNSET


def test_a_turn_has_a_reason_or_a_failure() -> None:
    failed = Failed(Failure("no key", "AUTH"))
    assert (stop_reason(failed), stop_reason(Interrupted()), stop_reason(None)) == (None, None, None)
    problem = failure(failed)
    assert problem is not None
    assert (problem.message, problem.code) == ("the turn failed: no key", -32603)
    assert failure(Interrupted()) is not None
    assert failure(Completed()) is failure(None) is None
