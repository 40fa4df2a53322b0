"""A log's first line: the session header (format reference 1.2)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from acp_agent.errors import LogDamaged
from acp_agent.session.events import FORMAT_VERSION, SessionHeader
from acp_agent.session.records import MAX_SAFE, encode_line

_header = msgspec.json.Decoder(SessionHeader).decode


def encode_header(header: SessionHeader) -> bytes:
    """A log's first line."""
    return encode_line(header)


class _HeaderProbe(Struct, rename="camel"):
    type: Any = None
    version: Any = None
    sandbox_mode: Any = UNSET
    approval_policy: Any = UNSET


_probe = msgspec.json.Decoder(_HeaderProbe).decode


def decode_header(line: bytes, file: str) -> SessionHeader:
    """A log's first line, as written in `file`.

    Raises `LogDamaged`; another format version is refused before any other shape is looked at (reference 1.2).
    """
    try:
        probe = _probe(line)
        if probe.type != "session":
            raise LogDamaged("the first line is not a session header", file=file, line=1)
        _check_version(probe.version, file)
        for key, value in (("sandboxMode", probe.sandbox_mode), ("approvalPolicy", probe.approval_policy)):
            if value is not UNSET:
                raise LogDamaged(f"the header key {key!r} was retired; this log cannot be read", file=file, line=1)
        header = _header(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogDamaged(f"the session header is malformed: {error}", file=file, line=1) from None
    index = UNSET if header.spawn is UNSET else header.spawn.index
    for name, number in (("createdAt", header.created_at), ("delegationDepth", header.delegation_depth),
                         ("seedLength", header.seed_length), ("spawn.index", index)):
        if number is not UNSET and not 0 <= number <= MAX_SAFE:
            what = "negative" if number < 0 else "beyond the safe integers"
            raise LogDamaged(f"the header's {name} is {what} ({number})", file=file, line=1)
    if not header.id:
        raise LogDamaged("the header's id is empty", file=file, line=1)
    return header


def _check_version(version: Any, file: str) -> None:
    if version == FORMAT_VERSION and isinstance(version, int) and not isinstance(version, bool):
        return
    newer = isinstance(version, int) and version > FORMAT_VERSION
    advice = "upgrade acp-replay to read it" if newer else "there is no way to upgrade it"
    raise LogDamaged(f"log format {version!r} is not supported (this build reads {FORMAT_VERSION}); {advice}",
                     file=file, line=1)


