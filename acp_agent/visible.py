"""Text from somebody else's program, made safe to show: what a terminal would obey becomes a sign of it."""

from __future__ import annotations

_KEPT = frozenset("\n\t")
_TURNED = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # they change the order in which text is drawn
_BEYOND = (*range(0x80, 0xA0), 0x2028, 0x2029, *_TURNED)


def _signs() -> dict[int, str]:
    signs = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
    signs |= {0x7F: "\u2421"}
    return signs | {code: f"<U+{code:04X}>" for code in _BEYOND}


_SIGNS = _signs()
_LINE_SIGNS = _SIGNS | {ord("\n"): "\u240a", ord("\t"): " "}
_ESCAPES = {code: f"\\u{code:04x}" for code in (0x7F, *_BEYOND)}


def visible(text: str) -> str:
    """`text` with control characters as signs: what a terminal would obey is only shown. Line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_SIGNS)


def one_line(text: str) -> str:
    """`text` made `visible`, its line ends too."""
    return text.replace("\r\n", "\n").translate(_LINE_SIGNS)


def harmless_json(text: str) -> str:
    """JSON of the same meaning, with the control characters that JSON may hold as they are escaped as well."""
    return text.translate(_ESCAPES)
