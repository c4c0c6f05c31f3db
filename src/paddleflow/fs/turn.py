"""Whose turn it is to read the next request.

One thread reads requests and answers them for as long as everything that is asked for lies in memory: then no thread has to be woken, and
none fights with another for the interpreter. Before it does anything that waits (for a store, a disk, a lock that is held long), it passes
the turn on, so that another thread reads meanwhile. Taken by `session`; passed on by the thread that is about to wait.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Lockable(Protocol):
    """Any lock of `threading`."""

    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


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

    def guard(self, lock: Lockable) -> Guard:
        """`with` it a lock is held that somebody else may hold while he waits: whoever has to wait for it passes the turn on."""
        return Guard(self, lock)


class Guard:
    __slots__ = ("_lock", "_turn")

    def __init__(self, turn: Turn, lock: Lockable) -> None:
        self._turn, self._lock = turn, lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._turn.pass_on()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
