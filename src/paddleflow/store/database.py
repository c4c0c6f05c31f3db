"""The `Database` protocol: what a store promises, whichever engine is behind it.

Guarantees, checked by ``tests/contract/test_database.py`` for every implementation:

* `write` runs ``fn(tx, …)`` all or nothing and returns after it is durable. An exception of `fn` undoes everything that
  this `fn` did and comes out of `write` unchanged; other functions that share its commit are not touched by it.
* `write` functions see each other's effects in the order in which they were committed; `fn` may be run again after a
  serialization failure, or when another function of its group failed, so it has no effects outside `tx`.
* A statement that fails ends its transaction: later statements raise the same error, and so does `write` or `read` even
  if `fn` swallowed it. (PostgreSQL cannot go on after an error; so nobody does.) A value that is there already is
  `Conflict`, one that cannot be stored at all (half a surrogate pair, a number beyond 64 bits) is `Invalid`.
* `read` runs ``fn(tx, …)`` on one consistent snapshot that contains every write acknowledged before the call.
* A full disk or lost connection is `Unavailable`, with the reason; the database goes on when the cause is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError
from paddleflow.store.statements import Statement

Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = dict[str, Any]  #: column → value; only the package that wrote the statement reads it

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class Tx(Protocol):
    """One transaction. All calls block; statements come from ``.sql`` files (see `statements`)."""

    def all(self, statement: Statement, /, **params: Value) -> list[Row]: ...

    def rows(self, record: Callable[..., T], statement: Statement, /, **params: Value) -> list[T]:
        """All rows as records, whose fields have the names of the columns; the others have a default."""
        ...

    def one(self, statement: Statement, /, **params: Value) -> Row | None:
        """The first row, or None."""
        ...

    def value(self, statement: Statement, /, **params: Value) -> Any:
        """The first column of the first row, or None."""
        ...

    def run(self, statement: Statement, /, **params: Value) -> int:
        """Execute; how many rows were touched."""
        ...

    def many(self, statement: Statement, rows: Iterable[Mapping[str, Value]], /) -> int:
        """Execute once per row, in one go; how many rows were touched."""
        ...


@dataclass(frozen=True, slots=True)
class Batched(Generic[A, T]):
    """A function ``fn(tx, item)`` for `Database.write` that does many calls for little more than the price of one.

    Calls of it that follow each other in a commit are handed to `many` in one go.
    """

    #: For each item its value, or why it was refused; of what is refused, nothing is written. What it raises undoes all.
    many: Callable[[Tx, Sequence[A]], Sequence[T | PaddleFlowError]]

    def __call__(self, tx: Tx, item: A) -> T:
        [found] = self.many(tx, [item])
        if isinstance(found, PaddleFlowError):
            raise found
        return found


class Database(Protocol):
    """A store that is open."""

    dialect: str  #: ``sqlite`` or ``postgres``

    async def write(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def write_soon(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, but without waiting for the disk: a killed process does not lose it, a power cut may, until the
        next `write` has returned. For what can be found out again, such as how far the engine has come."""
        ...

    async def read(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def peek(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `read`, for a handful of rows that an index finds. It may run at once on the caller's thread, where
        switching to another would cost more than the query; so never for a list or a scan."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then let go."""
        ...
