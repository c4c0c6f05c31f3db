"""Stores around stores: try again, slow down, count, and fail on purpose. Each is an `ObjectStore` itself.

They compose: ``Metered(Retrying(RateLimited(store)))``. Listings are wrapped at their first page only; a store that pages
over a network tries its further pages again by itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from io import SEEK_SET
from typing import BinaryIO, TypeVar

from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError, TooMany, Unavailable
from paddleflow.objects.store import RETRYABLE, Entry, ObjectStore

T = TypeVar("T")


class Wrapper:
    """Hands every call on through `around`, which subclasses replace."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        raise NotImplementedError

    def stat(self, key: str) -> Entry:
        return self.around("stat", lambda: self.inner.stat(key))

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        def start() -> tuple[list[Entry], Iterator[Entry]]:
            rest = self.inner.list_entries(folder, recursive=recursive)
            return [first for first in [next(rest, None)] if first is not None], rest

        first, rest = self.around("list", start)
        yield from first
        yield from rest

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        return self.around("read", lambda: self.inner.read(key, size=size, offset=offset, tag=tag), size=size)

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        at = content.tell() if not isinstance(content, bytes) and content.seekable() else None

        def call() -> Entry:
            if at is not None and not isinstance(content, bytes):
                content.seek(at, SEEK_SET)
            return self.inner.write(key, content, metadata=metadata, if_absent=if_absent, if_tag=if_tag)

        conditional = if_absent or bool(if_tag)
        return self.around(
            "write",
            call,
            repeatable=not conditional and (isinstance(content, bytes) or at is not None),
            size=len(content) if isinstance(content, bytes) else 0,
        )

    def remove(self, key: str) -> None:
        self.around("remove", lambda: self.inner.remove(key))

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        self.around("make_folder", lambda: self.inner.make_folder(key, metadata=metadata))

    def remove_folder(self, key: str) -> None:
        self.around("remove_folder", lambda: self.inner.remove_folder(key))

    def copy(self, source: str, target: str) -> Entry:
        return self.around("copy", lambda: self.inner.copy(source, target))

    def rename(self, source: str, target: str) -> Entry:
        # Not repeatable: after a lost answer the source is gone, and a second attempt would say so.
        return self.around("rename", lambda: self.inner.rename(source, target), repeatable=False)

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        return self.around("set_metadata", lambda: self.inner.set_metadata(key, metadata))

    def close(self) -> None:
        self.inner.close()


class Retrying(Wrapper):
    """Tries again what may be tried again, with growing pauses, for a bounded number of times."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        attempts: int = 5,
        first_pause: float = 0.1,
        longest_pause: float = 5.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._attempts, self._first_pause, self._longest_pause = attempts, first_pause, longest_pause
        self._sleep = sleep

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        pause = self._first_pause
        for _ in range(self._attempts - 1 if repeatable else 0):
            try:
                return call()
            except RETRYABLE as error:
                wanted = float(error.retry_after) if isinstance(error, TooMany) else 0.0
                # Some of the pause is random, so that many clients of one store do not come back at once.
                self._sleep(min(self._longest_pause, max(wanted, pause * random.uniform(0.5, 1.0))))  # noqa: S311 not a secret
                pause *= 2
        return call()


class RateLimited(Wrapper):
    """At most so many calls and so many bytes a second; callers wait for their turn. Zero: no limit."""

    def __init__(
        self,
        inner: ObjectStore,
        *,
        calls: float = 0.0,
        bytes_: float = 0.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(inner)
        self._calls, self._bytes, self._now, self._sleep = calls, bytes_, now, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0  #: when the next call may begin

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        price = (1 / self._calls if self._calls else 0.0) + (size / self._bytes if self._bytes else 0.0)
        with self._lock:
            now = self._now()
            start = max(now, self._free_at)
            self._free_at = start + price
        if start > now:
            self._sleep(start - now)
        return call()


@dataclass
class Figures:
    """What a store was asked for."""

    calls: Counter[str] = field(default_factory=Counter)  #: by operation
    errors: Counter[str] = field(default_factory=Counter)  #: by operation and class, such as ``read NotFound``
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  #: by operation
    bytes_asked: int = 0  #: by reads and writes


class Metered(Wrapper):
    """Counts calls, errors, seconds and bytes."""

    def __init__(self, inner: ObjectStore, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner)
        self.figures = Figures()
        self._now = now
        self._lock = threading.Lock()

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        start, failed = self._now(), ""
        try:
            return call()
        except PaddleFlowError as error:
            failed = type(error).__name__
            raise
        finally:
            with self._lock:
                self.figures.calls[operation] += 1
                self.figures.seconds[operation] += self._now() - start
                self.figures.bytes_asked += size
                if failed:
                    self.figures.errors[f"{operation} {failed}"] += 1


class Faulty(Wrapper):
    """Fails on purpose: `decide(operation, number)` gives the error for the n-th call, or None. For tests and drills.

    With `after=True` the call has happened when it fails, as when only the answer is lost.
    """

    def __init__(
        self, inner: ObjectStore, decide: Callable[[str, int], PaddleFlowError | None], *, after: bool = False
    ) -> None:
        super().__init__(inner)
        self._decide, self._after = decide, after
        self._lock = threading.Lock()
        self._number = 0

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        with self._lock:
            self._number += 1
            error = self._decide(operation, self._number)
        if error is not None and not self._after:
            raise error
        result = call()
        if error is not None:
            raise error
        return result


def fail_nth(number: int) -> Callable[[str, int], PaddleFlowError | None]:
    """For `Faulty`: only the n-th call fails, as if the store had not answered."""
    return lambda operation, count: Unavailable(f"{operation}: no answer") if count == number else None
