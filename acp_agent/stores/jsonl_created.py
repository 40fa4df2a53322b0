"""When stored sessions were created, as far as it was read once: headers never change, and there may be thousands.

What is known is kept in a file of the store when it is much, so that the next process need not read it again. The file
is no part of any session: it may be missing, old or wrong, and a list is still right, only slower.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from acp_agent.stores.jsonl_tree import publish, remove_unfinished

FILE = ".created"
WORTH = 500
"""So many sessions to read again are worth a file."""

Known = dict[str, tuple[int, int]]
"""By a session directory's path below the store: its inode, and its session's creation time."""

_decode = msgspec.json.Decoder(Known).decode


class Created:
    """What is known of a store's sessions. A directory with another inode is another one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._fresh = 0
        self._wrong = False
        self.known: Known = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            self.known = _decode((root / FILE).read_bytes())

    def learn(self, place: str, inode: int, created_at: int) -> None:
        """A session's header was read."""
        self.known[place] = inode, created_at
        self._fresh += 1

    def forget(self, place: str) -> None:
        """Another session has the directory now."""
        self.known.pop(place, None)
        self._wrong = True

    def keep(self, places: set[str] | None) -> None:
        """Write down what is known, if that is worth it; `places` are all that there are, when all were looked at."""
        if self._fresh < WORTH and not (self._wrong and (self._root / FILE).exists()):
            return
        self._fresh, self._wrong = 0, False
        if places is not None:
            self.known = {place: known for place, known in self.known.items() if place in places}
        with contextlib.suppress(OSError):
            remove_unfinished(self._root)
            publish(self._root / FILE, msgspec.json.encode(self.known), durable=False)
