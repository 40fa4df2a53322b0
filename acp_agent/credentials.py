"""The keys of model providers: from the environment, else as `acp-agent login` stored them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from acp_agent.errors import AgentError

VARIABLES: Mapping[str, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The providers that need a key, and the variable that may hold it."""


class KeysDamaged(AgentError):
    """The file of stored keys is there and cannot be used. It is left as it is: it may hold keys all the same."""

    def __init__(self, file: Path, what: str) -> None:
        """`what` is wrong with it; nothing that stands in it."""
        super().__init__(f"the stored keys cannot be used: {file} {what}; mend it, or move it away and log in again "
                         "with `acp-agent login` for each provider", file=str(file))  # fmt: skip
        self.what = what


class Credentials:
    """Keys by provider. They are looked up anew each time: a login in a terminal counts at once.

    A key leaves this object only through `key`; no message holds one. Whatever looks into the file raises `KeysDamaged`
    where it cannot be used, and then nothing is written to it.
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
        """What is stored; a file that is not there, or has nothing in it, holds no key."""
        data = self._read()
        if not data.strip():
            return {}
        try:
            read = json.loads(data)
        except json.JSONDecodeError as error:
            raise self._damaged(f"is not JSON (line {error.lineno}, column {error.colno})") from None
        except (ValueError, RecursionError):
            raise self._damaged("is not JSON") from None
        if not isinstance(read, dict):
            raise self._damaged("is not a JSON object of providers and keys")
        for name, key in read.items():
            if not isinstance(key, str):
                whose = f"the key of {name}" if name in VARIABLES else "a key"
                raise self._damaged(f"has something that is no text as {whose}")
        return {name: key for name, key in read.items() if key}

    def _read(self) -> bytes:
        try:
            handle = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe's writer is not waited for
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._damaged(f"cannot be read: {error.strerror}") from None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise self._damaged("is no regular file")
            with open(handle, "rb", closefd=False) as file:
                return file.read()
        except OSError as error:
            raise self._damaged(f"cannot be read: {error.strerror}") from None
        finally:
            os.close(handle)

    def _damaged(self, what: str) -> KeysDamaged:
        return KeysDamaged(self.file, what)

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
