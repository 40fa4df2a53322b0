"""What a child is doing, in a few lines of text: shown in the call that made it, to clients that know no children.

As far as it goes, lines are only added at the end: there are clients that show a text as it grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from acp_agent.tools.views import shorten

NEWEST = 20
"""So many lines are shown at most."""


class Deed:
    """A tool call of a child's. `inside` is what the call's own child does."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.failed = False
        self.inside: Progress | None = None

    def lines(self) -> Iterator[str]:
        yield f"- {shorten(self.title, 100)}{' (failed)' if self.failed else ''}"
        if self.inside is not None:
            yield from (f"  {line}" for line in self.inside.lines())


class Progress:
    """A child's newest answers and calls, in order, as a Markdown list."""

    def __init__(self) -> None:
        self._items: deque[str | Deed] = deque(maxlen=NEWEST + 1)

    def answer(self, text: str, titles: Sequence[str]) -> list[Deed]:
        """The child said something, and asked for calls with these titles."""
        deeds = [Deed(title) for title in titles]
        if text.strip():
            self._items.append(f'- "{shorten(text, 200)}"')
        self._items.extend(deeds)
        return deeds

    def lines(self) -> Iterator[str]:
        for item in self._items:
            if isinstance(item, Deed):
                yield from item.lines()
            else:
                yield item

    @property
    def text(self) -> str:
        """The newest of it; dots stand for what came before."""
        lines = list(self.lines())
        return "\n".join(lines if len(lines) <= NEWEST else ["- ...", *lines[-NEWEST:]])
