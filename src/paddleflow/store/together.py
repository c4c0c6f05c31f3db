"""Functions that do many calls for little more than the price of one, when the calls come together.

`commit` hands such a function all calls of it that follow each other in a group. Called with one, it does that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from paddleflow.errors import PaddleFlowError
from paddleflow.store.database import Tx

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Together(Generic[A, T]):
    """A function ``fn(tx, item)`` for `Database.write`."""

    #: For each item its value, or why it was refused; of what is refused, nothing is written. What it raises undoes all.
    many: Callable[[Tx, Sequence[A]], Sequence[T | PaddleFlowError]]

    def __call__(self, tx: Tx, item: A) -> T:
        [found] = self.many(tx, [item])
        if isinstance(found, PaddleFlowError):
            raise found
        return found
