"""The story of a session as a store keeps it, told from a directory of its tree's logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from acp_agent.errors import RecordingError
from acp_agent.session import codec
from replay import addresses, fixture
from replay.fixture import Recording
from replay.logform import CHUNK, LogEvent
from replay.problems import Findings
from replay.snapshot import SessionLog
from replay.story import Story, tell_whole


def stored_story(directory: Path, session: str) -> Story:
    """What a session and its children said and did. The directory holds the logs of its whole tree.

    Raises `RecordingError` for a log that cannot be read.
    """
    findings = Findings()
    recordings = fixture.load(directory, findings)
    logs = list(_placed(recordings))
    asked = next((log for log in logs if log.name == session), None)
    if asked is None:
        raise findings.error() or RecordingError(f"{directory}: no log of the session {session!r}")
    return tell_whole(asked, logs)


def _placed(recordings: Sequence[Recording]) -> Iterator[SessionLog]:
    """The logs with their addresses; one whose place is not known stands below its root all the same."""
    placed = addresses.place(recordings, Findings())
    paths = {id(one.recording): one.path for one in placed}
    for number, recording in enumerate(recordings):
        path = paths.get(id(recording))
        hops = (f"?{number}",) if path is None else tuple(map(str, path))
        yield SessionLog(recording.header.id, 0, hops, recording.header, tuple(_events(recording.file)))


def _events(file: str) -> Iterator[LogEvent]:
    """A log's events. Of chunks only their number matters here: what they add up to is a message."""
    chunk = LogEvent(CHUNK, {})
    lines, _ = codec.split_lines(Path(file).read_bytes())
    reader = codec.Reader(file, refuse_unknown=False)
    for line in lines[1:]:
        for event in reader.read(line):
            if event.body.type == CHUNK:
                yield chunk
            else:
                record: dict[str, Any] = msgspec.json.decode(line)
                yield LogEvent(record["type"], record["data"])
