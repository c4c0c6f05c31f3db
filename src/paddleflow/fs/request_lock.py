"""The lock of the thread that reads requests.

One thread reads requests and answers them for as long as everything that is asked for lies in memory: then no thread has to be woken, and
none fights with another for the interpreter. Before it does anything that waits (for a store, a disk, a lock that is held long), it releases
the lock, so that another thread reads meanwhile. Acquired by `session`; released by the thread that is about to wait.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Lockable(Protocol):
    """Any lock of `threading`."""

    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


class RequestLock:
    """Held by one thread at a time. Both calls are cheap where nothing changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0

    @property
    def held(self) -> bool:
        """Whether this thread holds it."""
        return self._holder == threading.get_ident()

    def acquire(self) -> None:
        """Wait for it, unless this thread still holds it."""
        me = threading.get_ident()
        if self._holder != me:
            self._lock.acquire()
            self._holder = me

    def release(self) -> None:
        """Let another thread read, if this one holds it."""
        if self.held:
            self._holder = 0
            self._lock.release()

    def guard(self, lock: Lockable) -> Guard:
        """`with` it a lock is held that somebody else may hold while he waits: whoever has to wait for it releases this one."""
        return Guard(self, lock)


class Guard:
    __slots__ = ("_lock", "_request_lock")

    def __init__(self, request_lock: RequestLock, lock: Lockable) -> None:
        self._request_lock, self._lock = request_lock, lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._request_lock.release()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()
