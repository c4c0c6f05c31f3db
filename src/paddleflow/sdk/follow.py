"""Following what grows: events of a job or run, and a job's log, across broken connections and restarts of the server.

Both are read from a position, so a lost connection costs nothing: events go on behind the last number seen, the log of
one task behind the last whole line's offset. The joined log of several tasks has no offset; there the lines already
given are counted per task and skipped when it is read again.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from paddleflow.base.values import dataclass
from paddleflow.errors import Internal, Unavailable
from paddleflow.sdk.records import Record, record, table, wire
from paddleflow.sdk.transport import Transport, segment

_LONGEST_PAUSE = 5.0
_PREFIX = re.compile(rb"\[([A-Za-z0-9_.-]+)\] ")


def _moment(value: object) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


@record
class Event(Record):
    """Something that happened to a job or run. `seq` grows; `type` is ``status``, ``task``, ``step``, …; `raw` is all."""

    seq: int = 0
    type: str = "status"
    at: float | None = wire(None, read=_moment)  #: seconds of the epoch
    status: str = wire()
    message: str = wire()
    task: str = wire()
    step: str = wire()  #: of a run: the component that it happened to, by its full name


class _Persistence:
    """How long to go on trying. An answer makes it patient again, news make it quick; a deadline ends it for good."""

    def __init__(self, transport: Transport, deadline: float | None) -> None:
        self._sleep = transport.sleep
        self._patience = transport.patience
        self.deadline = deadline
        self._since = time.monotonic()
        self._pause = 0.1

    def reached(self) -> None:
        self._since = time.monotonic()

    def news(self) -> None:
        self._since = time.monotonic()
        self._pause = 0.1

    def remaining(self) -> float:
        """Seconds that one may wait for the next byte."""
        silence = self._patience.silence
        return silence if self.deadline is None else min(silence, self.deadline - time.monotonic())

    def over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def pause(self, error: Unavailable | None) -> None:
        """Waits before the next try; raises `error` if there has been no answer for too long."""
        if error is not None and time.monotonic() - self._since > self._patience.unreachable:
            raise error
        self._sleep(min(self._pause, max(self.remaining(), 0.0)))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class _Lines:
    """Chunks cut into whole lines with their ends. `rest` is what came after the last line end."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.rest = b""

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            for line in whole:
                yield line + b"\n"


def parse_events(chunks: Iterator[bytes]) -> Iterator[Event]:
    """The events in a stream of server-sent events. Comments are skipped; an event without data is none."""
    fields: dict[str, str] = {}
    for line in _Lines(chunks):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and "data" in fields else value
            continue
        if "data" in fields:
            yield _event(fields)
        fields = {}


def _event(fields: dict[str, str]) -> Event:
    try:
        data = table(json.loads(fields["data"]))
    except ValueError:
        data = {"message": fields["data"]}
    seq = fields.get("id", "")
    return replace(Event.of(data), seq=int(seq) if seq.isdigit() else 0, type=fields.get("event", "status"))


class _Seen:
    """Which lines of a joined log were given already, told by their number within their task."""

    def __init__(self) -> None:
        self._given: Counter[bytes] = Counter()
        self._last: dict[bytes, bytes] = {}
        self._skip: Counter[bytes] = Counter()

    def start_over(self, *, forget: bool) -> None:
        """The log is read from its beginning again; with `forget` from where it was left."""
        self._skip = Counter() if forget else self._given.copy()

    def is_new(self, line: bytes) -> bool:
        key = found[1] if (found := _PREFIX.match(line)) else b""
        if self._skip[key] > 1:
            self._skip[key] -= 1
            return False
        if self._skip[key] == 1:
            # The last one may have been cut by a server that stopped: then it is given again, whole.
            self._skip[key] = 0
            cut = self._last.get(key) != line
            self._last[key] = line
            return cut
        self._given[key] += 1
        self._last[key] = line
        return True


def events(
    transport: Transport,
    path: str,
    *,
    after: int,
    follow: bool,
    ended: Callable[[], bool],
    final: Callable[[Event], bool],
    deadline: float | None = None,
) -> Iterator[Event]:
    """The events at `path`, of a job or a run, behind number `after`; with `follow` to the last one, or the deadline.

    `ended` asks the server whether it is over: a stream that just ends may have been cut by a restart.
    """
    patience = _Persistence(transport, deadline)
    while not patience.over():
        failure: Unavailable | None = None
        try:
            with transport.stream(path, query={"after": after, "follow": follow}) as stream:
                patience.reached()
                for event in parse_events(stream.chunks(patience.remaining)):
                    patience.news()
                    if event.type == "error":
                        raise Internal(event.message, code=str(event.raw.get("code") or ""))
                    after = max(after, event.seq)
                    yield event
                    if final(event):
                        return
            if not follow or ended():
                return
        except TimeoutError:
            continue
        except Unavailable as error:
            failure = error
        patience.pause(failure)


@dataclass(frozen=True)
class LogPart:
    """Which part of a log: of one try, the last lines, what was written within the last seconds; None or 0: all."""

    attempt: int = 0
    tail: int | None = None
    since: float | None = None


def log_lines(
    transport: Transport,
    job: str,
    *,
    task: str | None,
    offset: int,
    follow: bool,
    ended: Callable[[], bool],
    part: LogPart | None = None,
) -> Iterator[str]:
    """The lines of a log with their ends, of one task from a byte offset or of all tasks, each line with its task."""
    path = f"/job/{segment(job)}/log"
    patience = _Persistence(transport, None)
    seen = _Seen()
    part = part or LogPart()
    begins = ""  #: of a part of a log: where it began when it was first read
    while True:
        failure: Unavailable | None = None
        query: dict[str, str | int | float | None]
        query = {"task": task, "offset": offset if task else None, "follow": follow, "try": part.attempt or None}
        if begins and not offset:
            query["offsets"] = begins
        elif not begins:
            query |= {"tailLines": part.tail, "sinceSeconds": part.since}
        seen.start_over(forget=task is not None)
        try:
            with transport.stream(path, query=query) as stream:
                patience.reached()
                if part != LogPart():
                    begins = begins or stream.header("x-pf-log-offsets")
                begun = stream.header("x-pf-log-offset")
                offset = int(begun) if begun.isdigit() else offset  # a negative one counted from the end
                lines = _Lines(stream.chunks(patience.remaining))
                for line in lines:
                    patience.news()
                    offset += len(line)
                    if seen.is_new(line):
                        yield line.decode("utf-8", "replace")
            if not follow or ended():
                # Only now is it known that the last line has no end; a cut one would be read again whole.
                if lines.rest:
                    yield lines.rest.decode("utf-8", "replace")
                return
        except TimeoutError:
            continue
        except Unavailable as error:
            failure = error
        patience.pause(failure)
