"""Statements 53 to 92 as far as any model will do: turns, cancelling, modes, options, updates, providers."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from acp_agent.rpc.envelope import REQUEST_CANCELLED
from replay.lint.checks import Check
from replay.lint.probe import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOGIN_NEEDED,
    LONG,
    NO_SESSION,
    TURN,
    Broken,
    Inapplicable,
    Probe,
    stop_reason,
    told,
)
from replay.lint.traffic import Json

REASONS: Final = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"})

_CHUNKS: Final = ("agent_message_chunk", "agent_thought_chunk")
_CANCEL: Final = 2.0
"""Seconds in which a cancelled turn ends."""


async def simple(probe: Probe) -> None:
    session = await probe.open()
    reason = await probe.turn(session)
    if reason not in REASONS:
        raise Broken(f"the stop reason {reason!r} is none")
    if not _of(probe, session, "agent_message_chunk"):
        raise Broken("a turn ended without an agent_message_chunk")


async def links(probe: Probe) -> None:
    session = await probe.open()
    (probe.workspace / "note.txt").write_text("ok\n")
    link = {"type": "resource_link", "uri": (probe.workspace / "note.txt").as_uri(), "name": "note.txt"}
    text = {"type": "text", "text": "Reply with the single word: ok. Ignore the link."}
    await probe.turn_end(probe.request("session/prompt", {"sessionId": session, "prompt": [text, link]}))


async def wrong_blocks(probe: Probe) -> None:
    session = await probe.open()
    wrong: list[list[Json]] = [[], [{"type": "acp-lint"}], [{"type": "text"}], [{"type": "resource_link", "name": "a"}]]
    for capability, block in (("image", {"type": "image", "data": "", "mimeType": "image/png"}),
                              ("audio", {"type": "audio", "data": "", "mimeType": "audio/wav"}),
                              ("embeddedContext", {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}})):
        if not probe.about.offers("promptCapabilities", capability):
            wrong.append([block])
    for blocks in wrong:
        await probe.refused(f"the prompt {json.dumps(blocks)}", "session/prompt",
                            {"sessionId": session, "prompt": blocks}, INVALID_PARAMS)


async def message_ids(probe: Probe) -> None:
    session = await probe.open()
    await probe.turn(session)
    await probe.turn(session)
    turns, of_kind = [], dict[Any, str]()
    marks = [at for at, line in enumerate(probe.traffic.lines)
             if line.sender == "client" and (line.frame or {}).get("method") == "session/prompt"]
    for begun, ended in zip(marks, [*marks[1:], None], strict=True):
        turns.append({_message(line.frame, session, of_kind) for line in probe.traffic.lines[begun:ended]}
                     - {None})
    if not of_kind:
        raise Inapplicable("it sends no message ids, which version 1 leaves open")
    if turns[0] & turns[1]:
        raise Broken(f"messages of two turns have the same ids: {turns[0] & turns[1]}")


def _message(frame: Json | None, session: str, of_kind: dict[Any, str]) -> Any:
    params = (frame or {}).get("params")
    update = params.get("update") if isinstance(params, dict) and params.get("sessionId") == session else None
    if not isinstance(update, dict) or update.get("sessionUpdate") not in _CHUNKS or update.get("messageId") is None:
        return None
    name, kind = update["messageId"], update["sessionUpdate"]
    if of_kind.setdefault(name, kind) != kind:
        raise Broken(f"a thought and a reply have the same message id {name!r}")
    return name


async def side_requests(probe: Probe) -> None:
    session = await probe.open()
    prompt = probe.prompt(session, LONG)
    await probe.session()
    if probe.about.offers("sessionCapabilities", "list"):
        await probe.result("session/list", {"cwd": str(probe.workspace)})
    probe.notify("session/cancel", {"sessionId": session})
    await probe.turn_end(prompt, stopped=True)


async def two_sessions(probe: Probe) -> None:
    await probe.start()
    first, second = await probe.session(), await probe.session()
    cancelled, other = probe.prompt(first, LONG), probe.prompt(second)
    probe.notify("session/cancel", {"sessionId": first})
    await probe.turn_end(cancelled, stopped=True)
    if (reason := await probe.turn_end(other)) == "cancelled":
        raise Broken("cancelling one session cancelled the other")
    strange = {own for own, _ in probe.updates()} - {first, second}
    if strange:
        raise Broken(f"updates name sessions that were never made: {strange}")
    if not _of(probe, second, "agent_message_chunk"):
        raise Broken(f"the second session's turn ended with {reason} and without a chunk of its own")


async def busy(probe: Probe) -> None:
    session = await probe.open()
    first, second = probe.prompt(session), probe.prompt(session)
    await probe.turn_end(first)
    answer = await probe.answer(second, seconds=max(probe.seconds, TURN))
    if "error" in answer and answer["error"].get("code") != INVALID_REQUEST:
        raise Broken(f"a second prompt to a busy session: {told(answer)}")


async def nothing_after_the_end(probe: Probe) -> None:
    session = await probe.open()
    prompt = probe.prompt(session)
    await probe.turn_end(prompt)
    await probe.barrier()
    late = _late(probe, session, prompt)
    if late:
        raise Broken(f"after a turn's response came {', '.join(late)}")


def _late(probe: Probe, session: str, prompt: int) -> list[str]:
    """The kinds of a turn's updates that came after its response."""
    ended = probe.after(prompt)
    return [kind for kind in (*_CHUNKS, "tool_call", "tool_call_update") if _of(probe, session, kind, ended)]


