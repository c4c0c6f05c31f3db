"""Ports for distributed jobs: each given to one member alone, from the range of the settings."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from paddleflow.errors import Invalid, Temporary


def parse_range(text: str) -> range:
    """``20000-29999`` as a range; `Invalid` otherwise."""
    first, dash, last = text.partition("-")
    if not dash or not first.strip().isdecimal() or not last.strip().isdecimal():
        raise Invalid(f"local.ports must be FIRST-LAST, such as 20000-29999, found {text!r}")
    ports = range(int(first), int(last) + 1)
    if not ports or ports.start < 1 or ports[-1] > 65535:
        raise Invalid(f"local.ports must lie within 1-65535, found {text!r}")
    return ports


def is_free(port: int) -> bool:
    """Whether nobody on this machine has the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class Ports:
    """Who has which port. Goes round the range, so that a port just released is used again as late as possible.

    It begins anywhere (`begin`): a port is free until its owner has opened it, so two servers on one machine that began
    at the same end would hand out the same ones.
    """

    def __init__(self, ports: range, free: Callable[[int], bool] = is_free, begin: int = 0) -> None:
        self._ports = ports
        self._free = free
        self._next = begin % len(ports)
        self._taken: set[int] = set()

    def take(self, count: int) -> tuple[int, ...]:
        """That many ports, or `Temporary` and none."""
        found: list[int] = []
        for _ in range(len(self._ports)):
            if len(found) == count:
                break
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            if port not in self._taken and self._free(port):
                found.append(port)
        if len(found) < count:
            raise Temporary(f"only {len(found)} of {count} ports are free in {self._ports[0]}-{self._ports[-1]}")
        self._taken.update(found)
        return tuple(found)

    def hold(self, ports: Iterable[int]) -> None:
        """These are in use by a job that runs already."""
        self._taken.update(ports)

    def release(self, ports: Iterable[int]) -> None:
        self._taken.difference_update(ports)
