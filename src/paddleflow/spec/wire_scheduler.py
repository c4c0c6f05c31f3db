"""Forecasts, what-ifs and replays on the wire (see `wire`)."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict


class ElsewhereEta(TypedDict):
    """When a waiting job would start on another cluster of its queue."""

    cluster: str
    text: Annotated[str, "for people"]


class JobEta(TypedDict):
    """When a waiting job will probably start."""

    id: str
    status: str
    queue: str
    text: Annotated[str, "for people"]
    seconds: NotRequired[Annotated[float, "from now to the middle of the possible starts; left out: not known"]]
    early: NotRequired[Annotated[float, "four of five starts lie between early and late"]]
    late: NotRequired[float]
    expectedStart: NotRequired[str]
    earliestStart: NotRequired[str]
    latestStart: NotRequired[str]
    learntFrom: Annotated[int, "ended jobs whose durations it rests on"]
    otherClusters: NotRequired[Annotated[list[ElsewhereEta], "the other clusters of its queue"]]


class QueueOutcome(TypedDict):
    """How the jobs of one queue fared."""

    name: str
    jobs: int
    started: int
    finished: int
    meanWait: Annotated[float, "seconds from submission to the first start; of those that did not start, so far"]
    p90Wait: float
    meanCompletion: Annotated[float, "seconds from submission to the end, of those that ended"]
    use: Annotated[float, "average part of the cluster that it held, in the resource that it used most of"]
    victims: Annotated[int, "times that its jobs made way for others"]
    lostSeconds: Annotated[float, "of running, by that"]


class Side(TypedDict):
    queues: list[QueueOutcome]
    fairness: Annotated[float, "Jain index of the queues' use divided by their weight: 1 when all are equal"]
    use: float
    victims: int
    ends: Annotated[str, "when the play came to its end"]


class WhatIfAnswer(TypedDict):
    """A change beside no change."""

    begins: str
    now: str
    cycles: Annotated[int, "decisions of the past that were taken again"]
    reproduced: Annotated[bool, "always true: a past that cannot be reproduced is refused with NotReproducible"]
    firstChange: Annotated[str, "when the change first made a difference in the past; empty: it made none"]
    before: Side
    after: Side


class Difference(TypedDict):
    at: str
    cycle: int
    decision: Annotated[int, "number within the cycle"]
    then: str
    now: str


class Replay(TypedDict):
    """A stretch of the record, executed again."""

    begins: str
    ends: str
    snapshots: int
    events: int
    cycles: int
    starts: int
    evictions: int
    resizes: int
    difference: Annotated[Difference | None, "the first; null: all came out the same"]
