"""Beginnings wait a moment for company, ends do not, and nothing is lost or turned round."""

from __future__ import annotations

import random

from paddleflow.base.ids import AttemptId
from paddleflow.engine.heard import PATIENCE, Heard
from paddleflow.runtimes.runtime import Ended, Observation, Ready, Started


def attempt(number: int) -> AttemptId:
    return AttemptId(f"job-{number}.worker-0.1")


def test_a_beginning_waits_and_goes_with_its_end() -> None:
    heard = Heard()
    began = Started(attempt(1), 5.0, 7)
    assert heard.add([began], 10.0) == PATIENCE
    assert heard.take(10.0) == []
    ended = Ended(attempt(1), 5.1, 0)
    assert heard.add([ended], 10.001) == 0.0
    assert heard.take(10.001) == [began, ended]
    assert not heard.due(20.0)


def test_a_beginning_alone_is_due_after_a_moment() -> None:
    heard = Heard()
    heard.add([Ready(attempt(1), 5.0)], 10.0)
    assert heard.add([Started(attempt(2), 5.0, 8)], 10.0 + PATIENCE / 2) is None, "the first one's moment counts"
    assert heard.due(10.0 + PATIENCE)
    assert len(heard.take(10.0 + PATIENCE)) == 2


def test_what_is_urgent_does_not_wait() -> None:
    heard = Heard()
    assert heard.add([Started(attempt(1), 5.0, 0)], 10.0, urgent=True) == 0.0
    assert heard.add([], 10.0, urgent=True) is None


def test_everything_comes_out_once_and_in_order() -> None:
    rng = random.Random(3)
    heard, at, told, taken = Heard(), 0.0, list[Observation](), list[Observation]()
    for number in range(500):
        kinds: list[Observation] = [
            Started(attempt(number), at, 1),
            Ready(attempt(number), at),
            Ended(attempt(number), at, 0),
        ]
        kind = rng.choice(kinds)
        told.append(kind)
        heard.add([kind], at)
        at += rng.random() * PATIENCE
        taken += heard.take(at)
    assert taken + heard.take(at + PATIENCE) == told