# ---------------------------------------------------------------- cancelling


async def cancel(probe: Probe) -> None:
    session = await probe.open()
    prompt = probe.prompt(session, LONG)
    await probe.barrier()
    begun = time.monotonic()
    probe.notify("session/cancel", {"sessionId": session})
    reason = await probe.turn_end(prompt, stopped=True)
    if reason not in ("cancelled", "end_turn"):
        raise Broken(f"a cancelled turn ended with {reason}")
    if (took := time.monotonic() - begun) > _CANCEL:
        raise Broken(f"a cancelled turn took {took:.1f} s to end, expected at most {_CANCEL:g} s")


async def after_a_cancel(probe: Probe) -> None:
    session = await probe.open()
    prompt = probe.prompt(session, LONG)
    probe.notify("session/cancel", {"sessionId": session})
    await probe.turn_end(prompt, stopped=True)
    await probe.barrier()
    late = _late(probe, session, prompt)
    if late:
        raise Broken(f"after a cancelled turn's response came {', '.join(late)}")
    if (reason := await probe.turn(session)) == "cancelled":
        raise Broken(f"the prompt after a cancelled one ended with {reason}")


async def idle_cancel(probe: Probe) -> None:
    session = await probe.open()
    await probe.barrier()
    since = probe.position
    for name in (session, NO_SESSION, session):
        probe.notify("session/cancel", {"sessionId": name})
    await probe.barrier()
    if len(probe.answers(since)) > 1:
        raise Broken("cancelling an idle or unknown session was answered")
    if probe.prompts and await probe.turn(session) == "cancelled":
        raise Broken("a cancel that came before it ended a turn")


async def withdrawn(probe: Probe) -> None:
    await probe.start()
    since = probe.position
    probe.notify("$/cancel_request", {"requestId": "acp-lint-nothing"})
    await probe.barrier()
    if len(probe.answers(since)) > 1:
        raise Broken("withdrawing a request that never was is answered")
    if not probe.prompts:
        raise Inapplicable("withdrawing nothing does nothing; a prompt that could be withdrawn may reach the model, "
                           "and none may be asked")
    prompt = probe.prompt(await probe.session(), LONG)
    probe.notify("$/cancel_request", {"requestId": prompt})
    answer = await probe.answer(prompt)
    if "error" in answer and answer["error"].get("code") != REQUEST_CANCELLED:
        raise Broken(f"a withdrawn prompt: {told(answer)}")
    if "error" not in answer and stop_reason(answer) not in ("cancelled", "end_turn"):
        raise Broken(f"a withdrawn prompt ended with {stop_reason(answer)}")


# ---------------------------------------------------------------- modes, options, updates


async def modes(probe: Probe) -> None:
    await probe.start()
    made = await probe.session_result()
    state, session = made.get("modes"), made["sessionId"]
    if not isinstance(state, dict):
        raise Inapplicable("session/new gives no modes")
    known = [mode.get("id") for mode in state.get("availableModes") or () if isinstance(mode, dict)]
    if state.get("currentModeId") not in known:
        raise Broken(f"the current mode {state.get('currentModeId')!r} is not one of {known}")
    for mode in (*known, state["currentModeId"]):
        await probe.result("session/set_mode", {"sessionId": session, "modeId": mode})
    answer = await probe.call("session/set_mode", {"sessionId": session, "modeId": NO_SESSION})
    if "error" not in answer or answer["error"].get("code") != INVALID_PARAMS:
        raise Broken(f"an unknown mode: expected error {INVALID_PARAMS}, got {told(answer)}", "recommended")


