"""Reading a replay directory: every `*.jsonl` file that begins with a session header is a recorded session."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, count
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct

from acp_agent.errors import LogDamaged
from acp_agent.session.codec import decode_header
from acp_agent.session.events import SessionHeader
from replay.problems import Findings
from replay.rows import (
    PACKED,
    AnyRow,
    Delta,
    EndSeedRow,
    TurnEndRow,
    decode_row,
    decode_rows,
    member_counts,
    packed_fault,
)

PLACEHOLDER = b"{{fromRequest:"
"""What a string begins a value with that only the live request knows (format reference 2.5)."""

ID_TOKEN = "{{sessionId}}"
"""Stands for any session id in recordings whose ids were taken out."""


class Recording(Struct, frozen=True, eq=False):
    """One recorded session.

    name          its id, or its file's name where the id is not its own
    rows          its body lines; the first `own` of them are inherited (a fork's seed)
    count         how many logical events the rows hold, packed ones counted singly
    lines         each row's 1-based line number, where the file has lines that are no rows
    placeholders  whether a text in it may be filled from the live request
    """

    name: str
    file: str
    header: SessionHeader
    rows: Sequence[AnyRow]
    own: int
    count: int
    first_line: int
    lines: Sequence[int] | None
    placeholders: bool

    @property
    def delegated(self) -> bool:
        """Whether a parent's tool call made this session. A fork made by a client is a root with a seed."""
        header = self.header
        if header.parent_session is UNSET:
            return False
        return header.origin == "subagent" or header.delegation_depth > 0 or header.spawn is not UNSET

    @property
    def file_name(self) -> str:
        return Path(self.file).name

    def line(self, row: int) -> int:
        """The line number of a row."""
        return self.first_line + row if self.lines is None else self.lines[row]

    def own_rows(self) -> Iterator[tuple[int, AnyRow]]:
        """The rows this session wrote itself, each with its position in `rows`."""
        return enumerate(self.rows[self.own :] if self.own else self.rows, self.own)


def load(directory: Path, findings: Findings) -> list[Recording]:
    """The recorded sessions of a directory: `session.jsonl` first, then by name. Faults go to `findings`."""
    names = _log_names(directory, findings)
    if names is None:
        return []
    enabled = gc.isenabled()
    gc.disable()  # a hundred thousand new objects and none of them garbage: collecting would cost as much again
    try:
        found = [_read(directory / name, findings) for name in names]
    finally:
        if enabled:
            gc.freeze()  # a recording stays for good
            gc.enable()
    recordings = [recording for recording in found if recording is not None]
    if not recordings and not findings.faults:
        others = f" ({', '.join(names)}: no session header in the first line)" if names else ""
        findings.fault(f"the replay directory holds no recorded session{others}; put a session.jsonl there",
                       str(directory))
    return _named(recordings, findings)


def _log_names(directory: Path, findings: Findings) -> list[str] | None:
    try:
        names = [path.name for path in directory.iterdir() if path.suffix == ".jsonl"]
    except FileNotFoundError:
        findings.fault("the replay directory does not exist; name a directory of session logs (ACP_REPLAY_DIR)",
                       str(directory))
    except NotADirectoryError:
        findings.fault("this is a file; name the directory it is in (ACP_REPLAY_DIR)", str(directory))
    except OSError as error:
        findings.fault(f"the replay directory cannot be read ({error.strerror}); check its permissions",
                       str(directory))
    else:
        return sorted(names, key=name_order)
    return None


def name_order(name: str) -> tuple[bool, int, str]:
    """`session.jsonl` first, then `session.2.jsonl` before `session.10.jsonl`, then anything else by name."""
    return (name != "session.jsonl", len(name) if _is_log_name(name) else 1 << 16, name)


def _is_log_name(name: str) -> bool:
    middle = name.removeprefix("session").removesuffix(".jsonl")
    return name.startswith("session") and (not middle or middle[1:].isdigit())


def _named(recordings: list[Recording], findings: Findings) -> list[Recording]:
    """Each recording under a name of its own. Ids must differ unless they were taken out."""
    seen: dict[str, Recording] = {}
    named = []
    for recording in recordings:
        session = recording.header.id
        if session == ID_TOKEN:
            named.append(msgspec.structs.replace(recording, name=recording.file_name))
            continue
        if session in seen:
            findings.fault(f"{seen[session].file_name} has the same session id {session}; remove one of them",
                           recording.file, 1)
            continue
        seen[session] = recording
        named.append(recording)
    return named


# ---------------------------------------------------------------- one file


class _Probe(Struct):
    type: str = ""


_seq = attrgetter("seq")
_time = attrgetter("time")
_probe = msgspec.json.Decoder(_Probe).decode


def _read(path: Path, findings: Findings) -> Recording | None:
    """A recorded session; None for a file that is none, or that is broken (then told to `findings`)."""
    file = str(path)
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        return None
    except OSError as error:
        findings.fault(f"the log cannot be read ({error.strerror}); check its permissions", file)
        return None
    first, start = 1, 0
    while (end := data.find(b"\n", start)) >= 0 and not data[start:end].strip():
        first, start = first + 1, end + 1
    end = len(data) if end < 0 else end
    header = _header(data[start:end], file, first, findings)
    if header is None:
        return None
    return _Body(file, first + 1, header, findings).read(data[end + 1 :])


def _header(line: bytes, file: str, number: int, findings: Findings) -> SessionHeader | None:
    try:
        is_header = _probe(line).type == "session"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        is_header = False
    if not is_header:
        if _is_log_name(Path(file).name):
            findings.fault("the first line is not a session header; restore the log or remove the file",
                           file, number)
        return None
    try:
        return decode_header(line, file)
    except LogDamaged as error:
        findings.fault(error.message.removeprefix(f"{file}:1: "), file, number)
        return None


_SLAB = 1 << 16
"""Bytes decoded at a time: the rows are still in the processor's cache when they are looked at."""


class _Body:
    """The lines below a header, while they are read."""

    def __init__(self, file: str, first_line: int, header: SessionHeader, findings: Findings) -> None:
        self._file = file
        self._first = first_line
        self._header = header
        self._findings = findings
        self._rows: list[AnyRow] = []
        self._count = 0
        self._lines: list[int] | None = None
        self._complete: bool | None = None

    def read(self, body: bytes) -> Recording | None:
        if not self._read_slabs(body) and not self._read_lines(body):
            return None
        own = self._boundary()
        if own is None:
            return None
        return Recording(self._header.id, self._file, self._header, self._rows, own, self._count, self._first,
                         self._lines, PLACEHOLDER in body)

    def _read_slabs(self, body: bytes) -> bool:
        """The usual way. False where any line is unusual, so that line by line can tell more."""
        start, size = 0, len(body)
        while start < size:
            end = body.find(b"\n", min(start + _SLAB, size - 1)) + 1 or size
            slab = body[start:end]
            start = end
            try:
                rows = decode_rows(slab)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return False
            # The decoder takes any white space between values; a log's records are lines.
            if len(rows) != slab.count(b"\n") + (not slab.endswith(b"\n")):
                return False
            bare = self._complete is not True and b'"seq' not in slab and b'"time' not in slab
            if not self._take(rows, bare):
                return False
        return True

    def _read_lines(self, body: bytes) -> bool:
        """Line by line: keeps line numbers, and tells `findings` what is wrong with which."""
        self._rows, self._count, self._lines, self._complete = [], 0, [], None
        lines = body.split(b"\n")
        for number, line in enumerate(lines, self._first):
            if not line.strip():
                continue
            try:
                row = decode_row(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                if number == self._first + len(lines) - 1 and not isinstance(error, msgspec.ValidationError):
                    break  # a torn write: the line was never finished
                self._findings.fault(f"broken line: {error}; restore it from the original log", self._file, number)
                return False
            expected = self._count
            if not self._take([row]):
                self._findings.fault(f"{self._fault(row, expected)}; restore the line from the original log",
                                     self._file, number)
                return False
            self._lines.append(number)
        return True

    def _take(self, rows: Sequence[AnyRow], bare: bool = False) -> bool:
        """Number the next rows. False where they do not fit what came before.

        `bare` rows are known to have neither seq nor time. Written with whole-list operations: it runs over
        every row of every recording.
        """
        is_packed = list(map(PACKED.__contains__, map(type, rows)))
        packed: list[Delta] = list(compress(rows, is_packed))  # type: ignore[arg-type]  # selected by their type
        members = member_counts(packed)
        if members is None:
            return False
        first, self._count = self._count, self._count + len(rows) - len(packed) + sum(members)
        if not bare:
            lengths = [1] * len(rows)
            for at, length in zip(compress(count(), is_packed), members, strict=True):
                lengths[at] = length
            if not self._fits(rows, list(accumulate(lengths[:-1], initial=first))):
                return False
        self._complete = self._complete is True
        self._rows += rows
        return True

    def _fits(self, rows: Sequence[AnyRow], starts: Sequence[int]) -> bool:
        """Whether the rows carry the right numbers, or, in a projected log, none."""
        seqs, times = list(map(_seq, rows)), list(map(_time, rows))
        if self._complete is None:
            self._complete = seqs[0] is not UNSET
        if self._complete:
            return seqs == starts and UNSET not in times
        return seqs.count(UNSET) == times.count(UNSET) == len(rows)

    def _fault(self, row: AnyRow, expected: int) -> str:
        """Why `_take` refused a row."""
        if isinstance(row, Delta) and (fault := packed_fault(row)):
            return fault
        if (row.seq is UNSET) != (row.time is UNSET):
            return "the line has only one of seq and time"
        if (row.seq is UNSET) == self._complete:
            return "some lines carry seq and time and some do not, a log is one or the other"
        return f"seq {row.seq} where {expected} was expected"

    def _boundary(self) -> int | None:
        """The row at which this session's own events begin (DESIGN 4, seed boundary)."""
        seed = self._header.seed_length
        if seed is UNSET or seed == 0:
            return 0
        at, start = 0, 0
        for row in self._rows:
            if start >= seed:
                break
            start += len(row.data.texts) if isinstance(row, Delta) else 1
            at += 1
        message = ""
        if seed > self._count:
            message = f"seedLength is {seed}, but the log holds only {self._count} events"
        elif start != seed or not _ends_seed(self._rows, at):
            message = (f"seedLength is {seed}, but of the log's {self._count} events number {seed - 1} is not a"
                       f" turn/end followed by a session/end-seed")
        if message:
            self._findings.fault(f"{message}; correct seedLength in the header, or restore the log",
                                 self._file, self._first - 1)
            return None
        return at


def _ends_seed(rows: Sequence[AnyRow], at: int) -> bool:
    before, here = rows[at - 1 : at + 1] if 0 < at < len(rows) else (None, None)
    return isinstance(before, TurnEndRow) and isinstance(here, EndSeedRow)
