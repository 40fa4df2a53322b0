"""Law 3 on a whole run: what the client was shown as history is what the stored logs say.

The wire is read as it came; the log is projected as a load would show it. Both are reduced to what does not
depend on how an answer was cut into chunks: each message's text, and everything else in order.

There is one difference that must be: a call shown live in a terminal of the client's keeps that terminal, so its end
says nothing of its content. A load has no terminal and shows the text.

To a client that knows children, the same holds for each child on its own id. What it inherited is not shown there, and
its prompt is, because the client did not send it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from acp_agent.acp.projection import Projection
from acp_agent.errors import LogDamaged
from acp_agent.ids import BlobId
from acp_agent.session import codec
from acp_agent.stores.layout import BLOBS
from acp_agent.tools.registry import Registry, default_tools
from tests.support.laws import Entry
from tests.support.schema import id_key, is_response

Shown: TypeAlias = tuple[dict[str, str], list[Any]]
"""Each message's text by message id, and the other history updates in order."""

Piece: TypeAlias = tuple[list[Any], bool]
"""Updates, and whether a load showed them."""

TERMINAL = "(the client's terminal)"
"""Stands for the content of a call whose output the client shows itself."""

_TEXT = {"agent_message_chunk", "agent_thought_chunk"}
_UNCOMPARED = {"usage_update", "user_message_chunk", "available_commands_update", "config_option_update", "notice",
               "subagent_update"}
"""What no history shows, and what only a history shows."""
_REGISTRY = Registry(default_tools())


def check_history(
    transcripts: Iterable[list[Entry]], store: Path, *, killed: Collection[int] = (),
) -> list[str]:
    """Every difference between what was shown and what is stored, for each session of the store that was shown.

    `transcripts` are those of one process after another. What those at the positions `killed` stored and showed last
    may differ, because they did not come to their own end: the next load is believed.
    """
    shown = [list(transcript) for transcript in transcripts]
    roots = [problem for log in sorted(store.rglob("session.jsonl"))
             for problem in _compare_readable(log, shown, killed)]
    children = [problem for log in sorted(store.rglob("session.*.jsonl"))
                for problem in _compare_child(log, shown, killed)]
    return [*roots, *children, *_announcements(shown, killed)]


def _compare_readable(log: Path, transcripts: list[list[Entry]], killed: Collection[int]) -> list[str]:
    try:
        return list(_compare(log, transcripts, killed))
    except LogDamaged:
        return []  # the format's own laws say what is wrong with it


def _compare(log: Path, transcripts: list[list[Entry]], killed: Collection[int]) -> Iterator[str]:
    """A load shows the whole history anew: it must be what was shown before, and stands in its place."""
    session, inherited, own = _project(log)
    pieces = [list(_shown(transcript, session, session)) for transcript in transcripts]
    yield from _differences(log, inherited, own, pieces, killed)


def _compare_child(log: Path, transcripts: list[list[Entry]], killed: Collection[int]) -> Iterator[str]:
    """As for a root, in the processes whose clients were told of the child; its parent's loads show it."""
    session, root = _family(log)
    told = [number for number, transcript in enumerate(transcripts) if session in _announced(transcript)]
    if not told:
        return
    _, _, own = _project(log, child=True)
    pieces = [list(_shown(transcripts[number], session, root)) for number in told]
    ended = [at for at, number in enumerate(told) if number in killed]
    for at, piece in enumerate(pieces):
        if own and at not in ended and not any(updates for updates, _ in piece):
            yield f"law 3: {log.name}: a child was announced, and nothing of it was shown"
        for updates, _ in piece:
            if updates and at not in ended and _prompts_in(updates) != _prompts_in(own):
                yield f"law 3: {log.name}: a child's prompt is shown as {_prompts_in(updates)}, not {_prompts_in(own)}"
    yield from _differences(log, [], own, pieces, ended)


def _differences(
    log: Path, inherited: list[Any], own: list[Any], pieces: list[list[Piece]], killed: Collection[int],
) -> Iterator[str]:
    stored = inherited + own
    shown = list(inherited)
    seen, certain = False, True
    for number, piece in enumerate(pieces):
        for updates, loaded in piece:
            if loaded:
                yield from _prompts(log.name, updates, stored)
            if loaded and seen and certain:
                yield from _difference(log.name, "shown by a load", updates, "shown before", shown)
            if loaded and any(map(_embeds, updates)):
                yield f"law 3: {log.name}: a load shows a terminal"
            shown = updates if loaded else shown + updates
            seen = seen or bool(updates)
            certain = certain or loaded
        certain = certain and number not in killed
    if certain:
        yield from _difference(log.name, "stored", stored, "shown", shown)


def _prompts(name: str, loaded: list[Any], stored: list[Any]) -> Iterator[str]:
    """A load shows the prompts there were, images and all; later ones may be stored, too."""
    shown, known = _prompts_in(loaded), _prompts_in(stored)
    if shown != known[: len(shown)]:
        yield f"law 3: {name}: a load shows the prompts {str(shown)[:200]}, stored are {str(known)[:200]}"


def _prompts_in(updates: list[Any]) -> list[Any]:
    return [update for update in updates if update["sessionUpdate"] == "user_message_chunk"]


def _family(log: Path) -> tuple[str, str]:
    """The session of a child's log, and its root's."""
    (child, root) = (codec.decode_header(codec.split_lines(one.read_bytes())[0][0], str(one)).id
                     for one in (log, log.parent / "session.jsonl"))
    return child, root


