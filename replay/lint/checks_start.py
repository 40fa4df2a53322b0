"""Statements 18 to 31: initialisation and authentication."""

from __future__ import annotations

import json
from typing import Any, Final

from acp_agent.rpc.envelope import METHOD_NOT_FOUND
from replay.lint.checks import Check
from replay.lint.probe import INVALID_PARAMS, LOGIN_NEEDED, NO_SESSION, VERSION, Broken, Inapplicable, Probe, hello
from replay.lint.traffic import Json

_OPTIONAL: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("loadSession",), "session/load"),
    (("sessionCapabilities", "resume"), "session/resume"),
    (("sessionCapabilities", "list"), "session/list"),
    (("sessionCapabilities", "delete"), "session/delete"),
    (("sessionCapabilities", "close"), "session/close"),
    (("sessionCapabilities", "fork"), "session/fork"),
    (("sessionCapabilities", "archive"), "session/archive"),
    (("sessionCapabilities", "status"), "session/status"),
    (("sessionCapabilities", "title"), "session/set_title"),
    (("auth", "status"), "auth/status"),
    (("providers",), "providers/list"),
)
"""Methods that need a capability, and do no harm with the id of a session that does not exist."""


async def version(probe: Probe) -> None:
    got = (await probe.start()).get("protocolVersion")
    if type(got) is not int or got != VERSION:
        raise Broken(f"initialize with version 1 was answered with protocolVersion {json.dumps(got)}")


async def other_versions(probe: Probe) -> None:
    for asked in (2, 65535, 0):
        got = (await probe.result("initialize", hello(version=asked))).get("protocolVersion")
        if type(got) is not int or not 1 <= got < 65535 or (asked == 1 and got != 1):
            raise Broken(f"initialize with version {asked} was answered with protocolVersion {json.dumps(got)}")


async def wrong_versions(probe: Probe) -> None:
    missing = {name: value for name, value in hello().items() if name != "protocolVersion"}
    for params in (*(hello(version=wrong) for wrong in ("1", 1.5, -1, 65536)), missing):
        said = json.dumps(params.get("protocolVersion", "(missing)"))
        await probe.refused(f"initialize with the version {said}", "initialize", params, INVALID_PARAMS)
    await probe.start()


async def ungated(probe: Probe) -> None:
    """What is asked for without a capability is seen in every exchange; here are the options and logins."""
    await probe.start()
    session = await probe.session_result()
    if any(isinstance(one, dict) and one.get("type") == "boolean" for one in session.get("configOptions") or ()):
        raise Broken("a boolean option is offered to a client that did not declare session.configOptions.boolean")
    if any(login.get("type") == "terminal" for login in probe.about.logins):
        raise Broken("a terminal login is listed for a client that did not declare auth.terminal")
    if not probe.prompts:
        raise Inapplicable("no options or logins beyond the client's; more shows in turns, and no model may be asked")
    await probe.turn(session["sessionId"])


async def malformed_capabilities(probe: Probe) -> None:
    await probe.result("initialize", hello({"fs": "yes", "elicitation": 5, "terminal": [], "session": None}))
    await probe.session()


async def advertised(probe: Probe) -> None:
    await probe.start()
    weaker: Broken | None = None
    for path, method in _OPTIONAL:
        answer = await probe.call(method, probe.place(sessionId=NO_SESSION, title="acp-lint"))
        error = answer.get("error")
        missing = isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND
        name = ".".join(path)
        if probe.about.offers(*path) and missing:
            raise Broken(f"{name} is advertised, and {method} does not exist")
        if not probe.about.offers(*path) and not missing:
            weaker = weaker or Broken(f"{name} is not advertised, and {method} is not answered with -32601",
                                      "recommended")
    if weaker is not None:
        raise weaker


async def agent_info(probe: Probe) -> None:
    info = (await probe.start()).get("agentInfo")
    if not isinstance(info, dict) or not info.get("name") or not info.get("version"):
        raise Broken(f"agentInfo is {json.dumps(info)}")


async def too_early(probe: Probe) -> None:
    await probe.refused("session/new before initialize", "session/new", probe.place())
    await probe.open()


async def again(probe: Probe) -> None:
    session = await probe.open()
    await probe.start()
    await _usable(probe, session)


async def _usable(probe: Probe, session: str) -> None:
    """A session is still known: told by a method that changes nothing, where the agent has one."""
    modes = (probe.about.session or {}).get("modes")
    if isinstance(modes, dict):
        await probe.result("session/set_mode", {"sessionId": session, "modeId": modes.get("currentModeId")})
    elif probe.about.offers("sessionCapabilities", "close"):
        await probe.result("session/close", {"sessionId": session})
    elif probe.prompts:
        await probe.turn(session)
    else:
        raise Inapplicable("initialize was answered twice; whether the session is usable needs a prompt")


async def login_needed(probe: Probe) -> None:
    """That -32000 means nothing else is seen in every exchange."""
    await probe.start()
    answer = await probe.call("session/new", probe.place())
    error: Any = answer.get("error")
    if error is not None and (not isinstance(error, dict) or error.get("code") != LOGIN_NEEDED):
        raise Broken(f"session/new in a new directory fails with {json.dumps(error)[:120]}")
    if error is not None and not probe.about.logins:
        raise Broken("a login is asked for, and no way to log in is advertised")


async def unknown_login(probe: Probe) -> None:
    if not probe.about.logins:
        raise Inapplicable("no way to log in is advertised")
    await probe.start()
    terminal = [login.get("id") for login in probe.about.logins if login.get("type") == "terminal"]
    for method in ("acp-lint-no-such-method", *terminal):
        await probe.refused(f"authenticate with {method!r}", "authenticate", {"methodId": method}, INVALID_PARAMS)


async def terminal_logins(probe: Probe) -> None:
    await probe.start()
    if any(login.get("type") == "terminal" for login in probe.about.logins):
        raise Broken("a terminal login is listed for a client that did not declare auth.terminal")
    result: Json = await probe.start({"auth": {"terminal": True}})
    methods = result.get("authMethods") or []
    if not any(isinstance(method, dict) and method.get("type") == "terminal" for method in methods):
        raise Inapplicable("no terminal login is listed for a client that runs them either")


CHECKS: Final = (
    Check(18, version), Check(19, other_versions), Check(20, wrong_versions), Check(21, ungated),
    Check(22, malformed_capabilities), Check(23, advertised), Check(24, agent_info), Check(25, too_early),
    Check(26, again), Check(27, login_needed), Check(29, unknown_login), Check(31, terminal_logins),
)  # fmt: skip
