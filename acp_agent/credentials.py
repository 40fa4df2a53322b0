"""The keys of model providers: from the environment, else as `acp-agent login` stored them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLES: Mapping[str, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The providers that need a key, and the variable that may hold it."""


class Credentials:
    """Keys by provider. They are looked up anew each time: a login in a terminal counts at once.

    A key leaves this object only through `key`; no message holds one.
    """

    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        """`file` holds the stored keys; it need not exist."""
        self.file = file
        self._environ = environ

    def key(self, provider: str) -> str | None:
        """The key in force; the environment comes first."""
        return self.given(provider) or self.stored(provider)

    def given(self, provider: str) -> str | None:
        """The key in the environment."""
        return self._environ.get(VARIABLES[provider], "").strip() or None

    def stored(self, provider: str) -> str | None:
        """The stored key."""
        return self._all().get(provider)

    def store(self, provider: str, key: str) -> None:
        """Store a key, for the file's owner alone. Raises `OSError`."""
        self._write(self._all() | {provider: key})

    def forget(self, provider: str) -> None:
        """Forget the stored key, if there is one. Raises `OSError`."""
        keys = self._all()
        if keys.pop(provider, None) is not None:
            self._write(keys)

    def _all(self) -> dict[str, str]:
        """What cannot be read holds no key."""
        try:
            read = json.loads(self.file.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(read, dict):
            return {}
        return {name: key for name, key in read.items() if isinstance(key, str) and key}

    def _write(self, keys: Mapping[str, str]) -> None:
        """All keys at once or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(keys, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
