"""Tool calls on a transcript: what was shown of each, so that an update adds what is new and repeats nothing."""

from __future__ import annotations

import difflib

from replay.printer import Printer, one_line, visible
from replay.transcript_frames import Call, Item, read_each

_FINAL = {"completed": ("done", "green"), "failed": ("failed", "red")}
_DIFF_STYLES = {"+": "green", "-": "red"}
_COMPARED = 500
"""Lines of output that are compared one by one."""


class ShownCall:
    """One tool call on the console. At most `limit` lines of its output are shown; how many were not is said."""

    def __init__(self, printer: Printer, limit: int) -> None:
        self.title = ""
        self._printer = printer
        self._limit = limit
        self._label = ""
        self._announced = False
        self._final = ""
        self._output: list[str] = []
        self._shown = 0
        self._diffs: list[Item] = []
        self._terminals: list[str] = []
        self._unreadable: set[str] = set()

    def change(self, call: Call) -> None:
        """Take an update of the call and print what is new in it."""
        retitled = call.title is not None and call.title != self.title
        self.title = self.title if call.title is None else call.title
        self._label = call.name or self._label or call.kind or "tool"
        if not self._announced or retitled:
            self._announced = True
            self._printer.line((one_line(self._label), "cyan"), (f" {one_line(self.title)}", ""))
        final = call.status if call.status in _FINAL and call.status != self._final else None
        if final is not None:
            self._final = final
            word, style = _FINAL[final]
            self._printer.line((f"  {word}", style), (f" {one_line(self.title)}", ""))
        self.content(call)
        if final is not None:
            self._say_what_is_left()

    def content(self, call: Call) -> None:
        """Print what is new in the content of an update, or of a question about the call."""
        if call.content is None:
            return
        items, unreadable = read_each(call.content, Item)
        for problem in unreadable:
            if problem not in self._unreadable:
                self._unreadable.add(problem)
                self._printer.line((f"    {problem}", "dim"))
        for item in items:
            if item.type == "diff" and item not in self._diffs:
                self._diffs.append(item)
                show_diff(self._printer, item)
            elif item.type == "terminal" and item.terminal_id not in self._terminals:
                self._terminals.append(item.terminal_id)
                self._printer.line((f"    [terminal {one_line(item.terminal_id)}]", "dim"))
        self._take_output("\n".join(str(item.content) for item in items if item.content is not None))

    def _take_output(self, text: str) -> None:
        """Print the lines that were not shown; an unfinished last line waits for its end."""
        text, fenced = _unfenced(visible(text))
        lines = text.splitlines()
        if lines and not self._final and not (fenced or text.endswith("\n")):
            lines.pop()
        before, self._output = self._output, lines
        for line in _fresh(before, lines, final=bool(self._final)):
            self._shown += 1
            if self._shown <= self._limit:
                self._printer.line((f"    {line}", "dim"))

    def _say_what_is_left(self) -> None:
        left = self._shown - self._limit
        if left > 0:
            self._printer.line((f"    ({left} more line{'s' * (left > 1)})", "dim"))


def _fresh(before: list[str], now: list[str], *, final: bool) -> list[str]:
    """What is new in an output: it grew, its beginning was dropped, or lines of it changed.

    One that is final and no continuation of what came before it is new as a whole.
    """
    if now[:len(before)] == before:
        return now[len(before):]
    for start in range(0 if final else len(before)):
        if now[:1] == before[start:start + 1] and now[:len(before) - start] == before[start:]:
            return now[len(before) - start:]
    if final or max(len(before), len(now)) > _COMPARED:
        return now
    fresh: list[str] = []
    for what, _, _, first, end in difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if what in ("insert", "replace"):
            fresh += now[first:end]
    return fresh


def show_diff(printer: Printer, item: Item) -> None:
    """Print a diff: the changed lines with three lines of context. The texts may be parts of a file, so no line
    numbers are given.
    """
    old = visible(item.old_text or "").splitlines()
    new = visible(item.new_text).splitlines()
    kind = "new file " if item.old_text is None else ""
    printer.line((f"    {kind}{one_line(item.path)}", "bold"))
    for line in list(difflib.unified_diff(old, new, lineterm=""))[3:]:
        shown = "..." if line.startswith("@@") else line
        printer.line((f"    {shown}", _DIFF_STYLES.get(line[:1], "dim")))


def _unfenced(text: str) -> tuple[str, bool]:
    """The inside of a text that is one Markdown code block, and whether it was one."""
    first, _, rest = text.partition("\n")
    fence = first[: len(first) - len(first.lstrip("`"))]
    body, _, last = rest.rstrip("\n").rpartition("\n")
    if len(fence) < 3 or last != fence:
        return text, False
    return body, True
