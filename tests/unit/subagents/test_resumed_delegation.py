"""A session that is continued goes on counting the children its delegating calls made."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_agent.ids import RandomIds
from acp_agent.session.events import SpawnKey
from acp_agent.tools.subagent import Subagent
from tests.support.fakes import ScriptedProvider, asks, call, says
from tests.support.world import World

pytestmark = pytest.mark.anyio


async def test_a_call_id_used_again_after_a_restart_makes_the_next_child_not_the_first(tmp_path: Path) -> None:
    job = asks(call("p", "subagent", description="d", prompt="do it"))
    async with World(tmp_path, ScriptedProvider(job, says("done"), children={"p": [says("ok")]}), Subagent()) as world:
        session = world.session()
        await world.prompt(session)
        session_id = session.place.session
    damaged = next(path for path in world.logs.rglob("session.jsonl")).parent.parent / "other" / "session.jsonl"
    damaged.parent.mkdir()
    damaged.write_bytes(b"nonsense\n")
    provider = ScriptedProvider(job, says("done"), children={"p[1]": [says("ok")]})
    async with World(tmp_path, provider, Subagent(), ids=RandomIds()) as world:
        resumed = await world.manager.load(session_id, str(world.cwd), show=False).work.result()
        await world.prompt(resumed)
        keys = [child.header.spawn for child in world.children()]
        damaged.unlink()
    assert sorted(keys, key=str) == [SpawnKey("p", 0), SpawnKey("p", 1)]  # type: ignore[arg-type]  # plain text is fine
