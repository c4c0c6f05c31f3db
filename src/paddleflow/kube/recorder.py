"""Events that people see in `kubectl describe`: what happened to an object.

`record` never waits and never fails: events are for people, and work goes on without them. The same message about the same
object are one event with a count, also after a restart (its name is made of them); each object has a budget that fills
again slowly, so that a loop gone wrong cannot flood the API server. `run` writes them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound, PaddleFlowError, TooMany
from paddleflow.kube import resources
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import EVENTS, Object, View

BURST = 25.0  #: events of one object that may come at once
REFILL = 1 / 300  #: events a second that it gets back
WAITING = 1000  #: events that wait to be written; more are dropped
REMEMBERED = 4096  #: budgets and counts that are kept
LONGEST = 1024  #: characters of a message that the API server takes
_log = Log("kube.recorder")


@dataclass(slots=True)
class _Pending:
    """What is to be written: an event, and how often it happened since the last write."""

    event: Object
    count: int = 1


class Budget:
    """A bucket per object. Pure."""

    def __init__(self, burst: float = BURST, refill: float = REFILL, remembered: int = REMEMBERED) -> None:
        self._burst = burst
        self._refill = refill
        self._remembered = remembered
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, uid: str, now: float) -> bool:
        left, at = self._left.pop(uid, (self._burst, now))
        left = min(left + (now - at) * self._refill, self._burst)
        allowed = left >= 1
        self._left[uid] = (left - 1 if allowed else left, now)
        while len(self._left) > self._remembered:
            self._left.popitem(last=False)
        return allowed


class Recorder:
    """Writes events in the name of one component."""

    def __init__(self, client: Client, component: str, clock: Clock, budget: Budget | None = None) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._budget = budget or Budget()
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._wake = asyncio.Event()
        self.dropped = 0  #: recorded, and never to be written

    def record(self, about: View, reason: str, message: str, *, warning: bool = False) -> None:
        """Notes that something happened to an object; `reason` is one word in CamelCase, `message` a sentence."""
        now = self._clock.now()
        event = self._event(about, reason, message[:LONGEST], "Warning" if warning else "Normal", now)
        key = f"{event['metadata']['namespace']}/{event['metadata']['name']}"
        if not self._budget.take(resources.uid(about), now):
            self.dropped += 1
        elif key in self._pending:
            self._pending[key].count += 1
            self._pending[key].event["lastTimestamp"] = event["lastTimestamp"]
        elif len(self._pending) >= WAITING:
            self.dropped += 1
        else:
            self._pending[key] = _Pending(event)
            self._wake.set()

    async def run(self) -> None:
        """Writes what was recorded, until it is cancelled."""
        while True:
            await self._wake.wait()
            while self._pending:
                _, pending = self._pending.popitem(last=False)
                try:
                    await self._write(pending)
                except TooMany as error:
                    self.dropped += pending.count
                    await asyncio.sleep(error.retry_after)
                except PaddleFlowError as error:
                    self.dropped += pending.count
                    _log.warning("event not written", reason=pending.event["reason"], error=error.message)
            self._wake.clear()

    async def _write(self, pending: _Pending) -> None:
        event = {**pending.event, "count": pending.count}
        try:
            await self._client.create(EVENTS, event)
        except AlreadyExists:
            await self._count_up(event, pending.count)

    async def _count_up(self, event: Object, count: int) -> None:
        own, space = resources.name(event), resources.namespace(event)
        try:
            there = await self._client.get(EVENTS, own, space)
            body = {"count": int(there.get("count") or 1) + count, "lastTimestamp": event["lastTimestamp"]}
            await self._client.patch(EVENTS, own, space, body=body)
        except NotFound:  # events are forgotten after an hour
            await self._client.create(EVENTS, event)

    def _event(self, about: View, reason: str, message: str, kind: str, now: float) -> Object:
        space = resources.namespace(about) or "default"
        identity = "\0".join((resources.uid(about), kind, reason, message, self._component))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        moment = rfc3339(now)[:19] + "Z"
        reference = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": resources.name(about),
            "namespace": space,
            "uid": resources.uid(about),
        }
        return EVENTS.object(
            f"{resources.name(about)[:200]}.{digest}",
            space,
            involvedObject=reference,
            reason=reason,
            message=message,
            type=kind,
            firstTimestamp=moment,
            lastTimestamp=moment,
            source={"component": self._component},
            reportingComponent=self._component,
        )
