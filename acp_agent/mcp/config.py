"""The MCP servers a client names, checked before any is started (ACP guide, session set-up).

What is wrong is said by entry and field, never by value: values may be secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from acp_agent.acp.handshake import Wire
from acp_agent.errors import InvalidParams

T = TypeVar("T")


class Variable(Wire, frozen=True):
    """One environment variable or header. The value may be a secret: it is never told to anybody."""

    name: str
    value: str


class _Probe(Wire, frozen=True):
    """Enough of an entry to tell its transport: stdio entries have no `type`."""

    name: str
    type: str = "stdio"


class _Stdio(Wire, frozen=True):
    command: str
    args: list[str] | None
    env: list[Variable] | None


class _Http(Wire, frozen=True):
    url: str
    headers: list[Variable] | None


class StdioServer(Struct, frozen=True):
    """A program that is started, and spoken with on its stdin and stdout."""

    name: str
    command: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


class HttpServer(Struct, frozen=True):
    """A server behind a streamable HTTP address."""

    name: str
    url: str
    headers: tuple[tuple[str, str], ...]


ServerConfig: TypeAlias = StdioServer | HttpServer


def read_servers(entries: Sequence[Raw]) -> tuple[ServerConfig, ...]:
    """The servers a request lists, in order. Raises `InvalidParams` naming the entry and what is wrong with it."""
    servers = tuple(_server(f"mcpServers[{at}]", entry) for at, entry in enumerate(entries))
    names: set[str] = set()
    for at, server in enumerate(servers):
        if server.name in names:
            raise InvalidParams(f"mcpServers[{at}].name: a second server is named {server.name!r}; give each its own")
        names.add(server.name)
    return servers


def _server(where: str, entry: Raw) -> ServerConfig:
    probe = _decoded(where, entry, _Probe)
    if not probe.name.strip():
        raise InvalidParams(f"{where}.name: expected a name, got {probe.name!r}")
    if probe.type == "stdio":
        return _stdio(where, probe.name, _decoded(where, entry, _Stdio))
    if probe.type == "http":
        return _http(where, probe.name, _decoded(where, entry, _Http))
    raise InvalidParams(
        f"{where}.type: the server {probe.name!r} has the transport {probe.type!r}; stdio and http are supported"
    )


def _decoded(where: str, entry: Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(entry, type=kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        raise InvalidParams(f"{where}{place.rstrip('`')}: {what}") from None


def _stdio(where: str, name: str, entry: _Stdio) -> StdioServer:
    if not entry.command:
        raise InvalidParams(f"{where}.command: expected a program, got an empty string")
    if "\0" in entry.command:
        raise InvalidParams(f"{where}.command: expected a program, got a text with a NUL character")
    for at, word in enumerate(entry.args or ()):
        if "\0" in word:
            raise InvalidParams(f"{where}.args[{at}]: expected a text without NUL characters")
    for at, variable in enumerate(entry.env or ()):
        if not variable.name or "=" in variable.name or "\0" in variable.name:
            raise InvalidParams(f"{where}.env[{at}].name: {variable.name!r} cannot name an environment variable")
        if "\0" in variable.value:
            raise InvalidParams(f"{where}.env[{at}].value: expected a text without NUL characters")
    env = tuple((variable.name, variable.value) for variable in entry.env or ())
    return StdioServer(name, entry.command, tuple(entry.args or ()), env)


def _http(where: str, name: str, entry: _Http) -> HttpServer:
    if not _is_address(entry.url):
        raise InvalidParams(f"{where}.url: expected the http or https address of the server {name!r}")
    for at, header in enumerate(entry.headers or ()):
        if not _is_token(header.name):
            raise InvalidParams(f"{where}.headers[{at}].name: {header.name!r} cannot name a header")
        if not _is_header_value(header.value):
            raise InvalidParams(f"{where}.headers[{at}].value: the value of {header.name!r} has characters that no "
                                "header can have")
    return HttpServer(name, entry.url, tuple((header.name, header.value) for header in entry.headers or ()))


def _is_address(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_token(name: str) -> bool:
    """RFC 9110, 5.6.2."""
    return bool(name) and all(char.isascii() and (char.isalnum() or char in "!#$%&'*+-.^_`|~") for char in name)


def _is_header_value(value: str) -> bool:
    """What can be sent as it stands, and nothing that could begin another header."""
    return value.isascii() and not any((ord(char) < 0x20 and char != "\t") or char == "\x7f" for char in value)
