"""`acp-agent login`: ask for a provider's key and store it."""

from __future__ import annotations

import getpass
import sys

from acp_agent.credentials import VARIABLES, Credentials, KeysDamaged

HELP = """\
usage: acp-agent [FLAGS] login [PROVIDER]

Ask for a provider's API key at the terminal, where it is not shown, and store it in a file that only you can read:
$XDG_CONFIG_HOME/acp-agent/credentials.json. PROVIDER is openai or anthropic; without it, that of ACP_MODEL. A key in
OPENAI_API_KEY or ANTHROPIC_API_KEY comes before a stored one. The key is not tried out.

Without a terminal, the key is the first line of the input.

exit status: 0 when the key is stored, 1 when there was none or it could not be stored, 2 when the command cannot be
understood

example:
  acp-agent login openai"""


def login(provider: str, credentials: Credentials) -> int:
    """Ask and store; the exit status."""
    try:
        credentials.stored(provider)  # nobody is asked for a key that cannot be stored
        return _login(provider, credentials)
    except KeysDamaged as damage:
        return _failed(f"no key is stored, and nothing was changed: {damage.message}")


def _login(provider: str, credentials: Credentials) -> int:
    key = _ask(provider)
    if key is None or not key.strip():
        return _failed("no key was given, and nothing was changed")
    key = key.strip()
    if not key.isprintable() or not key.isascii() or " " in key:
        return _failed("that is no key: a key has no spaces, and plain characters only; nothing was changed")
    try:
        credentials.store(provider, key)
    except OSError as error:
        return _failed(f"the key cannot be stored in {credentials.file}: {error.strerror}")
    sys.stdout.write(f"The key for {provider} is stored in {credentials.file}.\n")
    return 0


def _ask(provider: str) -> str | None:
    if not sys.stdin.isatty():
        return sys.stdin.readline()
    try:
        return getpass.getpass(f"Key for {provider} ({VARIABLES[provider]}): ")
    except EOFError:
        return None


def _failed(why: str) -> int:
    sys.stderr.write(f"acp-agent: {why}\n")
    return 1
