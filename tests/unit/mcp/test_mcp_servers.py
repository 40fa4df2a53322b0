"""The MCP servers of a session, real processes: started, called, followed, ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup

from acp_agent.ids import CallId, SessionId
from acp_agent.images import Image
from acp_agent.mcp.config import read_servers
from acp_agent.mcp.content import MAX_TEXT
from acp_agent.mcp.servers import McpServers
from acp_agent.session.events import ImageBlock, TextBlock
from acp_agent.session.prompts import ImagePart, image_block
from acp_agent.tools.base import Outcome, ToolContext, ToolFailure
from tests.support import mcp_servers, processes

pytestmark = pytest.mark.anyio


class Bench:
    """Servers with what was told of them."""

    def __init__(self, directory: Path, limit: float, *entries: dict[str, Any]) -> None:
        self.failures: list[tuple[str, str]] = []
        self.unusable: list[tuple[str, str]] = []
        self.changes = 0
        self.kept: list[Image] = []
        self.directory = directory
        configs = read_servers([msgspec.Raw(msgspec.json.encode(entry)) for entry in entries])
        self.servers = McpServers(configs, directory, self._keep, changed=self._changed,
                                  failed=lambda name, why: self.failures.append((name, why)),
                                  unusable=lambda name, what: self.unusable.append((name, what)), limit=limit)

    async def _keep(self, data: bytes, image: Image, name: str) -> ImageBlock:
        self.kept.append(image)
        return image_block(ImagePart(data, image, name))

    def _changed(self) -> None:
        self.changes += 1

    def start(self, group: TaskGroup) -> None:
        def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
            group.start_soon(work)

        self.servers.start(spawn)

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools]

    @property
    def states(self) -> list[str]:
        return [report.state for report in self.servers.report()]

    async def call(self, called: str, progress: Callable[[str], None] = lambda _: None, /, **arguments: Any) -> Outcome:
        (tool,) = [tool for tool in self.servers.tools if tool.name == called]
        context = ToolContext(
            session_id=SessionId("s"), call_id=CallId("c"), turn=1, step=1, cwd=self.directory, roots=(), confined=True,
            seen={}, progress=progress, spill=self.directory, set_todos=lambda _: None,
        )  # fmt: skip
        return await tool.run(tool.decode(msgspec.json.encode(arguments).decode()), context)

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():  # noqa: ASYNC110  # files and processes tell of nothing
                await anyio.sleep(0.005)


@asynccontextmanager
async def running(directory: Path, *entries: dict[str, Any], limit: float = 60) -> AsyncIterator[Bench]:
    """The servers of these entries, ready or failed; closed at the end, and no process of theirs may be left."""
    mark = processes.new_mark()
    for entry in entries:
        if "command" in entry:
            entry["env"].append({"name": processes.MARK, "value": mark})
    bench = Bench(directory, limit, *entries)
    async with anyio.create_task_group() as group:
        bench.start(group)
        await bench.servers.settled()
        yield bench
        await bench.servers.aclose()
    assert processes.marked(mark) == {}


def texts(outcome: Outcome) -> list[str]:
    return [part.text for part in outcome.content if isinstance(part, TextBlock)]


@pytest.fixture(params=["stdio", "http"])
def friendly(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The entry of a friendly server on either transport."""
    if request.param == "stdio":
        yield mcp_servers.stdio("friendly")
        return
    (tmp_path / "server").mkdir()
    with mcp_servers.friendly_http(tmp_path / "server") as (url, _):
        yield {"type": "http", "name": "friendly", "url": url, "headers": []}


async def test_a_servers_tools_are_called_by_their_new_names(friendly: dict[str, Any], tmp_path: Path) -> None:
    async with running(tmp_path, friendly) as bench:
        assert bench.states == ["ready (friendly 1.0)"]
        assert {"mcp__friendly__add", "mcp__friendly__fail"} <= set(bench.names)
        assert texts(await bench.call("mcp__friendly__greet", name="you")) == ["Hello you!"]
        assert texts(await bench.call("mcp__friendly__add", a=2, b=3)) == ["5"]
        outcome = await bench.call("mcp__friendly__fail")
        assert outcome.is_error
        assert texts(outcome)[0].startswith("Error: ")
        assert "no luck today" in texts(outcome)[0]
    assert (bench.states, bench.failures) == (["ended"], [])


