"""What a job and a run at hand have in common: they go on until they end, and can be looked at, followed and waited for."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from paddleflow.sdk import follow as following
from paddleflow.sdk.follow import Event
from paddleflow.sdk.transport import Transport, segment


class Followable(Protocol):
    """A record of something that goes on until it ends."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...


R = TypeVar("R", bound=Followable)


class Handle(ABC, Generic[R]):
    """What it says is as of the last `refresh`; the first question asks the server."""

    kind: ClassVar[str]  #: as routes and messages call it
    final: ClassVar[frozenset[str]]  #: the states in which it is over

    def __init__(self, transport: Transport, id: str, record: R | None = None) -> None:
        self.id = id
        self._transport = transport
        self._record = record

    @classmethod
    def of(cls, transport: Transport, row: object) -> Self:
        """The handle of a row of a list."""
        record = cls._read(row)
        return cls(transport, record.id, record)

    @staticmethod
    @abstractmethod
    def _read(answer: object) -> R:
        """The record in an answer."""

    def __repr__(self) -> str:
        known = f", status={self._record.status!r}" if self._record else ""
        return f"{type(self).__name__}({self.id!r}{known})"

    @property
    def record(self) -> R:
        if self._record is None:
            self.refresh()
        assert self._record is not None
        return self._record

    @property
    def status(self) -> str:
        return self.record.status

    @property
    def finished(self) -> bool:
        return self.status in self.final

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    def another(self) -> Self:
        """A handle of its own, for another thread."""
        return type(self)(self._transport, self.id)

    def refresh(self) -> Self:
        self._record = self._read(self._transport.call("GET", self._path))
        return self

    def wait(self, timeout: float | None = None, on_event: Callable[[Event], None] | None = None) -> Self:
        """Waits until it is over, whatever its result. TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for event in self._events(0, follow=True, deadline=deadline):
            if on_event is not None:
                on_event(event)
        if not self.refresh().finished:
            raise TimeoutError(f"{self.kind}[{self.id}] is still {self.status} after {timeout:g} s")
        return self

    def events(self, after: int = 0, *, follow: bool = True) -> Iterator[Event]:
        """What happened to it and its parts, from the beginning or behind an event's `seq`; with `follow` to its end."""
        return self._events(after, follow=follow, deadline=None)

    @property
    def _path(self) -> str:
        return f"/{self.kind}/{segment(self.id)}"

    def _events(self, after: int, *, follow: bool, deadline: float | None) -> Iterator[Event]:
        return following.events(
            self._transport,
            f"{self._path}/events",
            after=after,
            follow=follow,
            ended=lambda: self.refresh().finished,
            final=lambda event: follow and event.type == "status" and event.status in self.final,
            deadline=deadline,
        )
