"""The laws of what an agent has its client do: files, terminals, questions to the user (digest 76, 78, 80, 81)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.schema import Frame, id_key, is_request, is_response

_MODES = {"form": "form", "url": "url"}


class ServiceLaws:
    """Follows the requests of one connection. Frames given to `agent` must have passed the schema."""

    def __init__(self) -> None:
        self._capabilities: Any = {}
        self._creating: set[str] = set()
        self._used: dict[str, bool] = {}
        """The terminals there are, and whether anything was asked of them yet."""
        self._released: set[str] = set()
        self._shown_in: dict[tuple[Any, Any], set[str]] = {}
        """The terminals that a call was shown in: content replaces what was there, so they may be named again, as long
        as they are there.
        """
        self._questions: set[str] = set()

    # -- what the client says

    def client(self, frame: Frame) -> None:
        """Take note of a frame of the client's."""
        params = frame.get("params")
        if frame.get("method") == "initialize" and isinstance(params, dict):
            self._capabilities = params.get("clientCapabilities")
        elif is_response(frame) and id_key(frame.get("id")) in self._creating:
            self._creating.discard(id_key(frame["id"]))
            result = frame.get("result")
            name = result.get("terminalId") if isinstance(result, dict) else None
            if isinstance(name, str):
                self._used[name] = False
                self._released.discard(name)

    # -- what the agent says

    def agent(self, frame: Frame) -> Iterator[str]:
        """The violations of a frame of the agent's."""
        method, params = str(frame.get("method")), frame.get("params")
        if not isinstance(params, dict):
            return
        if method == "terminal/create" and is_request(frame):
            self._creating.add(id_key(frame["id"]))
        elif method.startswith("terminal/"):
            yield from self._terminal(method, params["terminalId"])
        elif method.startswith("fs/"):
            yield from _file(method, params)
        elif method.startswith("elicitation/"):
            yield from self._question(method, params)
        elif method == "session/update" and isinstance(params.get("update"), dict):
            update = params["update"]
            shown = self._shown_in.setdefault((params.get("sessionId"), update.get("toolCallId")), set())
            yield from self._embedded(update.get("content"), shown)

    def _terminal(self, method: str, name: str) -> Iterator[str]:
        if name in self._released:
            yield f"digest 78: {method} for the terminal {name!r} after it was released"
        elif name not in self._used:
            yield f"digest 78: {method} for the terminal {name!r}, which nobody made"
        elif method == "terminal/release":
            del self._used[name]
            self._released.add(name)
        else:
            self._used[name] = True

    def _embedded(self, content: Any, shown: set[str]) -> Iterator[str]:
        for item in content if isinstance(content, list) else ():
            name = item.get("terminalId") if isinstance(item, dict) and item.get("type") == "terminal" else None
            if name is None or (name in shown and name not in self._released):
                continue
            shown.add(name)
            if name not in self._used:
                yield f"digest 78: the terminal {name!r} is embedded, but it is not there"
            elif self._used[name]:
                yield f"digest 78: the terminal {name!r} is embedded only after it was used"

    def _question(self, method: str, params: Frame) -> Iterator[str]:
        name = params.get("elicitationId")
        if method == "elicitation/complete":
            if name not in self._questions:
                yield f"digest 81: elicitation/complete for {name!r}, which was not asked"
            return
        offered = self._capabilities.get("elicitation") if isinstance(self._capabilities, dict) else None
        if not isinstance(offered, dict) or not isinstance(offered.get(_MODES.get(params["mode"], "")), dict):
            yield f"digest 80: an elicitation of the mode {params['mode']!r}, which was not offered"
        if ("sessionId" in params) == ("requestId" in params):
            yield "digest 80: an elicitation with more or less than one scope"
        if name is not None:
            if name in self._questions:
                yield f"digest 81: the elicitation id {name!r} is used twice"
            self._questions.add(name)

    def missing(self) -> Iterator[str]:
        """What an agent that came to its own end must have done."""
        for name in self._used:
            yield f"digest 78: the terminal {name!r} was never released"


def _file(method: str, params: Frame) -> Iterator[str]:
    if not str(params["path"]).startswith("/"):
        yield f"digest 76: {method} with the path {params['path']!r}, which is not absolute"
    for name, least in (("line", 1), ("limit", 0)):
        value = params.get(name)
        if value is not None and value < least:
            yield f"digest 76: {method} with {name} {value}"
