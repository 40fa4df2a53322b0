"""A prompt on its way into a session: its parts, the message they become, and the images to store first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acp_agent.ids import BlobId
from acp_agent.images import Image
from acp_agent.session.events import ImageBlock, LogStruct, TextBlock


class TextPart(Struct, frozen=True):
    """Text, as typed or as a link or resource reads."""

    text: str


class ImagePart(Struct, frozen=True):
    """A whole image; `name` is what it was called, where that was said."""

    data: bytes
    image: Image
    name: str | None = None


PromptPart = TextPart | ImagePart


class Attachment(LogStruct, frozen=True):
    """What an image block says of its image: where it is stored, what it is, how large (format reference 1.4)."""

    attachment_id: BlobId
    media_type: str
    bytes: int
    width: int
    height: int
    name: str | UnsetType = UNSET


def blob_id(data: bytes) -> BlobId:
    """The name content is stored under."""
    return BlobId(hashlib.sha256(data).hexdigest())


def image_block(part: ImagePart) -> ImageBlock:
    """The block that stands for an image in the log."""
    image = part.image
    name = UNSET if part.name is None else part.name
    about = Attachment(blob_id(part.data), image.media_type, len(part.data), image.width, image.height, name)
    return ImageBlock(Raw(msgspec.json.encode(about)))


def attachment(block: ImageBlock) -> Attachment | None:
    """What an image block says of its image; None where another writer said it in another way."""
    try:
        return msgspec.json.decode(block.attachment, type=Attachment)
    except msgspec.MsgspecError:
        return None


def content(parts: Sequence[PromptPart]) -> tuple[TextBlock | ImageBlock, ...]:
    """The message content that the parts become."""
    return tuple(TextBlock(part.text) if isinstance(part, TextPart) else image_block(part) for part in parts)
