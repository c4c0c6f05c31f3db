"""What one worker of a mount leaves to the next."""

from __future__ import annotations

import os

from paddleflow.fs.state import HandleTable


def test_the_number_of_a_closed_file_never_comes_back() -> None:
    """A RELEASE that the kernel repeats to the next worker must not close what that one has opened since."""
    fd = os.memfd_create("handles")
    try:
        table = HandleTable(fd)
        kept, closed = table.new_number(), table.new_number()
        for number in (kept, closed):
            table.put(number, unique=number, node=2, fd=-1, flags=0, backing=0, way=0)
        table.remove(closed)
        table.unmap()

        next_table = HandleTable(fd)
        assert list(next_table.records()) == [kept]
        assert next_table.new_number() not in (kept, closed)
        next_table.unmap()
    finally:
        os.close(fd)
