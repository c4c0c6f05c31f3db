"""The keeper's prefetch queue: who takes whose slot. No processes; `tests/contract/test_runtime_prefetch.py` has those."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runtimes.local.prefetch import SlotClasses


def launch(name: str, slot_class: str = "a", after: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"attempt": name, "slot_class": slot_class, "after": list(after)}


def never(name: str) -> bool:
    return False


def test_nobody_waits_in_a_class_in_which_nothing_holds_a_slot() -> None:
    classes = SlotClasses()
    assert not classes.add(launch("one"))
    classes.acquire("a")
    assert classes.add(launch("one"))
    assert not classes.add(launch("two", "b"))
    assert "one" in classes
    assert len(classes) == 1


def test_the_first_that_may_begin_follows() -> None:
    classes = SlotClasses()
    classes.acquire("a")
    classes.add(launch("late", after=("other",)))
    classes.add(launch("next"))
    found = classes.next("a", never)
    assert found is not None
    assert found["attempt"] == "next"
    assert classes.next("a", never) is None
    assert classes.next("a", lambda name: name == "other") == launch("late", after=("other",))


def test_who_waits_is_returned_with_the_last_slot() -> None:
    classes = SlotClasses()
    classes.acquire("a")
    classes.acquire("a")
    classes.add(launch("one"))
    assert classes.release("a") == []
    assert classes.release("a") == ["one"]
    assert len(classes) == 0
    assert not classes.add(launch("two"))


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["acquire", "release", "add", "take", "follow", "clear"]))
    )
)
def test_whatever_happens_nobody_waits_twice_or_without_a_slot(moves: list[tuple[str, str]]) -> None:
    classes, slots, waiting = SlotClasses(), {"a": 0, "b": 0}, dict[str, str]()
    for number, (slot_class, move) in enumerate(moves):
        mine = [name for name, where in waiting.items() if where == slot_class]
        gone: list[str] = []
        if move == "acquire":
            classes.acquire(slot_class)
            slots[slot_class] += 1
        elif move == "release" and slots[slot_class]:
            gone = classes.release(slot_class)
            slots[slot_class] -= 1
            assert gone == ([] if slots[slot_class] else mine)
        elif move == "add":
            assert classes.add(launch(f"n{number}", slot_class)) == bool(slots[slot_class])
            if slots[slot_class]:
                waiting[f"n{number}"] = slot_class
        elif move == "take" and mine:
            assert classes.take(mine[-1])
            gone = [mine[-1]]
        elif move == "follow":
            found = classes.next(slot_class, never)
            gone = [] if found is None else [found["attempt"]]
            assert gone == mine[:1]
        elif move == "clear":
            gone = classes.clear(slot_class)
            assert gone == mine
        for name in gone:
            del waiting[name]
            assert not classes.take(name)
        assert len(classes) == len(waiting)
        assert all(name in classes for name in waiting)
