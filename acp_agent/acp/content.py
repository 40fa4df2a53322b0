"""A prompt's content blocks, as the model is given them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from acp_agent.acp.schema import BlockProbe, ResourceLink, TextContent
from acp_agent.errors import InvalidParams

_probe = msgspec.json.Decoder(BlockProbe).decode
_text = msgspec.json.Decoder(TextContent).decode
_link = msgspec.json.Decoder(ResourceLink).decode

_UNADVERTISED = {"image": "image", "audio": "audio", "resource": "embeddedContext"}
"""Block types that need a prompt capability this agent does not advertise."""


def prompt_text(blocks: Sequence[Raw]) -> str:
    """The text of a prompt: its text blocks joined, links in brackets.

    Raises `InvalidParams` naming the block that cannot be taken.
    """
    if not blocks:
        raise InvalidParams("prompt: expected at least one content block, got none")
    return "".join(_block_text(at, block) for at, block in enumerate(blocks))


def _block_text(at: int, raw: Raw) -> str:
    try:
        kind = _probe(raw).type
        if kind == "text":
            return _text(raw).text
        if kind == "resource_link":
            link = _link(raw)
            return f"[{link.name}]({link.uri})"
    except msgspec.ValidationError as error:
        raise InvalidParams(f"prompt[{at}]: {error}") from None
    if kind in _UNADVERTISED:
        raise InvalidParams(
            f"prompt[{at}]: {kind} blocks need the prompt capability {_UNADVERTISED[kind]}, which is not offered"
        )
    raise InvalidParams(f"prompt[{at}]: unknown content block type {kind!r}; expected text or resource_link")