def _announced(transcript: list[Entry]) -> dict[str, list[Any]]:
    """What a client was told of children, by child."""
    told: dict[str, list[Any]] = {}
    for entry in transcript:
        if entry.sender == "agent" and isinstance(entry.frame, dict) and entry.frame.get("method") == "session/update":
            update = entry.frame["params"]["update"]
            if update["sessionUpdate"] == "subagent_update":
                told.setdefault(update["sessionId"], []).append(update)
    return told


def _announcements(transcripts: list[list[Entry]], killed: Collection[int]) -> Iterator[str]:
    """Every announcement of a child says the same of it, and so does every end, unless a process was killed in it."""
    names: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    for number, transcript in enumerate(transcripts):
        for child, updates in _announced(transcript).items():
            for update in updates:
                said = {key: value for key, value in update.items() if key != "state"}
                if len(said) > len(("sessionUpdate", "sessionId")) and names.setdefault(child, said) != said:
                    yield f"law 3: the child {child} is announced as {said}, and was as {names[child]}"
                state = update.get("state") or {}
                if state.get("state") == "idle" and number not in killed and ends.setdefault(child, state) != state:
                    yield f"law 3: the child {child} ended as {state}, and before as {ends[child]}"


def _project(log: Path, *, child: bool = False) -> tuple[str, list[Any], list[Any]]:
    """A log's session, and its history as a load would show it: what it inherited, and its own part. Of a child, what
    it inherited is not gone through.
    """
    lines, _ = codec.split_lines(log.read_bytes())
    header = codec.decode_header(lines[0], str(log))
    seed = header.seed_length or 0
    reader, projection = codec.Reader(str(log)), Projection(_REGISTRY, Path(str(header.cwd)), settled=True, child=child)
    parts: tuple[list[Any], list[Any]] = ([], [])
    blobs = sorted((log.parent / BLOBS).glob("*"))
    for line in lines[1:]:
        for event in reader.read(line):
            if child and event.seq < seed:
                continue
            for blob in blobs:
                projection.pictures.see(BlobId(blob.name), blob.read_bytes())
            parts[event.seq >= seed].extend(
                json.loads(msgspec.json.encode(update)) for update in projection.updates(event))
    return header.id, *parts


def _shown(transcript: list[Entry], session: str, root: str) -> Iterator[Piece]:
    """The updates of a session in pieces: those of a load that succeeded (True), and those between loads."""
    piece: list[Any] = []
    loading: str | None = None
    for entry in transcript:
        frame = entry.frame
        if not isinstance(frame, dict):
            continue
        if entry.sender == "client":
            params = frame.get("params")
            if frame.get("method") == "session/load" and isinstance(params, dict) \
                    and params.get("sessionId") == root and loading is None:
                yield piece, False
                piece, loading = [], id_key(frame.get("id"))
        elif frame.get("method") == "session/update" and frame["params"]["sessionId"] == session:
            piece.append(frame["params"]["update"])
        elif loading is not None and is_response(frame) and id_key(frame.get("id")) == loading:
            yield piece, "result" in frame
            piece, loading = [], None
    yield piece, False


def _difference(name: str, is_: str, stored: list[Any], was: str, shown: list[Any]) -> Iterator[str]:
    stored_texts, stored_rest = reduced(stored)
    shown_texts, shown_rest = reduced(shown)
    ids = {update["toolCallId"] for update in stored_rest if "toolCallId" in update}
    shown_rest = [update for update in shown_rest if update.get("toolCallId", None) in ids | {None}]
    for message, text in stored_texts.items():
        if shown_texts.get(message) != text:
            yield f"law 3: {name}: message {message} is {is_} as {text[:80]!r}, {was} as " \
                  f"{str(shown_texts.get(message))[:80]!r}"  # fmt: skip
    for at, (one, other) in enumerate(zip(stored_rest, shown_rest, strict=False)):
        if not _same(one, other):
            yield f"law 3: {name}: history update {at} is {is_} as {one}, {was} as {other}"
            return
    if len(stored_rest) != len(shown_rest):
        yield f"law 3: {name}: {len(stored_rest)} history updates {is_}, {len(shown_rest)} {was}"


def reduced(updates: Iterable[Any]) -> Shown:
    """Text of failed attempts stays in: the log does not know their messages, so they are never compared."""
    texts: dict[str, str] = {}
    rest: list[Any] = []
    in_terminal: set[str] = set()
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in _TEXT:
            texts[update["messageId"]] = texts.get(update["messageId"], "") + update["content"]["text"]
        elif _transient(update):
            if _embeds(update):
                in_terminal.add(update["toolCallId"])
        elif kind not in _UNCOMPARED:
            rest.append(_plain(update, in_terminal))
    return texts, rest


def _transient(update: Any) -> bool:
    return bool(update["sessionUpdate"] == "tool_call_update" and update.get("status") == "in_progress")


def _plain(update: Any, in_terminal: Collection[str]) -> Any:
    """Without raw input, whose spacing does not matter; the content of a call's end is the terminal it was shown in."""
    plain = {key: value for key, value in update.items() if key != "rawInput"}
    if update["sessionUpdate"] == "tool_call_update" and update["toolCallId"] in in_terminal:
        plain["content"] = ("in the place of the terminal", plain["content"]) if "content" in plain else TERMINAL
    return plain


def _embeds(update: Any) -> bool:
    calls = update["sessionUpdate"] == "tool_call_update"
    return calls and any(item["type"] == "terminal" for item in update.get("content") or ())


def _same(stored: Any, shown: Any) -> bool:
    """Where a terminal stayed, the text stands in the log alone."""
    if shown.get("content") is TERMINAL and stored.get("content"):
        return bool(stored | {"content": TERMINAL} == shown)
    return bool(stored == shown)
