"""The conditions of a list with optional filters, put together from fixed fragments, so that each combination gets a plan
of its own. Values travel as parameters; only column names and fragments of ours become SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.store.database import Value
from paddleflow.store.statements import Statement, compose


class Conditions:
    """Everything that is added must hold."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self.params: dict[str, Value] = {}

    def add(self, condition: str, **params: Value) -> None:
        """A fragment and its parameters."""
        self._conditions.append(condition)
        self.params.update(params)

    def one_of(self, column: str, words: Sequence[Value]) -> None:
        """The column holds one of these; no words: no condition."""
        if not words:
            return
        distinct = list(dict.fromkeys(words))  # a word that is repeated a thousand times needs one parameter
        names = [f"{column.replace('.', '_')}_{n}" for n in range(len(distinct))]
        self.add(f"{column} in ({', '.join(':' + name for name in names)})", **dict(zip(names, distinct, strict=True)))

    @property
    def text(self) -> str:
        """All of them so far, as one condition."""
        return " and ".join(self._conditions) or "1 = 1"

    def statement(self, before: str, behind: str) -> Statement:
        """The whole statement: what stands before ``where``, the conditions, what stands behind them."""
        where = f" where {' and '.join(self._conditions)}" if self._conditions else ""
        return compose(f"{before}{where} {behind}")
