"""The keeper's record of one attempt, and its states as lines of the journal.

Pure: `replay` folds lines into records, `Attempt.lines` gives the fewest lines that fold into the same record again.
The lines, each a JSON array whose first word says what it is:

    ["keeper", version, boot]                           a keeper began on this boot of the machine
    ["try",   attempt, plan]                            it is about to be spawned
    ["run",   attempt, pid, ticks, at]                  it was spawned; ticks: its start time in /proc/PID/stat
    ["ready", attempt, at]                              its port listens; without one it is ready as soon as it runs
    ["stop",  attempt, kill_at, why]                    SIGTERM was sent, SIGKILL follows at kill_at (seconds of this boot)
    ["end",   attempt, at, code, message, started_at, cpu_seconds, peak_memory]
    ["cleared", attempt]                                its container is removed
    ["gone",  attempt]                                  forgotten, or never spawned
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

VERSION = 1


class Attempt:
    """One attempt that the keeper answers for."""

    __slots__ = (
        "boot", "child", "empty", "end", "finished", "interval", "kill_at", "log_size", "name", "pid", "pidfd",
        "plan", "ready_at", "slot_class", "started_at", "ticks", "why",
    )  # fmt: skip

    def __init__(self, name: str, plan: dict[str, Any], boot: str) -> None:
        self.name = name
        #: log, fresh (it had no log before), port, groups (cgroup folders), memory and cpu (limits), word, container; of an
        #: isolated one uid, and marker (made by its process, where it is not fresh)
        self.plan = plan
        self.boot = boot
        self.pid = 0  #: also its session and process group
        self.ticks = 0
        self.started_at: float | None = None
        self.ready_at: float | None = None
        self.kill_at: float | None = None  #: set once it is being stopped; by the clock that nobody can set
        self.why = ""  #: of the stop, for the final message
        self.end: list[Any] | None = None  #: at, code, message, started_at, cpu_seconds, peak_memory
        # Known only while this keeper lives:
        self.finished = False  #: the end may be reported: nothing of its group is left
        self.child = True  #: False: started by an earlier keeper, so not ours to wait for
        self.empty = False  #: its cgroups were empty when last checked
        self.pidfd = -1
        self.slot_class = ""  #: whose next one takes its slot; empty: nobody does
        self.interval = 0.0  #: between two checks of its log
        self.log_size = 0

    def run(self, pid: int, ticks: int, at: float) -> None:
        """It has a process; without a port to wait for, that is all that others need."""
        self.pid, self.ticks, self.started_at = pid, ticks, at
        if "port" not in self.plan:
            self.ready_at = at

    def lines(self) -> list[list[Any]]:
        """What the journal must hold for this attempt, no more."""
        if self.end is not None and not self.has_container:
            return [["end", self.name, *self.end]]
        found: list[list[Any]] = [["try", self.name, self.plan]]
        if self.pid:
            found.append(["run", self.name, self.pid, self.ticks, self.started_at])
        if self.ready_at is not None and "port" in self.plan:
            found.append(["ready", self.name, self.ready_at])
        if self.kill_at is not None:
            found.append(["stop", self.name, self.kill_at, self.why])
        if self.end is not None:
            found.append(["end", self.name, *self.end])
        return found

    @property
    def has_container(self) -> bool:
        """It has one that is not known to be removed."""
        return "container" in self.plan

    def events(self) -> list[list[Any]]:
        """What a server must know of it, from the beginning."""
        if self.finished and self.end is not None:
            return [["ended", self.name, *self.end]]
        events: list[list[Any]] = []
        if self.pid:
            events.append(["started", self.name, self.started_at, self.pid])
        if self.ready_at is not None:
            events.append(["ready", self.name, self.ready_at])
        return events


def parse(text: bytes) -> list[list[Any]]:
    """The lines of a journal; one that is not whole (a full disk, a power cut) is passed over."""
    found = []
    for raw in text.split(b"\n"):
        try:
            values = json.loads(raw) if raw else None
        except ValueError:
            continue
        if isinstance(values, list) and len(values) >= 2:
            found.append(values)
    return found


def replay(lines: Iterable[list[Any]]) -> dict[str, Attempt]:
    """The attempts that a journal speaks of and that were not forgotten."""
    attempts: dict[str, Attempt] = {}
    boot = ""
    for word, *rest in lines:
        if word == "keeper":
            boot = rest[1]
            continue
        name = rest[0]
        if word == "gone":
            attempts.pop(name, None)
        elif word == "try":
            attempts[name] = Attempt(name, rest[1], boot)
        elif word == "end":
            attempt = attempts.setdefault(name, Attempt(name, {}, boot))
            attempt.end = rest[1:]
        elif (known := attempts.get(name)) is not None:
            _take(known, word, rest)
    return attempts


def _take(attempt: Attempt, word: str, rest: list[Any]) -> None:
    if word == "run":
        attempt.run(*rest[1:4])
    elif word == "ready" and "port" in attempt.plan:
        attempt.ready_at = rest[1]
    elif word == "stop":
        attempt.kill_at, attempt.why = rest[1:3]
    elif word == "cleared":
        attempt.plan.pop("container", None)
