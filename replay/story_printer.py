"""Stories on a console, the tree of sessions as indentation."""

from __future__ import annotations

from replay.printer import Printer, one_line, visible
from replay.story import Moment, Story

_LINES = 8
"""Lines shown of one text from a tool; how many more there are is said."""

_WIDTH = 100
"""Characters shown of a tool's arguments."""

_GUIDE = "│ "


def show_story(printer: Printer, story: Story, depth: int = 0, model: str = "") -> None:
    """Print a session's story and its children's. `model` is the parent's: it is not said again."""
    title = f" · {one_line(story.title)}" if story.title else ""
    seed = f" · begins with {story.inherited} inherited events" if story.inherited else ""
    asked = f" · {one_line(story.model)}" if story.model not in ("", model) else ""
    printer.line((_GUIDE * depth, "dim"), (one_line(story.address), "magenta"),
                 (f" · {one_line(story.session)}{title}{asked}{seed}", "dim"))
    for moment in story.moments:
        if moment.story is not None:
            show_story(printer, moment.story, depth + 1, story.model or model)
        else:
            _show(printer, moment, _GUIDE * (depth + 1))


def _show(printer: Printer, moment: Moment, guide: str) -> None:
    match moment.kind:
        case "prompt":
            _block(printer, guide, visible(moment.text), "bold", "> ")
        case "command":
            _block(printer, guide, visible(moment.text), "bold", "> ")
            _block(printer, guide, visible(moment.result), "", "→ ")
        case "text":
            _block(printer, guide, visible(moment.text), "")
        case "thought":
            _block(printer, guide, visible(moment.text), "dim italic")
        case "tool":
            _tool(printer, moment, guide)
        case "note":
            _block(printer, guide, visible(moment.text), "dim", "# ")
        case "plan":
            _block(printer, guide, visible(moment.text or "(an empty plan)"), "dim", "  ")
        case "grant":
            printer.line((guide, "dim"), (one_line(moment.text), "yellow"))
        case "settings":
            printer.line((guide, "dim"), ("set: ", "dim"), (one_line(moment.text), "dim"))
        case "replay":
            printer.line((guide, "dim"), (f"answers come from the recording {one_line(moment.text)}", "dim"))
        case "lost":
            printer.line((guide, "dim"), (f"── {moment.text} ──", "red"))
        case "retry":
            printer.line((guide, "dim"), ("tried again after ", "yellow"), (_clipped(moment.text), "dim"))
        case "end":
            printer.line((guide, "dim"), (f"turn ended: {one_line(moment.text)}", "yellow"))
        case "seed":
            printer.line((guide, "dim"), (f"── {moment.text} ──", "magenta"))
        case "open":
            printer.line((guide, "dim"), (moment.text, "yellow"))
        case "child":
            return


def _tool(printer: Printer, moment: Moment, guide: str) -> None:
    printer.line((guide, "dim"), (one_line(moment.name), "cyan"), (f" {_clipped(moment.text)}", ""),
                 (f"  {one_line(moment.call)}", "dim"))
    if moment.decision:
        printer.line((guide, "dim"), ("? may it run: ", "yellow"), (one_line(moment.decision), "bold"))
    lines = visible(moment.result).split("\n") if moment.result else ["(no result)"]
    sign, style = ("✗ ", "red") if moment.failed else ("→ ", "dim")
    _block(printer, guide, "\n".join(lines[:_LINES]), style, sign)
    if len(lines) > _LINES:
        printer.line((guide, "dim"), (f"  … {len(lines) - _LINES} more lines", "dim"))


def _block(printer: Printer, guide: str, text: str, style: str, sign: str = "") -> None:
    """A text of several lines, each behind the guide; `sign` before the first."""
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        printer.line((guide, "dim"), (sign if number == 0 else " " * len(sign), style), (line, style))


def _clipped(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
