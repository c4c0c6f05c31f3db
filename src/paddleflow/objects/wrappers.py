"""Stores around stores: one that retries, one that limits the rate of calls and bytes, one that counts. Each is an `ObjectStore`.

They compose: ``Metered(Retrying(RateLimited(store, limit)), figures)``. Listings are wrapped at their first page only; a store that pages
over a network retries its further pages itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from io import SEEK_END, SEEK_SET
from typing import BinaryIO, TypeVar, cast

from paddleflow.errors import Conflict, NotFound, PaddleFlowError, TooMany
from paddleflow.objects.store import RETRYABLE, Entry, MultipartStore, ObjectStore, Part

T = TypeVar("T")


class Wrapper:
    """Passes every call on through `around`, which subclasses replace. Takes parts if the store inside does."""

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
            size=len(content) if isinstance(content, bytes) else _bytes_left(content),
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
        return self.around("rename", lambda: self.inner.rename(source, target))

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        return self.around("set_metadata", lambda: self.inner.set_metadata(key, metadata))

    @property
    def _multipart(self) -> MultipartStore:
        return cast(MultipartStore, self.inner)

    def start_upload(self, key: str, *, metadata: Mapping[str, str] | None = None) -> str:
        return self.around("start_upload", lambda: self._multipart.start_upload(key, metadata=metadata))

    def write_part(self, key: str, upload: str, number: int, content: bytes) -> Part:
        return self.around(
            "write_part", lambda: self._multipart.write_part(key, upload, number, content), size=len(content)
        )

    def list_parts(self, key: str, upload: str) -> list[Part]:
        return self.around("list_parts", lambda: self._multipart.list_parts(key, upload))

    def finish_upload(
        self, key: str, upload: str, parts: list[Part], *, if_absent: bool = False, if_tag: str = ""
    ) -> Entry:
        # Repeatable: the id of an upload is good for one object. After a lost answer it is gone, which is `NotFound`.
        return self.around(
            "finish_upload",
            lambda: self._multipart.finish_upload(key, upload, parts, if_absent=if_absent, if_tag=if_tag),
        )

    def abort_upload(self, key: str, upload: str) -> None:
        self.around("abort_upload", lambda: self._multipart.abort_upload(key, upload))

    def close(self) -> None:
        self.inner.close()


def _bytes_left(content: BinaryIO) -> int:
    """How much of a file is still to be read; 0 for one that cannot say."""
    if not content.seekable():
        return 0
    at = content.tell()
    end = content.seek(0, SEEK_END)
    content.seek(at, SEEK_SET)
    return end - at


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

    def rename(self, source: str, target: str) -> Entry:
        if self.capabilities.copy and not self.capabilities.atomic_rename:
            copied = self.copy(source, target)
            self.remove(source)
            return copied
        attempts = 0

        def call() -> Entry:
            nonlocal attempts
            attempts += 1
            try:
                return self.inner.rename(source, target)
            except NotFound:
                if attempts == 1:
                    raise
                return self.inner.stat(target)  # an attempt before did it, and its answer was lost

        return self.around("rename", call)


class RateLimit:
    """So many calls and so many bytes per second, shared by all stores that are given it. Zero: unlimited."""

    def __init__(
        self,
        *,
        calls: float = 0.0,
        bytes_: float = 0.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls, self._bytes, self._now, self._sleep = calls, bytes_, now, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0  #: when the next call may begin

    def wait(self, size: int) -> None:
        """Wait for the turn of a call that moves so many bytes."""
        cost = (1 / self._calls if self._calls else 0.0) + (size / self._bytes if self._bytes else 0.0)
        if not cost:
            return
        with self._lock:
            now = self._now()
            start = max(now, self._free_at)
            self._free_at = start + cost
        if start > now:
            self._sleep(start - now)


class RateLimited(Wrapper):
    """Its calls wait until the limit lets them begin."""

    def __init__(self, inner: ObjectStore, limit: RateLimit) -> None:
        super().__init__(inner)
        self._limit = limit

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        self._limit.wait(size)
        return call()


class Figures:
    """What stores were asked for, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, operation: str, seconds: float, failed: bool) -> None:
        with self._lock:
            self._calls[operation] += 1
            self._seconds[operation] += seconds
            self._failed[operation] += failed

    def as_dict(self) -> dict[str, dict[str, float]]:
        """By operation."""
        with self._lock:
            return {
                name: {"count": count, "failed": self._failed[name], "seconds": round(self._seconds[name], 6)}
                for name, count in sorted(self._calls.items())
            }


class Metered(Wrapper):
    """Counts calls, failed calls and seconds. That something is absent, or not as expected, is an answer and no failure."""

    def __init__(self, inner: ObjectStore, figures: Figures, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner)
        self._figures, self._now = figures, now

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        start, failed = self._now(), False
        try:
            return call()
        except PaddleFlowError as error:
            failed = not isinstance(error, NotFound | Conflict)
            raise
        finally:
            self._figures.add(operation, self._now() - start, failed)
