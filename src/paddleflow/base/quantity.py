"""Kubernetes quantities (``500m``, ``20Gi``) as exact integers, and vectors of them.

CPU and scalar resources are counted in thousandths, memory in bytes, so that sums are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

_SUFFIXES = {
    "n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3, "": Decimal(1),
    "k": Decimal(10) ** 3, "K": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?P<suffix>[numkKMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
#: How people write bytes elsewhere: 1GB, 1gb, 1 GiB, 512 MB, 4g. The exact forms are taken by the pattern above first.
_SPOKEN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<letter>[kmgtpe]?)i?b?", re.ASCII | re.IGNORECASE)
LARGEST = 2**62  #: of any amount; sums of a cluster still fit a signed 64-bit column


@lru_cache(maxsize=1024, typed=True)
def parse_quantity(text: str | int | float, *, unit: Decimal = Decimal(1)) -> int:
    """The amount in multiples of `unit`, rounded up; ValueError says what is wrong, for a person."""
    shown = str(text).strip()
    if isinstance(text, bool) or len(shown) > 64:
        raise ValueError(f"quantity {shown[:64]!r} is not a number with an optional suffix such as 500m, 2 or 20Gi")
    match = _QUANTITY.fullmatch(shown)
    if match is None:
        if shown.startswith("-"):
            raise ValueError(f"quantity {shown!r} is negative, it must be 0 or more")
        if bytes_as_spoken := _SPOKEN.fullmatch(shown):
            digits, letter = bytes_as_spoken["number"], bytes_as_spoken["letter"].upper()
            wanted = f"{digits}{letter}i or {digits}{letter}" if letter else digits
            raise ValueError(f"quantity {shown!r} is not a Kubernetes quantity: write {wanted}")
        raise ValueError(f"quantity {shown!r} is not a number with an optional suffix such as 500m, 2 or 20Gi")
    number = Decimal(match["number"])
    factor = Decimal(10) ** int(match["exponent"]) if match["exponent"] else _SUFFIXES[match["suffix"] or ""]
    exact = number * factor / unit
    if exact > LARGEST:
        raise ValueError(f"quantity {shown!r} is larger than this system can count")
    whole = int(exact)
    return whole if whole == exact else whole + 1


_MILLI = Decimal(1) / 1000


def parse_milli(text: str | int | float) -> int:
    return parse_quantity(text, unit=_MILLI)


def format_milli(amount: int) -> str:
    """``1500`` → ``1500m``, ``2000`` → ``2``."""
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def format_bytes(amount: int) -> str:
    """The largest binary suffix that is exact: 2147483648 → ``2Gi``; plain digits otherwise."""
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)


class Resources(NamedTuple):
    """An amount of everything: cpu (thousandths of a core), memory (bytes), scalars (thousandths each, by name).

    `scalars` is sorted and holds no zero, so equal amounts are equal values and may be dictionary keys. A named tuple, for
    the scheduler adds and compares very many of them, and a frozen dataclass takes three times as long.
    """

    cpu: int = 0
    memory: int = 0
    scalars: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(cpu: int = 0, memory: int = 0, scalars: Mapping[str, int] | None = None) -> Resources:
        if not scalars:
            return Resources(cpu, memory)
        return Resources(cpu, memory, tuple(sorted((k, v) for k, v in scalars.items() if v)))

    def scalar(self, name: str) -> int:
        for key, amount in self.scalars:
            if key == name:
                return amount
        return 0

    def __add__(self, other: Resources) -> Resources:  # type: ignore[override]  # amounts add up, they are no sequences
        return self._combined(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        """May go below zero; see `fits`."""
        return self._combined(other, -1)

    def __mul__(self, times: int) -> Resources:  # type: ignore[override]  # as above
        if times == 1:
            return self
        scalars = tuple([(k, v * times) for k, v in self.scalars]) if times and self.scalars else ()
        return Resources(self.cpu * times, self.memory * times, scalars)

    def _combined(self, other: Resources, sign: int) -> Resources:
        cpu, memory, scalars = self  # unpacked, which takes a third of asking by name
        more_cpu, more_memory, more = other
        if more and len(scalars) == len(more) == 1 and scalars[0][0] == more[0][0]:
            amount = scalars[0][1] + sign * more[0][1]  # one kind of device: almost always
            scalars = ((scalars[0][0], amount),) if amount else ()
        elif more:
            merged = dict(scalars)
            for name, amount in more:
                merged[name] = merged.get(name, 0) + sign * amount
            scalars = tuple(sorted((k, v) for k, v in merged.items() if v))
        return Resources(cpu + sign * more_cpu, memory + sign * more_memory, scalars)

    def fits(self, available: Resources) -> bool:
        """Whether this much can be taken from `available`."""
        return not self.beyond(available)

    def beyond(self, available: Resources) -> list[str]:
        """The dimensions in which this is more than `available`, in a fixed order."""
        over = []
        if self.cpu > available.cpu:
            over.append("cpu")
        if self.memory > available.memory:
            over.append("memory")
        over.extend(name for name, amount in self.scalars if amount > available.scalar(name))
        return over

    def amount(self, dimension: str) -> int:
        if dimension == "cpu":
            return self.cpu
        return self.memory if dimension == "memory" else self.scalar(dimension)

    def text(self, dimension: str) -> str:
        """One dimension as people write it."""
        amount = self.amount(dimension)
        return format_bytes(amount) if dimension == "memory" else format_milli(amount)

    def __str__(self) -> str:
        parts = [f"cpu: {format_milli(self.cpu)}", f"mem: {format_bytes(self.memory)}"]
        return ", ".join(parts + [f"{name}: {format_milli(amount)}" for name, amount in self.scalars])


def left_of(capacity: Resources, used: Resources) -> Resources:
    """What is idle, never less than nothing."""
    rest = capacity - used
    return Resources.of(max(rest.cpu, 0), max(rest.memory, 0), {name: max(n, 0) for name, n in rest.scalars})


def total(parts: Iterable[Resources]) -> Resources:
    result = Resources()
    for part in parts:
        result = result + part
    return result
