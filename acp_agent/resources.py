"""Resources as a model reads them: a client's in a prompt, and an MCP server's in a result."""

from __future__ import annotations

import re

_TEXT_TYPE = re.compile(
    r"text/.+|application/(x-)?(json|jsonl|ndjson|json5|xml|yaml|toml|javascript|typescript|sh|sql|graphql)"
    r"|.+\+(json|xml|yaml)"
)


def decoded(data: bytes, media_type: str | None) -> str | None:
    """The text that a resource sent as bytes is; None where it is none: by its type, no UTF-8, or with a NUL."""
    plain = (media_type or "text/plain").partition(";")[0].strip().lower()
    if not _TEXT_TYPE.fullmatch(plain) or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def link(
    name: str, uri: str, title: str | None = None, description: str | None = None, media_type: str | None = None,
    size: int | None = None,
) -> str:
    """A link in Markdown, and after it what else is said of where it leads."""
    about = "; ".join(filter(None, [
        f"title: {title}" if title and title != name else None, media_type, None if size is None else f"{size} bytes",
    ]))  # fmt: skip
    told = f"[{name}]({uri})" + (f" ({about})" if about else "")
    return f"{told}: {description}" if description else told
