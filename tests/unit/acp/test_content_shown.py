"""Images in sessions: stored before anything runs, referred to by the log, shown again, never in anybody's way."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from acp_agent.acp.content import prompt_parts
from acp_agent.acp.pictures import MAX_SHOWN
from acp_agent.acp.projection import Projection
from acp_agent.errors import BlobNotFound, StoreError
from acp_agent.ids import BlobId, CallId, MessageId, SessionId
from acp_agent.images import examine
from acp_agent.loop.digests import RequestDigester, Tokeniser, digest
from acp_agent.session.codec import encode_line
from acp_agent.session.events import (
    Event,
    HeaderContent,
    ImageBlock,
    ModelConfig,
    Source,
    TextBlock,
    ToolContent,
    ToolResult,
    ToolResultBlock,
    TurnStart,
    UserMessage,
)
from acp_agent.session.prompts import ImagePart, blob_id, image_block
from acp_agent.stores.jsonl import JsonlStore
from acp_agent.tools.base import Outcome, RecordedCall, ToolContext
from acp_agent.tools.registry import Registry
from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeTool, ScriptedProvider, asks, call, says
from tests.support.images import GIF, JPEG, PNG, encoded
from tests.support.world import RecordedEffects, World, bodies, own_shape

pytestmark = pytest.mark.anyio

IMAGE = {"type": "image", "data": encoded(PNG), "mimeType": "image/png", "uri": "file:///w/shot.png"}
PROMPT = [{"type": "text", "text": "What is "}, IMAGE, {"type": "text", "text": "this?"}]
SHOWN = {"type": "image", "data": encoded(PNG), "mimeType": "image/png"}


def parts(*blocks: Any) -> Any:
    return prompt_parts([Raw(msgspec.json.encode(block)) for block in blocks])


def block_of(data: bytes, name: str | None = None) -> ImageBlock:
    return image_block(ImagePart(data, examine(data), name))


class DiskStore(JsonlStore):
    """A store whose disk is full when `full` says so, and slow while `gate` is there."""

    full = False
    gate: anyio.Event | None = None
    puts = 0

    async def put_blob(self, session_id: SessionId, data: bytes) -> BlobId:
        self.puts += 1
        if self.full:
            raise StoreError("blobs/x: content of 102 bytes cannot be kept: No space left on device")
        if self.gate is not None:
            await self.gate.wait()
        return await super().put_blob(session_id, data)


# ---------------------------------------------------------------- the log, and what the model is given


async def test_the_log_refers_to_an_image_that_is_stored_before_its_turn_begins(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "logs")
    store.gate = anyio.Event()
    provider = ScriptedProvider(says("A picture."))
    async with World(tmp_path, provider, store=store) as world:
        session = world.session()
        admitted = session.admit(parts(*PROMPT))
        await anyio.wait_all_tasks_blocked()
        assert (store.puts, world.view.events) == (1, [])
        store.gate.set()
        await world.outcome(admitted)
        (message,) = bodies(world.view.events, UserMessage)
        assert [type(block) for block in message.content] == [TextBlock, ImageBlock, TextBlock]
        assert msgspec.json.decode(message.content[1].attachment) == {
            "attachmentId": blob_id(PNG), "mediaType": "image/png", "bytes": len(PNG), "width": 5, "height": 3,
            "name": "file:///w/shot.png"}
        assert await store.blob(session.place.session, blob_id(PNG)) == PNG
        assert provider.requests[0].messages == (message,)
    assert PNG not in world.path(session.place.session).read_bytes()


async def test_an_image_that_cannot_be_stored_fails_its_prompt_alone(tmp_path: Path) -> None:
    store, provider = DiskStore(tmp_path / "logs"), ScriptedProvider(says("Fine."))
    async with World(tmp_path, provider, store=store) as world:
        session = world.session()
        store.full = True
        with pytest.raises(StoreError, match="No space left on device"):
            await world.outcome(session.admit(parts(*PROMPT)))
        assert (provider.requests, world.view.events) == ([], [])
        store.full = False
        await world.prompt(session)
    assert [body.turn for body in bodies(world.stored(session).events, TurnStart)] == [1]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_prompt_can_be_cancelled_while_its_images_are_stored(tmp_path: Path, alone: bool) -> None:
    store, provider = DiskStore(tmp_path / "logs"), ScriptedProvider(says("Fine."))
    store.gate = anyio.Event()
    async with World(tmp_path, provider, store=store) as world:
        session = world.session()
        admitted = session.admit(parts(IMAGE, {**IMAGE, "data": encoded(GIF), "mimeType": "image/gif"}))
        await anyio.wait_all_tasks_blocked()
        if alone:
            session.cancel_prompt(admitted)
        else:
            session.cancel()
        store.gate.set()
        outcome = await world.outcome(admitted)
        assert type(outcome).__name__ == "Aborted"
        assert (store.puts, provider.requests) == (1, []), "nobody needs the other image"
        await world.prompt(session)
    assert own_shape(world.stored(session).events, 1) == ["turn/start", "turn/end"]


def test_a_request_is_digested_by_what_its_images_show() -> None:
    def digests(*content: Any) -> Any:
        digester = RequestDigester(Tokeniser(["/w"], "/home/nobody"))
        message = UserMessage(content, Source("user"), "user", MessageId("m"))
        return digester.parts(HeaderContent(ModelConfig("p", "m")), [message], 0).messages.added

    one = digests(TextBlock("a"), block_of(PNG, "file:///x.png"))
    assert one == digests(TextBlock("a"), block_of(PNG))
    assert one != digests(TextBlock("a"), block_of(GIF))
    assert one != digests(block_of(PNG), TextBlock("a"))
    odd = ImageBlock(Raw(b'{"attachmentId": 7}'))
    assert digests(odd) != digests(ImageBlock(Raw(b'{"attachmentId": 8}')))


def test_text_is_digested_as_it_stands_in_the_log() -> None:
    tokenise = Tokeniser(["/w"], "/home/nobody")
    prompt = UserMessage((TextBlock("go to /w"),), Source("user"), "user", MessageId("m"))
    result = ToolResult(1, 1, ToolContent(
        Source("tool", call_id=CallId("c")), (ToolResultBlock(CallId("c"), (TextBlock("x"),), False),), "user",
        MessageId("r")))
    parts = RequestDigester(tokenise).parts(HeaderContent(ModelConfig("p", "m")), [prompt, result], 0)
    assert parts.messages.added == [digest(line + b"\n") for line in (
        b'["user",[{"type":"text","text":"go to {{cwd}}"}]]',
        b'["tool",[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"x"}],"isError":false}]]')]


# ---------------------------------------------------------------- what is shown again


async def photographed(args: dict[str, Any], context: ToolContext, world: World) -> Outcome:
    session = world.manager.get(context.session_id)
    image = await session.keep_image(JPEG, examine(JPEG))
    return Outcome((TextBlock("Here it is."), image, TextBlock(" Again."), image))


async def test_prompts_and_results_show_their_images_on_load_as_live(tmp_path: Path) -> None:
    provider = ScriptedProvider(asks(call("c", "photo"), call("d", "photo")), says("Nice."), says("Still nice."))
    client, other = FakeClient(), FakeClient()
    holder: list[World] = []
    tool = FakeTool("photo", lambda args, context: photographed(args, context, holder[0]), parallel=True)
    async with World(tmp_path, provider, tool, views=client.views(tool)) as world:
        holder.append(world)
        session = world.session()
        await world.outcome(session.admit(parts(*PROMPT)))
        name = session.place.session
        await world.manager.close(name).result()
    assert client.updates("user_message_chunk") == [], "a live client knows what it sent"
    async with World(tmp_path, provider, tool, views=other.views(tool)) as world:
        opening = world.manager.load(name, str(world.cwd), show=True)
        session = await opening.work.result()
        world.manager.opened(opening)
        chunks = other.updates("user_message_chunk")
        assert [chunk["content"] for chunk in chunks] == [
            {"type": "text", "text": "What is "}, IMAGE, {"type": "text", "text": "this?"}]
        assert len({chunk["messageId"] for chunk in chunks}) == 1
        live, loaded = ([update for update in one.updates("tool_call_update") if update.get("status") == "completed"]
                        for one in (client, other))
        assert live == loaded
        photo = {"type": "image", "data": encoded(JPEG), "mimeType": "image/jpeg"}
        assert [[item["content"] for item in update["content"]] for update in live] == [
            [{"type": "text", "text": "presented"}, photo, photo]] * 2
        assert live[0]["rawOutput"] == {"text": "Here it is. Again.", "isError": False}
        await world.prompt(session)
        assert isinstance(provider.requests[-1].messages[0], UserMessage)
        assert isinstance(provider.requests[-1].messages[0].content[1], ImageBlock)


async def test_a_missing_image_is_shown_as_text_and_the_session_goes_on(tmp_path: Path) -> None:
    provider, client = ScriptedProvider(says("Nice."), says("Fine.")), FakeClient()
    async with World(tmp_path, provider) as world:
        session = world.session()
        await world.outcome(session.admit(parts(*PROMPT)))
        name = session.place.session
    (stored,) = tmp_path.rglob(blob_id(PNG))
    stored.unlink()
    async with World(tmp_path, provider, views=client.views()) as world:
        world.expect_warnings = True
        opening = world.manager.load(name, str(world.cwd), show=True)
        session = await opening.work.result()
        world.manager.opened(opening)
        assert [chunk["content"]["text"] for chunk in client.updates("user_message_chunk")] == [
            "What is ", "(an image that is missing here: image/png, 5 x 3 pixels)", "this?"]
        await world.prompt(session)
        with pytest.raises(BlobNotFound):
            await world.store.blob(name, blob_id(PNG))
    assert name in world.warned[0]


async def test_a_fork_has_the_images_of_its_source(tmp_path: Path) -> None:
    async with World(tmp_path, ScriptedProvider(says("Nice."))) as world:
        session = world.session()
        await world.outcome(session.admit(parts(*PROMPT)))
        fork = await world.manager.fork(session.place.session, str(world.cwd)).result()
        assert await world.store.blob(fork.place.session, blob_id(PNG)) == PNG
        assert bodies(world.stored(fork).events, UserMessage) == bodies(world.stored(session).events, UserMessage)


@pytest.mark.parametrize("there", [True, False])
async def test_a_recorded_result_brings_its_images_along(tmp_path: Path, there: bool) -> None:
    outcome = Outcome((TextBlock("see"), block_of(GIF)))
    effects, client = RecordedEffects(c=RecordedCall(outcome)), FakeClient()
    if there:
        effects.images[blob_id(GIF)] = GIF
    tool = FakeTool("photo")
    async with World(tmp_path, ScriptedProvider(asks(call("c", "photo")), says("Nice.")), tool, effects=effects,
                     views=client.views(tool)) as world:
        world.expect_warnings = not there
        session = world.session()
        await world.prompt(session)
        assert list(await world.store.blobs(session.place.session)) == [blob_id(GIF)] * there
        (result,) = [body for body in session.log.state.history if isinstance(body, ToolResult)]
        assert result.message.content[0].content == outcome.content
    (shown,) = client.updates("tool_call_update")[1:]
    assert shown["content"][1]["content"]["type"] == ("image" if there else "text")


def test_an_image_beside_text_that_is_no_text_can_be_logged() -> None:
    line = encode_line((TextBlock("a\udcff"), block_of(PNG)))
    assert msgspec.json.decode(line)[0]["text"].startswith("a\ufffd")
    assert msgspec.json.decode(line)[1]["attachment"]["attachmentId"] == blob_id(PNG)


# ---------------------------------------------------------------- the projection alone


def user(*content: Any) -> Event:
    return Event(0, 0, UserMessage(content, Source("user"), "user", MessageId("m")))


def test_an_image_is_forgotten_once_its_event_is_past() -> None:
    projection = Projection(Registry(()), Path("/w"))
    projection.pictures.see(blob_id(PNG), PNG)
    (first,) = projection.past(user(block_of(PNG)))
    (second,) = projection.past(user(block_of(PNG)))
    assert msgspec.to_builtins(first)["content"] == SHOWN
    assert "missing" in msgspec.to_builtins(second)["content"]["text"]


@pytest.mark.parametrize("name", ["shot.png", "", "a b", "http://[", None])
def test_only_an_address_is_shown_as_one(name: str | None) -> None:
    projection = Projection(Registry(()), Path("/w"))
    projection.pictures.see(blob_id(PNG), PNG)
    (update,) = projection.past(user(block_of(PNG, name)))
    assert msgspec.to_builtins(update)["content"] == SHOWN


def test_an_image_that_another_writer_described_in_its_own_way_is_shown_as_text() -> None:
    projection = Projection(Registry(()), Path("/w"), settled=True)
    (update,) = projection.updates(user(ImageBlock(Raw(b'{"url": "x"}'))))
    assert msgspec.to_builtins(update)["content"] == {"type": "text", "text": "(an image that is not shown)"}


def test_one_update_never_gets_too_long_for_a_client_to_read() -> None:
    projection = Projection(Registry(()), Path("/w"))
    large = [PNG + bytes([number]) * (4 * 1024 * 1024) for number in range(4)]
    for data in large:
        projection.pictures.see(blob_id(data), data)
    shown = projection.pictures.together([block_of(data) for data in large])
    assert [type(content).__name__ for content in shown] == ["ImageContent"] * 2 + ["TextContent"] * 2
    assert sum(len(base64.b64decode(content.data)) for content in shown[:2] if hasattr(content, "data")) <= MAX_SHOWN
    assert "one more image: image/png, 5 x 3 pixels" in msgspec.to_builtins(shown[2])["text"]
