"""What the client can do, as negotiated by `initialize`: absent, null or malformed means it cannot."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class ClientCapabilities(Struct, frozen=True):
    """The client's side. Nothing that is false here may ever be asked of the client."""

    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    terminal_auth: bool = False
    boolean_options: bool = False
    notices: bool = False
    compaction: bool = False
    elicitation_form: bool = False
    elicitation_url: bool = False
    subagents: bool = False


def read_capabilities(raw: Raw | UnsetType) -> ClientCapabilities:
    """Decode leniently: a malformed member is an unsupported capability, never an error (ACP schema,
    `x-deserialize-default-on-error`).
    """
    tree = {} if raw is UNSET else msgspec.json.decode(raw)

    def flag(*path: str) -> bool:
        return _at(tree, path) is True

    def marker(*path: str) -> bool:
        return isinstance(_at(tree, path), dict)

    return ClientCapabilities(
        read_text_file=flag("fs", "readTextFile"),
        write_text_file=flag("fs", "writeTextFile"),
        terminal=flag("terminal"),
        terminal_auth=flag("auth", "terminal"),
        boolean_options=marker("session", "configOptions", "boolean"),
        notices=marker("session", "notices"),
        compaction=marker("session", "compaction"),
        elicitation_form=marker("elicitation", "form"),
        elicitation_url=marker("elicitation", "url"),
        subagents=marker("subagents"),
    )


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree
