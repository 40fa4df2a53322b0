"""Requests that are seen through to their end."""

from __future__ import annotations

from acp_agent.rpc.dispatch import RequestContext


def see_through(context: RequestContext) -> None:
    """From here on the request has an effect that stays: it is answered with that, even if it is cancelled now."""
    context.on_cancel(lambda: None)
