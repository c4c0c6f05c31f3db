"""Stores around stores for tests: one that fails on purpose, and one that counts what it is asked for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from paddleflow.errors import PaddleFlowError, Unavailable
from paddleflow.objects.store import ObjectStore
from paddleflow.objects.wrappers import Wrapper

T = TypeVar("T")


class Faulty(Wrapper):
    """Fails on purpose: `decide(operation, number)` gives the error for the n-th call, or None.

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


class Counted(Wrapper):
    """Counts its calls by operation."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def around(self, operation: str, call: Callable[[], T], *, repeatable: bool = True, size: int = 0) -> T:
        with self._lock:
            self.calls[operation] += 1
        return call()