async def test_answers_of_every_kind_are_given_on(friendly: dict[str, Any], tmp_path: Path) -> None:
    async with running(tmp_path, friendly) as bench:
        mixed = await bench.call("mcp__friendly__mixed")
        assert [type(part) for part in mixed.content] == [TextBlock, ImageBlock, *[TextBlock] * 5]
        assert bench.kept == [Image("image/png", 1, 1)]
        first, broken, audio, link, described, inside = texts(mixed)
        assert (first, audio) == ("First.", "(audio, audio/wav, which cannot be listened to here)")
        assert broken.startswith("(an image that cannot be shown: ")
        assert (link, inside) == ("[a.txt](file:///a.txt)", "file:///b.txt:\ninside")
        assert described == "[c.txt](file:///c.txt) (title: C; text/plain; 3 bytes): The third."
        assert texts(await bench.call("mcp__friendly__structured")) == ['{\n  "answer": 42\n}']
        whole, cut = texts(await bench.call("mcp__friendly__huge", size=3 * MAX_TEXT))
        assert (len(whole), cut) == (MAX_TEXT, f"[cut: the answer has {3 * MAX_TEXT} characters of text, the first "
                                               f"{MAX_TEXT} are shown]")


async def test_resources_sent_as_bytes_are_given_on_as_what_they_are(friendly: dict[str, Any], tmp_path: Path) -> None:
    async with running(tmp_path, friendly) as bench:
        held = await bench.call("mcp__friendly__held")
        assert bench.kept == [Image("image/png", 1, 1)] * 2
        assert [type(part) for part in held.content] == [*[TextBlock] * 6, *[ImageBlock] * 2, TextBlock]
        assert texts(held) == [
            "file:///0:\ncafé", "file:///1:\n{}", "file:///2:\nbare", "(file:///3, of an unknown type, is not text)",
            "(file:///4, application/pdf, is not text)", "file:///5:\n<svg/>",
            "(file:///odd, text/plain, is not base64)"]


async def test_a_cancelled_call_is_told_to_the_server_and_its_progress_was_shown(
    friendly: dict[str, Any], tmp_path: Path,
) -> None:
    shown: list[str] = []
    async with running(tmp_path, friendly) as bench, anyio.create_task_group() as group:
        group.start_soon(lambda: bench.call("mcp__friendly__slow", shown.append))
        await bench.until(lambda: bool(shown))
        assert shown == ["Digging (1 of 2)"]
        group.cancel_scope.cancel()
        told = [tmp_path / "told", tmp_path / "server" / "told"]
        with anyio.CancelScope(shield=True):
            await bench.until(lambda: any(path.exists() for path in told))
            assert texts(await bench.call("mcp__friendly__greet", name="you")) == ["Hello you!"]


async def test_new_tools_are_offered_when_the_server_tells_of_them(friendly: dict[str, Any], tmp_path: Path) -> None:
    async with running(tmp_path, friendly) as bench:
        changes = bench.changes
        await bench.call("mcp__friendly__grow")
        await bench.until(lambda: "mcp__friendly__late" in bench.names)
        assert bench.changes > changes
        assert texts(await bench.call("mcp__friendly__late", name="later")) == ["Hello later!"]


async def test_a_server_that_ends_fails_the_call_and_says_why(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("friendly"), mcp_servers.stdio("friendly", name="other")) as bench:
        with pytest.raises(ToolFailure) as caught:
            await bench.call("mcp__friendly__stop", status=7)
        why = "it ended with exit status 7: goodbye, cruel world"
        assert caught.value.message == f"the MCP server 'friendly': {why}"
        assert bench.states == [f"failed: {why}", "ready (friendly 1.0)"]
        assert bench.failures == [("friendly", why)]
        assert {name.split("__")[1] for name in bench.names} == {"other"}


