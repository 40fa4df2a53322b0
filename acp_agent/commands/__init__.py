"""Subcommands of `acp-agent` that look after stored sessions. Serving imports none of this."""
