"""How many bytes the unfinished uploads of an owner have on the server's disk, and the limit of them.

Parts are counted as they come. What was finished, given up or replaced is found by measuring again, which is done when the limit seems to
be reached, and once after a start. Each server counts what came through it. Called by `api.storage_files` before a part is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paddleflow.base.quantity import format_bytes
from paddleflow.errors import TooLarge
from paddleflow.objects.store import ObjectStore
from paddleflow.storage.file_pool import SlicedWork
from paddleflow.storage.files import UPLOADS


class UnfinishedUploads:
    """Of all owners, as one server knows them."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    async def count(self, owner: str, size: int, limit: int, measure: Callable[[], Awaitable[int]]) -> None:
        """A part of this size is about to be written; `TooLarge` when that is more than the owner may have."""
        if owner not in self._used or self._used[owner] + size > limit:
            self._used[owner] = await measure()
        used = self._used[owner]
        if used + size > limit:
            raise TooLarge(
                f"unfinished uploads of user[{owner}] have {format_bytes(used)}, {format_bytes(size)} more are over the limit of "
                f"{format_bytes(limit)}",
                code="UploadsOverQuota",
                hint="finish them or abort them (DELETE); the setting server.max_unfinished_uploads is the limit",
            )
        self._used[owner] = used + size


def measure(store: ObjectStore) -> SlicedWork[int]:
    """The bytes of the unfinished uploads of a storage."""
    total = 0
    for number, entry in enumerate(store.list_entries(UPLOADS, recursive=True)):
        total += entry.size
        if number % 100 == 0:
            yield total
    return total
