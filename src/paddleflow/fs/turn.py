"""Whose turn it is to read the next request.

One thread reads requests and answers them for as long as everything that is asked for lies in memory: then no thread has to be woken, and
none fights with another for the interpreter. Before it does anything that waits (for a store, a disk, a lock that is held long), it passes
the turn on, so that another thread reads meanwhile. Taken by `session`; passed on by whoever is about to wait.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Lockable(Protocol):
    """Any lock of `threading`."""

    def acquire(self, blocking: bool = ...) -> bool: ...


class Turn:
    """Held by one thread at a time. Both calls are cheap where nothing changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0

    @property
    def held(self) -> bool:
        """Whether this thread has the turn."""
        return self._holder == threading.get_ident()

    def take(self) -> None:
        """Wait for the turn, unless this thread still has it."""
        me = threading.get_ident()
        if self._holder != me:
            self._lock.acquire()
            self._holder = me

    def pass_on(self) -> None:
        """Let another thread have the turn, if this one has it."""
        if self.held:
            self._holder = 0
            self._lock.release()

    def acquire(self, lock: Lockable) -> None:
        """Acquire a lock that somebody may hold while he waits."""
        if not lock.acquire(blocking=False):
            self.pass_on()
            lock.acquire()
