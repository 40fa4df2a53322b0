"""Images of the log as the client is shown them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType

from acp_agent.acp.schema import ImageContent, TextContent
from acp_agent.ids import BlobId
from acp_agent.session.events import ImageBlock
from acp_agent.session.prompts import Attachment, attachment

MAX_SHOWN = 12 * 1024 * 1024
"""Bytes of images in one update; more would make a line that clients refuse to read (ACP digest 1.1)."""


class Pictures:
    """The images of the events to come. What an event refers to and nobody handed over is shown as text."""

    def __init__(self) -> None:
        self._data: dict[BlobId, bytes] = {}

    def see(self, blob: BlobId, data: bytes) -> None:
        """Keep an image for the events that refer to it."""
        self._data[blob] = data

    def forget(self) -> None:
        """Those events have happened."""
        self._data.clear()

    def shown(self, block: ImageBlock) -> TextContent | ImageContent:
        """One image."""
        return self._shown(block, MAX_SHOWN)

    def together(self, blocks: Iterable[ImageBlock]) -> list[TextContent | ImageContent]:
        """The images of one update: those that there is no room for are named."""
        room, found = MAX_SHOWN, list[TextContent | ImageContent]()
        for block in blocks:
            content = self._shown(block, room)
            if isinstance(content, ImageContent):
                room -= len(content.data) * 3 // 4
            found.append(content)
        return found

    def _shown(self, block: ImageBlock, room: int) -> TextContent | ImageContent:
        about = attachment(block)
        if about is None:
            return TextContent("(an image that is not shown)")
        data = self._data.get(about.attachment_id)
        if data is None:
            return TextContent(f"(an image that is missing here: {_words(about)})")
        if len(data) > room:
            return TextContent(f"(one more image: {_words(about)})")
        return ImageContent(base64.b64encode(data).decode(), about.media_type, _address(about))


def _words(about: Attachment) -> str:
    return f"{about.media_type}, {about.width} x {about.height} pixels"


def _address(about: Attachment) -> str | UnsetType:
    """An image's name, where that is an address."""
    try:
        return about.name if about.name and urlsplit(about.name).scheme else UNSET
    except ValueError:
        return UNSET
