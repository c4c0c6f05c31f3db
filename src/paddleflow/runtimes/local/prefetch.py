"""The keeper's prefetch queue: launches that wait for the slot of another attempt, so that short attempts follow each other
without a message from the server in between. And the reports to the server, whose batching depends on it.

Attempts of one *slot class* are interchangeable. When one of them has ended with code 0, the first waiting launch of its
class whose `after` have all ended becomes its *successor*: it takes the slot at once, one for one, so no more run than the
server gave slots to. After a failure nobody follows: all of the class are returned, and the server decides.

Pure bookkeeping apart from a timer. Called by `supervisor`, and by the keeper's loop when the server has sent something.
A keeper works without any of it: a launch without a slot class has a slot of its own and passes it to nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.timers import Timers

Launch = dict[str, Any]  #: as the server sent it
Event = list[Any]  #: a word, the attempt, and the fields of that observation in their order

HOLD_SLOT = 0.02  #: seconds that a slot stays open for a server that has not answered yet


class Reports:
    """Events since the last report to the server: ends, starts, launches that are returned."""

    def __init__(self) -> None:
        self.urgent = False  #: somebody waits for the server's next message
        self._events: list[Event] = []
        self._starts: dict[str, list[Event]] = {}  #: of what has started since, and not ended
        self._unacknowledged: set[str] = set()  #: ends that were reported, and not forgotten yet

    def __len__(self) -> int:
        return len(self._events) + len(self._starts)

    @property
    def ends(self) -> int:
        """How many of them are not starts."""
        return len(self._events)

    def add(self, *events: Event) -> None:
        """Something that the server must know now."""
        self._events += events
        self.urgent = self.urgent or bool(events)

    def add_deferred(self, *events: Event) -> None:
        """Something that can wait for more of its kind."""
        self._events += events

    def started(self, name: str, *events: Event) -> None:
        """It runs, or is ready; if it ends before that is reported, its end reports that too."""
        self._starts.setdefault(name, []).extend(events)

    def ended(self, name: str) -> None:
        self._starts.pop(name, None)

    def take(self) -> list[Event]:
        """All of it, once: ends first, for a start may be that of a successor."""
        events = self._events + [event for events in self._starts.values() for event in events]
        self._unacknowledged.update(event[1] for event in self._events if event[0] == "ended")
        self.clear()
        return events

    def clear(self) -> None:
        self._events, self._starts, self.urgent = [], {}, False

    @property
    def unacknowledged(self) -> bool:
        """Whether ends were reported and the server has not sent yet what follows from them."""
        return bool(self._unacknowledged)

    def acknowledge(self, names: Iterable[str]) -> None:
        self._unacknowledged.difference_update(names)

    def new_server(self) -> None:
        self.clear()
        self._unacknowledged.clear()


class SlotClasses:
    """The slot classes of one keeper, each as long as an attempt of it holds a slot, and who waits in each."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}  #: class → attempts that hold a slot
        self._queues: dict[str, OrderedDict[str, Launch]] = {}
        self._class_of: dict[str, str] = {}  #: of those that wait

    def __len__(self) -> int:
        """How many wait."""
        return len(self._class_of)

    def __contains__(self, name: str) -> bool:
        return name in self._class_of

    def acquire(self, slot_class: str) -> None:
        """An attempt of this class was given a slot."""
        self._slots[slot_class] = self._slots.get(slot_class, 0) + 1

    def release(self, slot_class: str) -> list[str]:
        """A slot is given up; who waits for one that will never come, if it was the last."""
        self._slots[slot_class] -= 1
        if self._slots[slot_class]:
            return []
        del self._slots[slot_class]
        return self.clear(slot_class)

    def add(self, launch: Launch) -> bool:
        """Let it wait; False when nothing of its class holds a slot that could become free."""
        slot_class, name = launch["slot_class"], launch["attempt"]
        if slot_class not in self._slots:
            return False
        self._queues.setdefault(slot_class, OrderedDict())[name] = launch
        self._class_of[name] = slot_class
        return True

    def take(self, name: str) -> bool:
        """It waits no longer; False when it did not."""
        slot_class = self._class_of.pop(name, None)
        if slot_class is None:
            return False
        queue = self._queues[slot_class]
        del queue[name]
        if not queue:
            del self._queues[slot_class]
        return True

    def withdraw(self, name: str) -> list[str]:
        """It will not start, and so nobody who comes after it can: all of these wait no longer."""
        slot_class = self._class_of.get(name)
        if slot_class is None:
            return []
        gone = [name]
        # In their order: nobody waits before those that it comes after.
        for other, launch in self._queues[slot_class].items():
            if not set(gone).isdisjoint(launch.get("after", ())):
                gone.append(other)
        for other in gone:
            self.take(other)
        return gone

    def next(self, slot_class: str, ended: Callable[[str], bool]) -> Launch | None:
        """The first that waits and for which all that it comes after has ended; it waits no longer."""
        for name, launch in self._queues.get(slot_class, {}).items():
            if all(ended(other) for other in launch.get("after", ())):
                self.take(name)
                return launch
        return None

    def clear(self, slot_class: str) -> list[str]:
        """Nobody waits in it any more; who did."""
        names = list(self._queues.pop(slot_class, ()))
        for name in names:
            del self._class_of[name]
        return names

    def forget(self) -> None:
        """Nobody waits anywhere."""
        self._queues.clear()
        self._class_of.clear()


