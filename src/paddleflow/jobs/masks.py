"""Hides values in logs. Pure: bytes in, as many bytes out, so that offsets into a log stay what they are.

A value may lie across two chunks that are read one after the other. `api.masked_logs` therefore reads a little more on both sides
and masks that; `unfinished` says how much of the present end may be the beginning of a value that is still being written. The time
that it takes grows with the bytes of the log and with the number of values, and not faster, whatever a user made them of.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 4  #: characters; a log without every "a" is no log any more
MOST_LINES = 2_000  #: lines of values that are hidden by themselves, the longest first
MASK = bytes(byte if byte in b"\r\n" else ord("*") for byte in range(256))  #: of each byte; lines stay lines
_HEAD = 16  #: bytes by which the beginning of a value is looked for
_CHECKS = 64  #: places at which it is compared; a log full of them is held back a little more


class Masks:
    """Values to hide. A value of several lines is hidden line by line as well."""

    def __init__(self, values: Iterable[str]) -> None:
        whole: set[str] = set()
        lines: set[str] = set()
        for value in values:
            whole |= {value, value.strip()}
            lines.update(map(str.strip, value.splitlines()))
        kept = sorted(lines - whole, key=len, reverse=True)[:MOST_LINES]
        found = {text.encode("utf-8", "surrogatepass") for text in (*whole, *kept) if len(text) >= SHORTEST}
        self._values = sorted(found, key=len, reverse=True)
        self.longest = len(self._values[0]) if self._values else 0

    def __bool__(self) -> bool:
        return bool(self._values)

    def hide(self, data: bytes) -> bytes:
        """The same with every value masked, those that overlap as well."""
        masked: bytearray | None = None
        for value in self._values:
            size = len(value)
            at = data.find(value)
            while at >= 0:
                masked = masked or bytearray(data)
                again = data.find(value, at + 1, at + 2 * size)
                last = at if again < 0 else _last_repetition(data, at, size, again - at)
                masked[at : last + size] = data[at : last + size].translate(MASK)
                at = data.find(value, last + 1)
        return data if masked is None else bytes(masked)

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a value, or a few more."""
        return max((_beginning(value, data) for value in self._values), default=0)


def _last_repetition(data: bytes, at: int, size: int, period: int) -> int:
    """Where the last of the values begins that lie `period` bytes apart from `at` on, and overlap or touch each other."""
    end, step = at + size, size
    while step:
        piece = data[end : end + step]
        if piece and piece == data[end - period : end - period + len(piece)]:
            end += len(piece)
        else:
            step //= 2
    return at + (end - at - size) // period * period


def _beginning(value: bytes, data: bytes) -> int:
    size = len(value)
    at = max(0, len(data) - size + 1) - 1
    for _ in range(_CHECKS):
        at = data.find(value[:_HEAD], at + 1)
        if at < 0:
            break
        if value.startswith(data[at:]):
            return len(data) - at
    if at >= 0:
        return len(data) - at
    for tail in range(min(_HEAD - 1, size - 1, len(data)), 0, -1):
        if value.startswith(data[len(data) - tail :]):
            return tail
    return 0
