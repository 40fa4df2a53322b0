"""A database that is reached through links is one database: its files and locks lie beside the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.errors import SessionHeld, StoreError
from acp_agent.ids import SessionId
from acp_agent.stores.sqlite import SqliteStore
from tests.support.store_builders import ROOT, fill, listed, root_header, stored, title, turn

pytestmark = pytest.mark.anyio

EVENTS = turn(1, 0)


def link_to_file(tmp_path: Path) -> Path:
    (tmp_path / "link.db").symlink_to("real/s.db")
    return tmp_path / "link.db"


def link_to_directory(tmp_path: Path) -> Path:
    (tmp_path / "link").symlink_to("real")
    return tmp_path / "link" / "s.db"


def chain(tmp_path: Path) -> Path:
    (tmp_path / "first.db").symlink_to(link_to_directory(tmp_path))
    (tmp_path / "second.db").symlink_to("first.db")
    return tmp_path / "second.db"


@pytest.mark.parametrize("link", [link_to_file, link_to_directory, chain])
async def test_whoever_comes_through_a_link_is_one_of_all_who_use_the_database(
    tmp_path: Path, link: Callable[[Path], Path],
) -> None:
    (tmp_path / "real").mkdir()
    direct = SqliteStore(tmp_path / "real" / "s.db")
    await stored(direct, root_header(), EVENTS)
    linked = SqliteStore(link(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    opened = await linked.load(ROOT)
    opened.appender.append(title(len(EVENTS), "through the link"))
    await opened.appender.sync()
    with pytest.raises(SessionHeld):
        await direct.load(ROOT)
    assert linked.spill_directory(ROOT).parent == tmp_path / "real" / "s.db-output"
    await opened.appender.aclose()
    held = await direct.load(ROOT)
    with pytest.raises(SessionHeld):
        await linked.delete(ROOT)
    await held.appender.aclose()
    await linked.delete(ROOT)
    assert await listed(direct) == []
    await linked.aclose()
    await direct.aclose()
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["s.db"]


async def test_a_link_to_what_is_not_there_yet_makes_the_database_where_it_leads(tmp_path: Path) -> None:
    link = link_to_file(tmp_path)
    store = SqliteStore(link)
    assert await listed(store) == []
    assert not (tmp_path / "real").exists()
    appender = store.create(root_header(), ROOT)
    fill(appender, EVENTS)
    await appender.sync()
    await store.put_blob(ROOT, b"content")
    await store.aclose()
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["s.db"]


async def test_a_link_that_leads_to_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "s.db").symlink_to("s.db")
    store = SqliteStore(tmp_path / "s.db")
    for use in (store.list, lambda: store.load(SessionId("x"))):
        with pytest.raises(StoreError, match=r"s\.db: .*[Ss]ymbolic links"):
            await use()
    await store.aclose()
