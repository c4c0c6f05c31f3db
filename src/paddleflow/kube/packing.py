"""Objects in a cache as JSON: a fifth of what they take as dictionaries, and read again in microseconds.

For controllers of many objects that look at few of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import orjson

from paddleflow.kube.resources import Object


def packed(prune: Callable[[Object], Object]) -> Callable[[Object], bytes]:
    """A cache's `prune` that keeps what another one leaves over.

    The copy matters: what the encoder returns lies at the beginning of a large buffer, and thousands of those that were cut
    short leave five times as much memory in pieces as they hold.
    """
    return lambda obj: bytes(memoryview(orjson.dumps(prune(obj))))


def unpacked(kept: bytes) -> Object:
    found: Object = orjson.loads(kept)
    return found


def all_unpacked(kept: Iterable[bytes]) -> list[Object]:
    return [unpacked(each) for each in kept]
