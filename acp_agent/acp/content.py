"""A prompt's content blocks, as the model is given them: text, and images.

Links and embedded text resources become text, whichever way the text was sent. Nothing is fetched: a link is a name and
an address, and opening it is the model's business, through the tools.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Raw

from acp_agent.acp.schema import BlockProbe, EmbeddedResource, ImageContent, ResourceLink, TextContent
from acp_agent.errors import InvalidParams
from acp_agent.images import KINDS, BadImage, examine
from acp_agent.resources import decoded, link
from acp_agent.session.prompts import ImagePart, PromptPart, TextPart

MAX_IMAGES = 20
"""Images in one prompt: every later request carries them again."""

_probe = msgspec.json.Decoder(BlockProbe).decode
_text = msgspec.json.Decoder(TextContent).decode
_link = msgspec.json.Decoder(ResourceLink).decode
_image = msgspec.json.Decoder(ImageContent).decode
_resource = msgspec.json.Decoder(EmbeddedResource).decode


def prompt_parts(blocks: Sequence[Raw]) -> Sequence[PromptPart]:
    """A prompt's parts in order; text that follows text is joined to it, and none is empty.

    Raises `InvalidParams` naming the block that cannot be taken, or `prompt` where the blocks say nothing.
    """
    if not blocks:
        raise InvalidParams("prompt: expected at least one content block, got none")
    parts: list[PromptPart] = []
    for at, raw in enumerate(blocks):
        part = _part(f"prompt[{at}]", raw)
        last = parts[-1] if parts else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            parts[-1] = TextPart(last.text + part.text)
        else:
            parts.append(part)
    parts = [part for part in parts if part != TextPart("")]
    if not any(isinstance(part, ImagePart) or part.text.strip() for part in parts):
        raise InvalidParams("prompt: expected something that is said or shown, got only blank text")
    images = sum(isinstance(part, ImagePart) for part in parts)
    if images > MAX_IMAGES:
        raise InvalidParams(f"prompt: expected at most {MAX_IMAGES} images, got {images}")
    return parts


def _part(where: str, raw: Raw) -> PromptPart:
    try:
        kind = _probe(raw).type
        if kind == "text":
            return TextPart(_text(raw).text)
        if kind == "resource_link":
            return TextPart(_told(_link(raw)))
        if kind == "image":
            image = _image(raw)
            data = _decoded(f"{where}.data", image.data)
            return _picture(where, data, _plain_type(image.mime_type), _text_or_none(image.uri))
        if kind == "resource":
            return _embedded(where, _resource(raw))
    except msgspec.ValidationError as error:
        raise InvalidParams(f"{where}: {error}") from None
    if kind == "audio":
        raise InvalidParams(f"{where}: audio blocks need the prompt capability audio, which is not offered")
    known = "text, resource_link, image or resource"
    raise InvalidParams(f"{where}: unknown content block type {kind!r}; expected {known}")


def _told(given: ResourceLink) -> str:
    size = given.size if type(given.size) is int and given.size >= 0 else None
    title, description, media_type = map(_text_or_none, (given.title, given.description, given.mime_type))
    return link(given.name, given.uri, title, description, media_type, size)


def _embedded(where: str, block: EmbeddedResource) -> PromptPart:
    """An embedded resource: its text between tags that name it, or the image it is."""
    resource = block.resource
    media_type = _text_or_none(resource.mime_type)
    if isinstance(resource.text, str):
        return TextPart(_tagged(resource.uri, media_type, resource.text))
    if not isinstance(resource.blob, str):
        raise InvalidParams(f"{where}.resource: expected `text` or `blob`")
    data = _decoded(f"{where}.resource.blob", resource.blob)
    if media_type is not None and _plain_type(media_type) in KINDS:
        return _picture(f"{where}.resource", data, _plain_type(media_type), resource.uri)
    with suppress(BadImage):
        return ImagePart(data, examine(data), resource.uri)
    text = decoded(data, media_type)
    told = f"({len(data)} bytes that are not text and not shown)" if text is None else text
    return TextPart(_tagged(resource.uri, media_type, told))


def _tagged(uri: str, media_type: str | None, text: str) -> str:
    about = "" if media_type is None else f' type="{_attribute(media_type)}"'
    tag = _tag(text)
    return f'\n<{tag} uri="{_attribute(uri)}"{about}>\n{text}\n</{tag}>\n'


_END_TAG = re.compile(r"<\s*/\s*(resource(?:-\d+)?)(?![\w.:-])", re.IGNORECASE)


def _tag(text: str) -> str:
    """A tag that the text does not end: text is given as it is, and yet can claim nothing about what follows it."""
    ended = {match[1].lower() for match in _END_TAG.finditer(text)}
    tag, number = "resource", 1
    while tag in ended:
        number += 1
        tag = f"resource-{number}"
    return tag


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _picture(where: str, data: bytes, media_type: str, name: str | None) -> ImagePart:
    try:
        image = examine(data)
    except BadImage as problem:
        raise InvalidParams(f"{where}: the image cannot be used: {problem}") from None
    if media_type != image.media_type:
        raise InvalidParams(f"{where}.mimeType: {media_type!r}, but the image is {image.media_type}")
    return ImagePart(data, image, name)


def _plain_type(media_type: str) -> str:
    """A media type without parameters, in its usual spelling."""
    plain = media_type.partition(";")[0].strip().lower()
    return "image/jpeg" if plain == "image/jpg" else plain


def _text_or_none(value: object) -> str | None:
    """A member that a receiver takes for absent where it is malformed (ACP schema)."""
    return value if isinstance(value, str) and value else None


def _decoded(where: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams(f"{where}: expected base64") from None
