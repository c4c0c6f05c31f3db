"""A store around a store that tries again, and what such wrappers share. Each is an `ObjectStore` itself.

Listings are wrapped at their first page only; a store that pages over a network tries its further pages again by itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from io import SEEK_SET
from typing import BinaryIO, TypeVar

from paddleflow.errors import TooMany
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
