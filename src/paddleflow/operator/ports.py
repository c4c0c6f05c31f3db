"""Ranges of host ports, so that jobs on the nodes' network seldom want the same ones.

A job keeps its first port in its status. Two jobs that share ports are still right: every port is declared in the pod, and the
scheduler keeps such pods on different nodes. So a full range is no error, and nothing has to be given back.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from paddleflow.operator.paddlejob.contract import PORTS


def choose(uid: str, members: int, low: int, high: int, taken: Iterable[tuple[int, int]]) -> int:
    """First port of a range for so many members that touches none of `taken` (first port, members), if there is one."""
    blocks = max(1, (high - low) // PORTS)
    used = bytearray(blocks)
    for first, count in taken:
        for block in range((first - low) // PORTS, (first - low) // PORTS + count):
            used[block % blocks] = 1
    begin = zlib.crc32(uid.encode()) % blocks
    for step in range(blocks):
        block = (begin + step) % blocks
        if not any(used[(block + offset) % blocks] for offset in range(min(members, blocks))):
            return low + block * PORTS
    return low + begin * PORTS