async def options(probe: Probe) -> None:
    await probe.start()
    made = await probe.session_result()
    session = made["sessionId"]
    offered = [one for one in made.get("configOptions") or () if isinstance(one, dict)]
    if not offered:
        raise Inapplicable("session/new gives no options")
    for option in offered:
        if option.get("type") == "select" and option.get("currentValue") not in _values(option):
            raise Broken(f"the option {option.get('id')} has the value {option.get('currentValue')!r}, which is none "
                         "of its own")
        await _set(probe, session, option, offered)
    for params in ({"configId": NO_SESSION, "value": "x"}, {"configId": offered[0]["id"], "value": NO_SESSION}):
        answer = await probe.call("session/set_config_option", {"sessionId": session} | params)
        if "error" not in answer or answer["error"].get("code") != INVALID_PARAMS:
            raise Broken(f"setting {json.dumps(params)}: expected error {INVALID_PARAMS}, got {told(answer)}",
                         "recommended")


async def _set(probe: Probe, session: str, option: Json, offered: list[Json]) -> None:
    """Set an option to the value it has."""
    kind = {"type": "boolean"} if option.get("type") == "boolean" else {}
    result = await probe.result("session/set_config_option", {
        "sessionId": session, "configId": option["id"], "value": option.get("currentValue"), **kind})
    left = [one.get("id") for one in result.get("configOptions") or () if isinstance(one, dict)]
    missing = {one.get("id") for one in offered} - set(left)
    if missing:
        raise Broken(f"setting {option['id']} gives back options without {', '.join(map(str, missing))}")


def _values(option: Json) -> list[Any]:
    found = []
    for entry in option.get("options") or ():
        found += [one.get("value") for one in entry.get("options", [entry])]
    return found


async def boolean_options(probe: Probe) -> None:
    await probe.start()
    made = await probe.session_result()
    offered = [one for one in made.get("configOptions") or () if isinstance(one, dict)]
    if any(option.get("type") == "boolean" for option in offered):
        raise Broken("a boolean option is offered to a client that did not declare session.configOptions.boolean")
    if not offered:
        raise Inapplicable("session/new gives no options")
    state = made.get("modes")
    mode = next((option for option in offered if option.get("category") == "mode"), None)
    if isinstance(state, dict) and mode is not None and mode.get("currentValue") != state.get("currentModeId"):
        raise Broken(f"the mode is {state.get('currentModeId')!r} and the option for it {mode.get('currentValue')!r}",
                     "should")


async def commands(probe: Probe) -> None:
    """Commands come after a session was made; their form is the schema's."""
    await _sent(probe, "available_commands_update", "plan")


async def usage(probe: Probe) -> None:
    await _sent(probe, "usage_update", "session_info_update")


async def _sent(probe: Probe, *kinds: str) -> None:
    session = await probe.open()
    if probe.prompts:
        await probe.turn(session)
    await probe.barrier()
    if not any(_of(probe, session, kind) for kind in kinds):
        raise Inapplicable(f"it sent no {' and no '.join(kinds)}")
    for update in (one for kind in kinds for one in _of(probe, session, kind)):
        for command in update.get("availableCommands") or ():
            if not command.get("name") or not command.get("description"):
                raise Broken(f"a command without name or description: {json.dumps(command)[:120]}")


async def auth_status(probe: Probe) -> None:
    await probe.start()
    answer = await probe.call("auth/status", {})
    if "error" in answer and answer["error"].get("code") == LOGIN_NEEDED:
        raise Broken("auth/status asks for a login")
    if "error" in answer:
        raise Broken(f"auth/status: {told(answer)}")


async def providers(probe: Probe) -> None:
    await probe.start()
    listed = (await probe.result("providers/list", {})).get("providers") or []
    if any("headers" in json.dumps(entry) for entry in listed):
        raise Broken("the list of providers shows headers")
    wrong = {"providerId": NO_SESSION, "apiType": "anthropic", "baseUrl": "https://example.invalid"}
    await probe.refused("an unknown provider", "providers/set", wrong, INVALID_PARAMS)
    for entry in listed:
        if entry.get("required"):
            await probe.refused(f"disabling {entry['providerId']}, which is required", "providers/disable",
                                {"providerId": entry["providerId"]}, INVALID_PARAMS)


def _of(probe: Probe, session: str, kind: str, since: int = 0) -> list[Json]:
    return [update for own, update in probe.updates(since) if own == session and update.get("sessionUpdate") == kind]


CHECKS: Final = (
    Check(53, simple, prompts=True), Check(54, links, prompts=True), Check(55, wrong_blocks, prompts=True),
    Check(58, message_ids, prompts=True), Check(59, side_requests, prompts=True),
    Check(60, two_sessions, prompts=True), Check(61, busy, prompts=True),
    Check(62, nothing_after_the_end, prompts=True), Check(64, cancel, prompts=True),
    Check(67, after_a_cancel, prompts=True), Check(68, idle_cancel), Check(69, withdrawn), Check(82, modes),
    Check(83, options), Check(84, boolean_options), Check(85, commands), Check(86, usage),
    Check(91, auth_status, needs=("auth", "status")), Check(92, providers, needs=("providers",)),
)  # fmt: skip
