"""Text that somebody else wrote, made fit for where it goes: a terminal, or an answer in UTF-8. Pure."""

from __future__ import annotations

#: Control characters of C0 and C1 but the tab and the line feed, which a terminal obeys instead of showing them, and those that change
#: the direction of writing, with which a line shows something else than it says.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def printable(text: str) -> str:
    """Text for a terminal: control characters are shown, not sent."""
    return text if text.isprintable() else as_utf8(text.translate(_CONTROLS))


def as_utf8(text: str) -> str:
    """The name of a file may be any bytes: those that are not UTF-8, which Python has as half a surrogate pair, are shown as ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()
