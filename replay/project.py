"""The projection of a stored log that is kept as a fixture (format reference 1.12).

The envelopes' numbers and times go, the working directory, the system prompt and the tool schemas become
tokens, and rows are packed canonically. What is left replays anywhere and says what the session did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from acp_agent.session import codec
from acp_agent.session.events import SessionHeader
from replay.paths import CWD, replace_path

SYSTEM = "{{system}}"
TOOLS = "{{tools}}"
_ENVELOPE = ("seq", "time", "seq0", "time0")


def project_log(path: Path) -> bytes:
    """A log as a fixture. Raises `LogDamaged` for a log that cannot be read."""
    lines, _ = codec.split_lines(path.read_bytes())
    header = codec.decode_header(lines[0], str(path))
    reader = codec.Reader(str(path))
    events = [event for line in lines[1:] for event in reader.read(line)]
    rows = codec.pack(events).splitlines()
    cwd = header.cwd if isinstance(header.cwd, str) else ""
    return b"".join([_project_header(header, cwd), *(_project_row(row, cwd) for row in rows)])


def _project_header(header: SessionHeader, cwd: str) -> bytes:
    return codec.encode_header(msgspec.structs.replace(header, cwd=CWD) if cwd else header)


def _project_row(row: bytes, cwd: str) -> bytes:
    record: dict[str, Any] = msgspec.json.decode(row)
    for key in _ENVELOPE:
        record.pop(key, None)
    data = record["data"]
    if "dt" in data:
        data["dt"] = [0] * len(data["dt"])
    if record["type"] == "request/header":
        data["header"]["system"], data["header"]["tools"] = SYSTEM, TOOLS
    return codec.encode_line(_tokenised(record, cwd))


def _tokenised(value: Any, cwd: str) -> Any:
    if isinstance(value, str):
        return replace_path(value, cwd, CWD) if cwd else value
    if isinstance(value, list):
        return [_tokenised(item, cwd) for item in value]
    if isinstance(value, dict):
        return {key: _tokenised(item, cwd) for key, item in value.items()}
    return value
