"""`dataclass` as this code uses it: mypy is the guard of frozen ones, before the program runs.

The standard library guards a frozen dataclass while the program runs: making the class takes twice as long (the classes of a server were
nearly half of its imports), and filling an object two to three times as long. Here `frozen=True` keeps equality and hash, and mypy
refuses assignments as ever (docs/decisions/0151-frozen-for-mypy.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        def make(cls):
            hashed = frozen and eq and vars(cls).get("__hash__") is None
            return dataclasses.dataclass(eq=eq, unsafe_hash=hashed, **options)(cls)

        return make if cls is None else make(cls)