async def test_an_http_server_that_ends_fails_the_call(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with mcp_servers.friendly_http(tmp_path / "server") as (url, process):
        async with running(tmp_path, {"type": "http", "name": "web", "url": url, "headers": []}) as bench:
            process.kill()
            process.wait()
            with pytest.raises(ToolFailure, match=r"^the MCP server 'web': "):
                await bench.call("mcp__web__greet", name="you")
            await bench.until(lambda: bench.states[0].startswith("failed: "))
            assert bench.names == []


async def test_headers_are_sent_and_a_refusal_says_its_status_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with mcp_servers.friendly_http(tmp_path / "server", "X-Key=hush-hush") as (url, _):
        def entry(name: str, value: str) -> dict[str, Any]:
            return {"type": "http", "name": name, "url": url, "headers": [{"name": "X-Key", "value": value}]}

        async with running(tmp_path, entry("right", "hush-hush"), entry("wrong", "other-secret")) as bench:
            assert bench.states == ["ready (friendly 1.0)", "failed: it answered 401 Unauthorized"]


async def test_of_the_agents_environment_a_server_gets_what_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with running(tmp_path, mcp_servers.stdio("friendly", env={"MINE": "1"})) as bench:
        names = texts(await bench.call("mcp__friendly__environment"))[0].split()
        assert {"MINE", "PATH"} <= set(names)
        assert set(names) <= {"MINE", "PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LC_CTYPE", processes.MARK}
        assert texts(await bench.call("mcp__friendly__where")) == [os.path.realpath(tmp_path)]


# ---------------------------------------------------------------- servers that are no good


@pytest.mark.parametrize(("entry", "why"), [
    (mcp_servers.stdio("rude", "die", "bad token hush-hush!", env={"TOKEN": "hush-hush"}),
     "it ended with exit status 3: bad token [hidden]!"),
    ({"name": "none", "command": "/no/such/program", "args": [], "env": []},
     "there is no program '/no/such/program' that can be run"),
    ({"name": "none", "command": "no-such-program", "args": [], "env": []},
     "there is no program 'no-such-program' that can be run"),
    ({"name": "mute", "command": "true", "args": [], "env": []}, "it ended"),
    ({"name": "mute", "command": "sleep", "args": ["1000"], "env": []}, "it was not ready within 3 s"),
    ({"type": "http", "name": "web", "url": "http://127.0.0.1:9/mcp", "headers": []}, "All connection attempts failed"),
])  # fmt: skip
async def test_a_server_that_cannot_be_used_says_why(entry: dict[str, Any], why: str, tmp_path: Path) -> None:
    copy = {**entry, "env": list(entry.get("env", []))} if "command" in entry else entry
    async with running(tmp_path, copy, limit=3) as bench:
        assert bench.states == [f"failed: {why}"]
        assert bench.failures == [(entry["name"], why)]


async def test_an_address_where_nobody_answers_holds_up_neither_start_nor_end(tmp_path: Path) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        entry = {"type": "http", "name": "mute", "url": f"http://127.0.0.1:{port}/?key=hush-hush", "headers": []}
        async with running(tmp_path, entry, limit=1) as bench:
            assert bench.states == ["failed: it was not ready within 1 s"]
            begun = anyio.current_time()
        assert anyio.current_time() - begun < 2


async def test_servers_start_side_by_side_and_one_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "hang"), mcp_servers.stdio("friendly"), limit=8) as bench:
        assert bench.states == ["failed: it was not ready within 8 s", "ready (friendly 1.0)"]


async def test_a_server_that_hangs_is_killed_with_what_it_started_and_in_time(tmp_path: Path) -> None:
    mark = processes.new_mark()
    bench = Bench(tmp_path, 60, mcp_servers.stdio("rude", "hang", env={processes.MARK: mark}))
    async with anyio.create_task_group() as group:
        bench.start(group)
        await bench.until((tmp_path / "hanging").exists)
        # The tether, the server, and the process that left its group.
        await bench.until(lambda: len(processes.marked(mark)) == 3)
        begun = anyio.current_time()
        await bench.servers.aclose()
        assert anyio.current_time() - begun < 2.5
        await bench.servers.settled()
    assert processes.marked(mark) == {}
    assert (bench.states, bench.failures) == (["ended"], [])


async def test_a_server_of_the_old_protocol_that_prints_other_things_too(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "old")) as bench:
        assert (bench.states, bench.names) == (["ready (rude 0)"], ["mcp__rude__first"])
        (answer,) = texts(await bench.call("mcp__rude__first"))
        assert answer.replace("\ufffd", "") == "lone  half"
        await bench.until(lambda: bench.names == ["mcp__rude__second"])


async def test_a_server_that_knows_nothing_before_initialize(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "shy")) as bench:
        assert (bench.states, bench.names) == (["ready (rude 0)"], ["mcp__rude__first"])


