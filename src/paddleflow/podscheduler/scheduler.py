"""The loop of a scheduler that runs alone: caches tell the board what happens, the board decides, the writer carries it out.

One decision takes at most `BATCH` jobs, and the next comes when the line of bindings is short, so that a backlog of
thousands never holds the event loop for long. The board is made anew whenever this process becomes the leader: nothing is
believed but what the API server says.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from paddleflow.base.clock import Clock
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.caches import Caches, Put
from paddleflow.podscheduler.metrics import Metrics
from paddleflow.podscheduler.pods import Pod, PodReader
from paddleflow.podscheduler.writer import TIMING, Feedback, PodWriter, WriterTiming
from paddleflow.scheduling.rules import Rules

BATCH = 128  #: jobs that one decision starts at most


class PodScheduler:
    """One scheduler of one cluster."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        rules: Rules,
        placement: str,
        scheduler: str,
        timing: WriterTiming = TIMING,
    ) -> None:
        self.caches = Caches(client, PodReader(scheduler))
        self.board = Board(rules, placement)
        self.metrics: Metrics | None = None
        self._client, self._recorder, self._clock = client, recorder, clock
        self._rules, self._placement, self._timing = rules, placement, timing
        self._writer: PodWriter | None = None  # while it leads
        self._wake = asyncio.Event()
        self._puts: list[Put] = []
        self.caches.subscribe(self.board, self._forward)

    def _forward(self, at: int, key: str, old: Any, new: Any) -> None:
        if self._writer is None:
            return
        if isinstance(new, Pod) and old is None and new.ours and not new.node:
            self._writer.seen[new.uid] = time.monotonic()
        elif isinstance(old, Pod) and new is None:
            self._writer.forget(old.uid)
        self._puts[at](key, new)
        self._wake.set()

    async def run(self) -> None:
        """Work as the leader until cancelled."""
        await self.caches.synced()
        board = self.board = Board(self._rules, self._placement)
        writer = self._writer = PodWriter(
            self._client,
            self._recorder,
            self._clock,
            board,
            Feedback(self._failed, self._retry),
            volcano=self.caches.has_volcano,
            claim=self.caches.claims.get,
            metrics=self.metrics,
            timing=self._timing,
        )
        self._puts = self.caches.fill(board)
        self._wake.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(writer.run())
                await asyncio.sleep(0)  # the writer is there before the first turn
                await self._decide_forever(writer)
        finally:
            self._writer = None

    async def _decide_forever(self, writer: PodWriter) -> None:
        while True:
            pause = max(0.0, min(self.board.quiet_until - self._clock.now(), 3600.0))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            await writer.short_line()  # a decision that could not be carried out yet is better made later
            self._wake.clear()
            began = time.perf_counter()
            changes = self.board.decide(self._clock.now(), BATCH)
            if self.metrics:
                self.metrics.decisions.observe(time.perf_counter() - began)
            writer.carry_out(changes)
            await asyncio.sleep(0)

    def _failed(self, pod: Pod) -> None:
        self.board.failed(pod)
        self._wake.set()

    def _retry(self, pod: Pod) -> None:
        self.board.retry(pod)
        self._wake.set()
