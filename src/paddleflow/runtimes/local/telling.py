"""What the keeper has to tell its server: ends, beginnings, launches that are given back. Pure; `custody` fills it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Event = list[Any]  #: a word, the attempt, and the fields of that observation in their order


class Telling:
    """Events since the last telling."""

    def __init__(self) -> None:
        self.urgent = False  #: somebody waits for what the server says next
        self._events: list[Event] = []
        self._beginnings: dict[str, list[Event]] = {}  #: of what has begun since, and not ended
        self._unanswered: set[str] = set()  #: ends that were told, and not forgotten yet

    def __len__(self) -> int:
        return len(self._events) + len(self._beginnings)

    @property
    def ends(self) -> int:
        """How many of them are no beginnings."""
        return len(self._events)

    def add(self, *events: Event) -> None:
        """Something that the server must hear of now."""
        self._events += events
        self.urgent = self.urgent or bool(events)

    def add_later(self, *events: Event) -> None:
        """Something that can wait for more of its kind."""
        self._events += events

    def begun(self, name: str, *events: Event) -> None:
        """It runs, or is ready; if it ends before that is told, its end tells that too."""
        self._beginnings.setdefault(name, []).extend(events)

    def ended(self, name: str) -> None:
        self._beginnings.pop(name, None)

    def take(self) -> list[Event]:
        """All of it, once: ends first, for a beginning may be that of somebody's heir."""
        events = self._events + [event for events in self._beginnings.values() for event in events]
        self._unanswered.update(event[1] for event in self._events if event[0] == "ended")
        self.clear()
        return events

    def clear(self) -> None:
        self._events, self._beginnings, self.urgent = [], {}, False

    @property
    def unanswered(self) -> bool:
        """Whether the server was told of ends and has not said yet what follows from them."""
        return bool(self._unanswered)

    def answered(self, names: Iterable[str]) -> None:
        self._unanswered.difference_update(names)

    def new_server(self) -> None:
        self.clear()
        self._unanswered.clear()
