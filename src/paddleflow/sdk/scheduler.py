"""Looking ahead and back: what a change would do, and whether recorded decisions come out again. For root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paddleflow.sdk.area import Area
from paddleflow.sdk.records import Record, many, record, table, wire


@record
class QueueOutcome(Record):
    """How the jobs of one queue fared; times in seconds."""

    name: str = wire()
    jobs: int = wire(0)
    started: int = wire(0)
    finished: int = wire(0)
    mean_wait: float = wire(0.0)
    p90_wait: float = wire(0.0, key="p90Wait")
    mean_completion: float = wire(0.0)
    use: float = wire(0.0)
    victims: int = wire(0)
    lost_seconds: float = wire(0.0)


@record
class Side(Record):
    """One play: with the change, or without."""

    queues: Sequence[QueueOutcome] = wire((), read=many(QueueOutcome))
    fairness: float = wire(0.0)
    use: float = wire(0.0)
    victims: int = wire(0)
    ends: str = wire()


@record
class WhatIf(Record):
    """A change beside no change."""

    begins: str = wire()
    now: str = wire()
    cycles: int = wire(0)
    reproduced: bool = wire(False)
    first_change: str = wire()
    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)

    @classmethod
    def read(cls, answer: object) -> WhatIf:
        data = table(answer)
        return replace(cls.of(data), before=Side.of(data.get("before")), after=Side.of(data.get("after")))


@record
class Replay(Record):
    """A stretch of the record, executed again; `difference` is None when all of it came out the same."""

    begins: str = wire()
    ends: str = wire()
    snapshots: int = wire(0)
    events: int = wire(0)
    cycles: int = wire(0)
    starts: int = wire(0)
    evictions: int = wire(0)
    resizes: int = wire(0)
    difference: Mapping[str, Any] | None = wire(None, read=lambda value: table(value) or None)


class Scheduler(Area):
    """The scheduler of a server."""

    def what_if(self, document: Mapping[str, object]) -> WhatIf:
        """Tries a change as the REST API has it (``queues``, ``nodesLost``, ``nodesAdded``, ``team``, ``rules``)."""
        return WhatIf.read(self._transport.call("POST", "/queue/whatif", body=document))

    def replay(self, since: str | None = None, until: str | None = None) -> Replay:
        """Executes recorded decisions again; moments are ``YYYY-MM-DD hh:mm:ss`` of the server."""
        query = {key: value for key, value in (("since", since), ("until", until)) if value}
        return Replay.of(self._transport.call("GET", "/scheduler/replay", query=query))
