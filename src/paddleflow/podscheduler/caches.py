"""What a scheduler of pods watches, and how the board hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.resources import (
    CLAIMS,
    NAMESPACES,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    STORAGE_CLASSES,
    VOLUMES,
    labels,
)
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.groups import read_group, read_queue
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.podscheduler.volumes import read_claim, read_class, read_volume

#: terminal pods hold nothing; the API server keeps them from us
LIVE = "status.phase!=Succeeded,status.phase!=Failed"
Put = Callable[[str, Any], None]


class Caches:
    """One cache for each kind. `watched` are those without which nothing works: all that the API server serves. Without the right to
    see storage classes, claims that wait for their first consumer wait for somebody else."""

    def __init__(self, client: Client, reader: PodReader) -> None:
        self._client = client
        self.pods = Cache(client, PODS, fields=LIVE, transform=reader.read)
        self.nodes = Cache(client, NODES, transform=read_node)
        self.namespaces = Cache(client, NAMESPACES, transform=lambda obj: dict(labels(obj)))
        self.claims = Cache(client, CLAIMS, transform=read_claim)
        self.volumes = Cache(client, VOLUMES, transform=read_volume)
        self.classes = Cache(client, STORAGE_CLASSES, transform=read_class)
        self.queues = Cache(client, QUEUES, transform=read_queue)
        self.groups = Cache(client, PODGROUPS, transform=read_group)
        self._always: list[Cache[Any]] = [self.pods, self.nodes, self.namespaces, self.claims, self.volumes]
        self.watched = self._always
        self.all = [*self._always, self.classes, self.queues, self.groups]

    async def find_volcano(self) -> bool:
        """Whether the API server knows Queue and PodGroup; they are waited for then. Otherwise their caches fill once it does."""
        found = all(await asyncio.gather(self._client.serves(QUEUES), self._client.serves(PODGROUPS)))
        self.watched = [*self._always, self.queues, self.groups] if found else self._always
        return found

    def has_volcano(self) -> bool:
        return self.groups.synced.is_set() and self.queues.synced.is_set()

    async def synced(self) -> None:
        for cache in self.watched:
            await cache.synced.wait()

    def feeds(self, board: Board) -> list[tuple[Cache[Any], Put]]:
        """Which cache tells the board what; pods last, because they refer to all others."""
        return [
            (self.namespaces, board.put_namespace),
            (self.nodes, board.put_node),
            (self.queues, board.put_queue),
            (self.groups, board.put_group),
            (self.classes, board.put_class),
            (self.volumes, board.put_volume),
            (self.claims, board.put_claim),
            (self.pods, board.put_pod),
        ]

    def fill(self, board: Board) -> list[Put]:
        """Tell a new board everything that is known; how it is to be told of what comes, for each feed."""
        for cache, put in self.feeds(board):
            for key in cache.keys():  # noqa: SIM118  a cache is no dictionary
                put(key, cache.get(key))
        return [put for _, put in self.feeds(board)]

    def subscribe(self, board: Board, forward: Callable[[int, str, Any, Any], None]) -> None:
        """`forward` hears of each change: number of the feed, key, value before, value now."""
        for at, (cache, _) in enumerate(self.feeds(board)):
            cache.subscribe(_numbered(at, forward))


def _numbered(at: int, forward: Callable[[int, str, Any, Any], None]) -> Callable[[str, Any, Any], None]:
    return lambda key, old, new: forward(at, key, old, new)
