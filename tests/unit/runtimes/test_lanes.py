"""Lanes of the keeper: who takes whose place. No processes; `tests/contract/test_runtime.py` has those."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runtimes.local.lanes import Lanes


def launch(name: str, lane: str = "a", after: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"attempt": name, "lane": lane, "after": list(after)}


def never(name: str) -> bool:
    return False


def test_nobody_waits_in_a_lane_in_which_nothing_holds_a_place() -> None:
    lanes = Lanes()
    assert not lanes.add(launch("one"))
    lanes.enter("a")
    assert lanes.add(launch("one"))
    assert not lanes.add(launch("two", "b"))
    assert "one" in lanes
    assert len(lanes) == 1


def test_the_first_that_may_begin_follows() -> None:
    lanes = Lanes()
    lanes.enter("a")
    lanes.add(launch("late", after=("other",)))
    lanes.add(launch("next"))
    found = lanes.following("a", never)
    assert found is not None
    assert found["attempt"] == "next"
    assert lanes.following("a", never) is None
    assert lanes.following("a", lambda name: name == "other") == launch("late", after=("other",))


def test_who_waits_is_given_back_with_the_last_place() -> None:
    lanes = Lanes()
    lanes.enter("a")
    lanes.enter("a")
    lanes.add(launch("one"))
    assert lanes.leave("a") == []
    assert lanes.leave("a") == ["one"]
    assert len(lanes) == 0
    assert not lanes.add(launch("two"))


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["enter", "leave", "add", "take", "follow", "clear"])))
)
def test_whatever_happens_nobody_waits_twice_or_without_a_place(moves: list[tuple[str, str]]) -> None:
    lanes, places, waiting = Lanes(), {"a": 0, "b": 0}, dict[str, str]()
    for number, (lane, move) in enumerate(moves):
        mine = [name for name, where in waiting.items() if where == lane]
        gone: list[str] = []
        if move == "enter":
            lanes.enter(lane)
            places[lane] += 1
        elif move == "leave" and places[lane]:
            gone = lanes.leave(lane)
            places[lane] -= 1
            assert gone == ([] if places[lane] else mine)
        elif move == "add":
            assert lanes.add(launch(f"n{number}", lane)) == bool(places[lane])
            if places[lane]:
                waiting[f"n{number}"] = lane
        elif move == "take" and mine:
            assert lanes.take(mine[-1])
            gone = [mine[-1]]
        elif move == "follow":
            found = lanes.following(lane, never)
            gone = [] if found is None else [found["attempt"]]
            assert gone == mine[:1]
        elif move == "clear":
            gone = lanes.clear(lane)
            assert gone == mine
        for name in gone:
            del waiting[name]
            assert not lanes.take(name)
        assert len(lanes) == len(waiting)
        assert all(name in lanes for name in waiting)