async def test_odd_schemas_and_names_become_ones_that_models_can_use(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "odd")) as bench:
        tools = {tool.name: tool.parameters for tool in bench.servers.tools}
        bare, referring, demanding, *others = tools
        assert tools[bare] == {"type": "object", "properties": {}}
        assert tools[referring]["properties"] == {"a": {"type": "string"}}
        assert tools[referring]["required"] == tools[demanding]["required"] == ["a"]
        same = "mcp__rude__a_name_with_spaces_and_slashes"
        assert others[:2] == [same, f"{same}_2"]
        assert [len(name) for name in others[2:]] == [64, 64]
        assert others[3].endswith("_2")


async def test_a_server_that_does_not_listen_holds_up_neither_cancel_nor_end(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "deaf")) as bench:
        begun = anyio.current_time()
        with anyio.move_on_after(0.3):
            await bench.call("mcp__rude__first", text="x" * 1_000_000)  # more than its pipe holds
        assert anyio.current_time() - begun < 1
    assert anyio.current_time() - begun < 4


async def test_an_answer_that_is_none_fails_the_call(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "garbled")) as bench:
        with pytest.raises(ToolFailure, match=r"^the MCP server 'rude': its answer is no JSON-RPC response$"):
            await bench.call("mcp__rude__first")
        assert bench.states == ["ready (rude 0)"]


async def test_tools_that_the_protocol_forbids_take_no_other_along_and_the_user_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "forbidden", env={"TOKEN": "bare"})) as bench:
        told = ("6 of 8 tools cannot be used: untyped: inputSchema.type: Field required; "
                "text: inputSchema.type: Input should be 'object'; [hidden]: inputSchema: Field required; "
                "noted: annotations: Input should be a valid dictionary or instance of ToolAnnotations; "
                "one without a name: name: Field required; and 1 more")
        assert bench.names == ["mcp__rude__good", "mcp__rude__fine"]
        assert bench.states == [f"ready (rude 0); {told}"]
        assert bench.unusable == [("rude", told)]
        assert bench.failures == []
        await bench.call("mcp__rude__good")
        await bench.until(lambda: bench.names == ["mcp__rude__second"])
        assert (bench.states, len(bench.unusable)) == (["ready (rude 0)"], 1)


async def test_content_of_unknown_kinds_takes_no_other_along(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "novel")) as bench:
        assert texts(await bench.call("mcp__rude__first")) == [
            "before", "(content of an unknown kind: video)",
            "(content of the kind image that is not as the protocol has it)", "(content of an unknown kind)",
            "(content of an unknown kind)", "after"]


async def test_content_that_is_no_list_fails_the_call(tmp_path: Path) -> None:
    async with running(tmp_path, mcp_servers.stdio("rude", "listless")) as bench:
        with pytest.raises(ToolFailure, match=r"its answer cannot be read: content: Input should be a valid list$"):
            await bench.call("mcp__rude__first")


async def test_a_servers_last_words_are_told_without_its_secrets(tmp_path: Path) -> None:
    environ: Mapping[str, str] = {"TOKEN": "hush-hush"}
    async with running(tmp_path, mcp_servers.stdio("rude", "mortal", env=environ)) as bench:
        with pytest.raises(ToolFailure, match=r"exit status 5: cannot go on: token \[hidden\]$"):
            await bench.call("mcp__rude__first")
        with pytest.raises(ValueError, match="not enough values"):
            await bench.call("mcp__rude__first")  # it is not offered any more


async def test_where_the_kernel_does_not_help_a_servers_group_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_agent.mcp.stdio._TETHERED", False)
    stubborn = {"name": "sh", "command": "sh", "args": ["-c", "trap '' TERM; sleep 1000 & touch up; wait"], "env": []}
    async with running(tmp_path, mcp_servers.stdio("friendly"), stubborn, limit=8) as bench:
        assert bench.states == ["ready (friendly 1.0)", "failed: it was not ready within 8 s"]
        assert (tmp_path / "up").exists()
        with pytest.raises(ToolFailure, match="it ended with exit status 7: goodbye, cruel world"):
            await bench.call("mcp__friendly__stop", status=7)


async def test_closing_before_a_server_is_ready_waits_for_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 60, mcp_servers.stdio("friendly"))
    async with anyio.create_task_group() as group:
        bench.start(group)
        await bench.servers.aclose()
        await bench.servers.settled()
    assert (bench.states, bench.failures) == (["ended"], [])
