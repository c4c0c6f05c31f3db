"""Reasons are told once they have stood for a while, and those that keep changing ever more seldom."""

from __future__ import annotations

import itertools

from paddleflow.podscheduler.pods import Pod, PodReader
from paddleflow.podscheduler.reasons import TELL_AFTER, Reasons

FIRST, LONGEST = TELL_AFTER


def pod(waits: str = "") -> Pod:
    conditions = [{"type": "PodScheduled", "status": "False", "message": waits}] if waits else []
    metadata = {"name": "a", "namespace": "d", "uid": "u"}
    return PodReader().read({"metadata": metadata, "spec": {"containers": []}, "status": {"conditions": conditions}})


def test_the_last_of_several_is_told_when_the_first_has_stood_long_enough() -> None:
    reasons, one = Reasons(), pod()
    reasons.put(one, "1 of 4", 0.0)
    reasons.put(one, "2 of 4", FIRST / 2)
    assert reasons.take(FIRST / 2) is None
    assert reasons.take(FIRST) == (one, "2 of 4")
    assert reasons.take(FIRST * 10) is None


def test_a_pod_that_starts_in_time_is_told_nothing() -> None:
    reasons = Reasons()
    reasons.put(pod(), "busy", 0.0)
    reasons.forget("u")
    assert not reasons
    assert reasons.take(FIRST) is None


def test_one_that_keeps_changing_is_told_ever_more_seldom() -> None:
    reasons, one, told = Reasons(), pod(), list[float]()
    for now in map(float, range(180)):
        reasons.put(one, f"{now} of many", now)
        if reasons.take(now) is not None:
            told.append(now)
    pauses = [after - before for before, after in itertools.pairwise(told)]
    assert told[0] == FIRST
    assert pauses == sorted(pauses)
    assert len(told) < 12
    assert LONGEST <= pauses[-1] <= LONGEST + 1


def test_what_the_pod_says_already_is_not_told_again() -> None:
    reasons = Reasons()
    reasons.put(pod("busy"), "busy", 0.0)
    assert not reasons
    reasons.put(pod("busy"), "full", 0.0)
    reasons.put(pod("busy"), "busy", 0.5)
    assert reasons.take(FIRST) is None
