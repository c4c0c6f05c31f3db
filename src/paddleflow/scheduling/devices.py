"""The numbered devices of one scalar resource on one node.

A whole request (a multiple of 1000 thousandths) takes untouched devices, lowest numbers first. A request below 1000 is
a share of one device: the fullest device that still has room for it, the lowest number among equals. The state is a
function of who holds what, never of the order in which they came, so a rebuilt node equals one kept up by events.
"""

from __future__ import annotations

from itertools import islice

WHOLE = 1000  #: thousandths in one device
MOST_NUMBERED = 1024  #: a node with more of a resource than this is a measure, not a rack: counted, without numbers


class Devices:
    """Who may still take what of one resource on one node. `used` is by device number, in thousandths."""

    __slots__ = ("count", "loose", "milli", "numbered", "used")

    def __init__(self, milli: int, reserved: int, numbered: bool = True) -> None:
        self.milli = milli
        self.count = milli // WHOLE
        self.numbered = numbered and self.count <= MOST_NUMBERED
        self.used: dict[int, int] = {}
        self.loose = reserved  #: taken by somebody who did not say which device

    def room(self) -> tuple[int, int]:
        """What the largest whole request and the largest fractional request could be, in thousandths."""
        if not self.numbered:
            left = max(0, self.milli - self.loose)
            return left, left
        untouched = self._untouched()
        part = WHOLE if untouched else 0
        if not part:
            part = max((WHOLE - u for n, u in self.used.items() if n < self.count), default=0)
        return untouched * WHOLE, max(0, part)

    def shares(self, amount: int) -> int:
        """How many fractional requests of this size find room."""
        if not self.numbered:
            return max(0, self.milli - self.loose) // amount
        opened = sum((WHOLE - u) // amount for n, u in self.used.items() if n < self.count and u < WHOLE)
        return opened + self._untouched() * (WHOLE // amount)

    def _untouched(self) -> int:
        busy = (
            len(self.used) if not self.used or max(self.used) < self.count else sum(n < self.count for n in self.used)
        )
        return max(0, self.count - busy - -(-self.loose // WHOLE))

    def take(self, amount: int) -> tuple[int, ...]:
        """The numbers given for `amount`, which must fit (see `room`); empty when the resource is only counted."""
        if not self.numbered:
            self.loose += amount
            return ()
        used = self.used
        if amount % WHOLE:
            open_devices = [(WHOLE - u, n) for n, u in used.items() if n < self.count and WHOLE - u >= amount]
            number = min(open_devices)[1] if open_devices else next(n for n in range(self.count) if n not in used)
            used[number] = used.get(number, 0) + amount
            return (number,)
        numbers = tuple(islice((number for number in range(self.count) if number not in used), amount // WHOLE))
        for number in numbers:
            used[number] = WHOLE
        return numbers

    def hold(self, amount: int, numbers: tuple[int, ...]) -> None:
        """Count `amount` on these numbers; what they do not cover is held by no device in particular."""
        self._count(amount, numbers, 1)

    def give(self, amount: int, numbers: tuple[int, ...]) -> None:
        """The reverse of `hold` with the same arguments."""
        self._count(amount, numbers, -1)

    def _count(self, amount: int, numbers: tuple[int, ...], sign: int) -> None:
        if not self.numbered:
            self.loose += sign * amount
            return
        for number in numbers:
            part = min(WHOLE, amount)
            amount -= part
            left = self.used.get(number, 0) + sign * part
            if left:
                self.used[number] = left
            else:
                self.used.pop(number, None)
        self.loose += sign * amount
