"""What a server's tool answered, as a tool result: text, and images that a model can be given."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from acp_agent.images import BadImage, Image, examine
from acp_agent.resources import decoded, link
from acp_agent.session.events import ImageBlock, TextBlock
from acp_agent.text import scrub

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

KeepImage: TypeAlias = Callable[[bytes, Image, str], Awaitable[ImageBlock]]
"""Stores an image with the session: its bytes, what it is, and what it is called."""

ResultPart: TypeAlias = TextBlock | ImageBlock

MAX_TEXT = 64_000
"""Characters of text one answer may have; the rest is cut."""

MAX_IMAGES = 10
"""Images one answer may have; the rest are left out."""


async def result_parts(answer: CallToolResult, keep: KeepImage) -> tuple[ResultPart, ...]:
    """The answer's parts in order; what cannot be given to a model is described instead. Never empty."""
    parts = [await _part(block, keep) for block in _with_room_for_images(answer.content)]
    if answer.structured_content is not None and not any(isinstance(part, TextBlock) for part in parts):
        parts.append(TextBlock(_json(answer.structured_content)))
    return _within(parts) or (TextBlock("(no output)"),)


def _with_room_for_images(content: Sequence[ContentBlock]) -> list[ContentBlock]:
    images = [at for at, block in enumerate(content) if block.type == "image"]
    left_out = set(images[MAX_IMAGES:])
    return [block for at, block in enumerate(content) if at not in left_out]


async def _part(block: ContentBlock, keep: KeepImage) -> ResultPart:
    match block.type:
        case "text":
            return TextBlock(scrub(block.text))
        case "image":
            return await _image(block.data, keep)
        case "audio":
            return TextBlock(f"(audio, {block.mime_type}, which cannot be listened to here)")
        case "resource_link":
            return TextBlock(scrub(link(block.name, str(block.uri), block.title, block.description, block.mime_type,
                                        block.size)))  # fmt: skip
        case "resource":
            return await _resource(block.resource, keep)


async def _resource(resource: Any, keep: KeepImage) -> ResultPart:
    text = getattr(resource, "text", None)
    if text is not None:
        return TextBlock(scrub(f"{resource.uri}:\n{text}"))
    about = f"{resource.uri}, {resource.mime_type or 'of an unknown type'}"
    try:
        data = base64.b64decode(resource.blob, validate=True)
    except ValueError:
        return TextBlock(scrub(f"({about}, is not base64)"))
    text = decoded(data, resource.mime_type)
    if text is not None:
        return TextBlock(scrub(f"{resource.uri}:\n{text}"))
    if (resource.mime_type or "").startswith("image/"):
        return await _image(resource.blob, keep)
    try:
        return await keep(data, examine(data), "")
    except BadImage:
        return TextBlock(scrub(f"({about}, is not text)"))


async def _image(data: str, keep: KeepImage) -> ResultPart:
    try:
        content = base64.b64decode(data, validate=True)
        return await keep(content, examine(content), "")
    except ValueError:
        return TextBlock("(an image that cannot be shown: it is not base64)")
    except BadImage as problem:
        return TextBlock(f"(an image that cannot be shown: {problem})")


def _json(value: Any) -> str:
    return scrub(json.dumps(value, ensure_ascii=False, indent=2))


def _within(parts: Sequence[ResultPart]) -> tuple[ResultPart, ...]:
    """The parts with at most `MAX_TEXT` characters of text in all, and what was cut said once."""
    total = sum(len(part.text) for part in parts if isinstance(part, TextBlock))
    if total <= MAX_TEXT:
        return tuple(parts)
    room, kept = MAX_TEXT, list[ResultPart]()
    for part in parts:
        if not isinstance(part, TextBlock):
            kept.append(part)
        elif room:
            kept.append(TextBlock(part.text[:room]))
            room -= min(room, len(part.text))
    return *kept, TextBlock(f"[cut: the answer has {total} characters of text, the first {MAX_TEXT} are shown]")
