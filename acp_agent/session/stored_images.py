"""Images that a log refers to, fetched from the store for whoever is going to show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from acp_agent.errors import AgentError
from acp_agent.ids import BlobId, SessionId
from acp_agent.session.events import Body, ContentBlock, ImageBlock, Opaque, ToolResult, UserMessage
from acp_agent.session.prompts import attachment
from acp_agent.stores.base import Store

See: TypeAlias = Callable[[BlobId, bytes], None]
"""Takes an image that is going to be shown."""


def shown_content(body: Body | Opaque) -> Iterable[ContentBlock]:
    """The content of an event that may hold images that are shown."""
    if isinstance(body, UserMessage):
        return body.content
    if isinstance(body, ToolResult):
        return [block for result in body.message.content for block in result.content]
    return ()


async def fetch_images(
    store: Store, session: SessionId, content: Iterable[ContentBlock], see: See, warn: Callable[[str], None]
) -> None:
    """Hand over the images that content refers to. One that is not there is shown as text: that stops nothing."""
    for block in content:
        about = attachment(block) if isinstance(block, ImageBlock) else None
        if about is None:
            continue
        try:
            see(about.attachment_id, await store.blob(session, about.attachment_id))
        except AgentError as error:
            warn(f"session {session}: an image cannot be shown: {error.message}")
