"""The ground a run stands on: its directories, its environment, and what the run left in them.

    <root>/workspace   the agent's working directory, seeded with a copy of the scenario's
    <root>/home        HOME, the XDG directories below it
    <root>/tmp         TMPDIR
    <root>/sessions    the session store of an agent that knows `ACP_SESSION_STORE`: a directory of logs, or the one of
                       a database, `sessions.db`
    <root>/packed      what was taken out of that database
    <root>/receipt.json (`receipt.2.json` of the second process, and so on), <root>/stderr.txt
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from replay.artefacts import FileState, HarvestedLog
from replay.stored import GrowingDatabase, GrowingFiles, GrowingStore

StoreName = Literal["jsonl", "sqlite"]
"""How an agent stores its sessions: as files of JSON lines, or in one database."""

_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_SETTINGS = ("ACP", "XDG_", "GIT_", "OPENAI_", "ANTHROPIC_")
_DROPPED = frozenset({"OLDPWD", "LANG", "LANGUAGE", "PYTEST_CURRENT_TEST"})

UNTRACKED = frozenset({".git", "__pycache__"})
"""Directories whose content differs from run to run by nature: not part of what a run did."""

_FILE, _EXECUTABLE, _LINK = 0o644, 0o755, 0o120777


class _Seen(Struct, frozen=True):
    digest: bytes
    mode: int


class Workspace:
    """The directories of one run. `make` creates them below a root that holds no earlier run."""

    def __init__(self, root: Path, store: StoreName = "jsonl") -> None:
        self.root = root.absolute()
        self._store = store
        self.directory = self.root / "workspace"
        self.home = self.root / "home"
        self.temporary = self.root / "tmp"
        self.sessions = self.root / "sessions"
        self.packed = self.root / "packed"
        self.stderr_file = self.root / "stderr.txt"
        self.database = self.sessions / "sessions.db"
        self._before: dict[str, _Seen] = {}

    @classmethod
    def make(cls, root: Path, seed: Path, store: StoreName = "jsonl") -> Workspace:
        """Create the directories and copy `seed`, if there is one. Raises `OSError`, `FileExistsError` included."""
        import shutil

        made = cls(root, store)
        made.root.mkdir(parents=True, exist_ok=True)
        if seed.is_dir():
            shutil.copytree(seed, made.directory, symlinks=True)
        else:
            made.directory.mkdir()
        for directory in (made.home, made.temporary, made.sessions):
            directory.mkdir()
        made.stderr_file.touch()
        made._before = {path: _Seen(_digest(data), mode) for path, data, mode in made._files()}
        return made

    @property
    def spellings(self) -> tuple[str, ...]:
        """How the workspace's path may be written in texts; the first one is given to the agent."""
        given, real = str(self.directory), os.path.realpath(self.directory)
        private = real.removeprefix("/private")  # what macOS calls /private/tmp in some places and /tmp in others
        return tuple(dict.fromkeys((given, real, private)))

    def expand(self, text: str) -> str:
        """`text` with `{{cwd}}` and `{{home}}` filled in."""
        return text.replace("{{cwd}}", str(self.directory)).replace("{{home}}", str(self.home))

    def holds(self, path: str) -> bool:
        """Whether an absolute path lies below the run's root, by name or in truth."""
        plain = os.path.normpath(path)
        return any(plain.startswith(f"{root}/") for root in (str(self.root), os.path.realpath(self.root)))

    # -- environment

    def plain_environment(self) -> dict[str, str]:
        """This process's environment without secrets and agents' settings, at home in the run's root.

        Zone, locale and terminal are the same on every machine, so that what tools print is too.
        """
        kept = {name: value for name, value in os.environ.items() if not _dropped(name.upper())}
        return kept | {
            "HOME": str(self.home), "TMPDIR": str(self.temporary), "PWD": str(self.directory),
            "XDG_CONFIG_HOME": str(self.home / ".config"), "XDG_STATE_HOME": str(self.home / ".local/state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"), "XDG_DATA_HOME": str(self.home / ".local/share"),
            "TZ": "UTC", "LC_ALL": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8", "TERM": "dumb",
        }  # fmt: skip

    def environment(
        self, mode: str, recording: Path | None, extra: Mapping[str, str], scenario: Mapping[str, str], *,
        process: int = 1,
    ) -> dict[str, str]:
        """The environment of one of the agent's processes, numbered from 1: `extra` beats what the driver sets, the
        scenario's own variables beat both.
        """
        place = f"jsonl:{self.sessions}" if self._store == "jsonl" else f"sqlite:{self.database}"
        settings = {
            "ACP_SESSION_STORE": place, "ACP_REPLAY_TOOLS": "live", "ACP_PERMISSION_MODE": mode,
            "ACP_REPLAY_RECEIPT": str(self._receipt_file(process)),
        }
        if recording is not None:
            settings["ACP_REPLAY_DIR"] = str(recording.absolute())
        chosen = {name: self.expand(value) for name, value in scenario.items()}
        return self.plain_environment() | settings | dict(extra) | chosen

    def marks(self) -> frozenset[bytes]:
        """Environment entries that only processes of this run have."""
        return frozenset({f"HOME={self.home}".encode(), f"TMPDIR={self.temporary}".encode()})

    # -- harvest

    def stderr(self) -> str:
        """What the agent wrote to stderr so far."""
        return self.stderr_file.read_text(encoding="utf-8", errors="replace")

    def receipts(self, processes: int) -> list[bytes | None]:
        """The replay receipt of each process, None of one that wrote none."""
        files = [self._receipt_file(number) for number in range(1, processes + 1)]
        return [file.read_bytes() if file.is_file() else None for file in files]

    def _receipt_file(self, process: int) -> Path:
        return self.root / ("receipt.json" if process == 1 else f"receipt.{process}.json")

    def growing_store(self) -> GrowingStore:
        """The session logs as they are while the agent writes them."""
        return GrowingFiles(self.sessions) if self._store == "jsonl" else GrowingDatabase(self.database)

    def logs(self) -> tuple[HarvestedLog, ...]:
        """Every session log of a store that is a directory of logs."""
        return tuple(HarvestedLog(path, path.read_bytes()) for path in sorted(self.sessions.rglob("*.jsonl")))

    def difference(self) -> tuple[FileState, ...]:
        """What the run made, changed and removed, by path. Modes are 0644 or 0755, as in a git tree.

        A symbolic link has the mode 0120777 and its target as data. Directories, and the content of those in
        `UNTRACKED`, do not count.
        """
        after: dict[str, FileState] = {}
        same: set[str] = set()
        for path, data, mode in self._files():
            if self._before.get(path) == _Seen(_digest(data), mode):
                same.add(path)
            else:
                after[path] = FileState(path, data, mode)
        gone = {path: FileState(path, None, seen.mode) for path, seen in self._before.items()
                if path not in after and path not in same}
        return tuple(state for _, state in sorted((after | gone).items()))

    def _files(self) -> Iterator[tuple[str, bytes, int]]:
        for folder, folders, names in os.walk(self.directory):
            links = [name for name in folders if Path(folder, name).is_symlink()]
            folders[:] = [name for name in folders if name not in UNTRACKED]
            for name in [*names, *links]:
                path = Path(folder, name)
                state = path.lstat()
                where = path.relative_to(self.directory).as_posix()
                if stat.S_ISLNK(state.st_mode):
                    yield where, os.fsencode(path.readlink()), _LINK
                elif stat.S_ISREG(state.st_mode):
                    yield where, path.read_bytes(), _EXECUTABLE if state.st_mode & 0o111 else _FILE


def _dropped(name: str) -> bool:
    return name.startswith(_SETTINGS) or name in _DROPPED or any(word in name for word in _SECRETS)


def _digest(data: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(data, digest_size=32).digest()
