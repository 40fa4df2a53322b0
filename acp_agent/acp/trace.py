"""Trace context: the keys of a prompt's `_meta` that go on to what works for it (ACP digest 7)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, UnsetType

KEYS = ("traceparent", "tracestate", "baggage")
"""The names that ACP reserves in `_meta` for W3C trace context."""


def trace_of(meta: Raw | UnsetType) -> Mapping[str, str]:
    """The trace that `_meta` names; a malformed `_meta` counts as absent, as does a malformed member."""
    found = {} if isinstance(meta, UnsetType) else msgspec.json.decode(meta)
    if not isinstance(found, dict):
        return {}
    return {key: found[key] for key in KEYS if isinstance(found.get(key), str)}