class PrefetchQueue:
    """Launches that were prefetched, and the slots that pass to them."""

    def __init__(
        self,
        pending: OrderedDict[str, Launch],
        reports: Reports,
        timers: Timers,
        known: Callable[[str], Attempt | None],
    ) -> None:
        self._classes = SlotClasses()
        self._pending = pending  #: launches that have a slot and are about to start
        self._reports = reports
        self._timers = timers
        self._known = known  #: an attempt that has started and is not forgotten, by its name
        self._held: dict[str, Attempt] = {}  #: ended well, and the slot may still be passed on: not reported yet

    def __len__(self) -> int:
        """How many wait."""
        return len(self._classes)

    def add(self, name: str, launch: Launch) -> None:
        """A launch without a slot of its own."""
        if name in self._classes:
            return
        if not all(self._may_succeed(other) for other in launch.get("after", ())) or not self._classes.add(launch):
            self._return([name])
        for attempt in [each for each in self._held.values() if each.slot_class == launch["slot_class"]]:
            self.ended(attempt, hold=True)

    def acquire(self, launch: Launch) -> None:
        """A launch that has a slot; it may have waited for one."""
        self._classes.take(launch["attempt"])
        if slot_class := launch.get("slot_class"):
            self._classes.acquire(slot_class)

    def withdraw(self, names: Iterable[str]) -> None:
        """Return those that still wait, and who comes after them."""
        for name in names:
            self._return(self._classes.withdraw(name))

    def stop(self, name: str) -> bool:
        """Whether it waited. It never starts; who comes after it is returned."""
        gone = self._classes.withdraw(name)
        self._return(gone[1:])
        return bool(gone)

    def _may_succeed(self, name: str) -> bool:
        """Whether it may still end well, or has: not if it was never sent, returned, or ended otherwise."""
        known = self._known(name)
        if known is None:
            return name in self._classes or name in self._pending
        return known.end is None or known.end[1] == 0

    def _has_ended(self, name: str) -> bool:
        """Whether one that somebody waits for has ended; if it is not known any more it was forgotten since, so it had."""
        known = self._known(name)
        return known.finished if known is not None else name not in self._classes and name not in self._pending

    def _return(self, names: Iterable[str]) -> None:
        self._reports.add(*(["returned", name] for name in names))

    def ended(self, attempt: Attempt, *, hold: bool) -> None:
        """An attempt has ended: pass its slot on, and report its end.

        When nobody waits and the slot may be held, it stays open for a moment: the server is about to send more.
        """
        assert attempt.end is not None
        well = attempt.end[1] == 0
        successor = self._classes.next(attempt.slot_class, self._has_ended) if well else None
        if successor is None and well and hold:
            if attempt.name not in self._held:
                self._held[attempt.name] = attempt
                self._timers.after(HOLD_SLOT, partial(self._expire, attempt))
            return
        self._held.pop(attempt.name, None)
        slot_class, attempt.slot_class = attempt.slot_class, ""
        if successor is None:
            self._reports.add(*attempt.events())
            self._return([*([] if well else self._classes.clear(slot_class)), *self._classes.release(slot_class)])
            return
        name: str = successor["attempt"]
        self._pending[name] = successor
        self._pending.move_to_end(name, last=False)
        self._reports.add_deferred(*([*event, name] for event in attempt.events()))

    def _expire(self, attempt: Attempt) -> None:
        if attempt.name in self._held:
            self.ended(attempt, hold=False)

    def release_held(self) -> None:
        """The server has sent all that it had to send: slots that are still open are given up."""
        for attempt in list(self._held.values()):
            self.ended(attempt, hold=False)

    def new_server(self) -> None:
        """It knows nothing of slot classes: nobody follows anybody until it says so."""
        self.release_held()
        self._classes.forget()
        for launch in self._pending.values():
            if slot_class := launch.get("slot_class"):
                self._classes.release(slot_class)
