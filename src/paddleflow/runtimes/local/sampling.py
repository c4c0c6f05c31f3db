"""What running attempts use now: one walk over /proc, in a thread of the server, whatever their number.

A process belongs to an attempt when it is in the attempt's session, or when its parent belongs. Memory is the sum of
resident sets, so pages that processes share count for each. The network is not told: all attempts share the machine's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.local.procfs import pids, read
from paddleflow.runtimes.runtime import Sample

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as one line of /proc tells it; its ended children's times are in its own."""

    pid: int
    parent: int
    session: int
    ticks: int
    pages: int


def parse_process(pid: int, text: bytes) -> Process:
    """From /proc/PID/stat, whose second field may hold anything."""
    fields = text[text.rindex(b")") + 2 :].split(None, 23)
    ticks = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[1]), int(fields[3]), ticks, int(fields[21]))


def members(processes: Mapping[int, Process], leaders: Mapping[int, AttemptId]) -> dict[AttemptId, list[Process]]:
    """Which process belongs to which attempt; `leaders` are the attempts' main processes."""
    owner: dict[int, AttemptId | None] = {}

    def find(pid: int) -> AttemptId | None:
        chain = []
        while pid not in owner and pid in processes and pid not in chain:
            found = leaders.get(processes[pid].session)
            if found is not None:
                owner[pid] = found
                break
            chain.append(pid)
            pid = processes[pid].parent
        result = owner.get(pid)
        owner.update(dict.fromkeys(chain, result))
        return result

    groups: dict[AttemptId, list[Process]] = {}
    for pid, process in processes.items():
        attempt = find(pid)
        if attempt is not None:
            groups.setdefault(attempt, []).append(process)
    return groups


def take(leaders: Mapping[int, AttemptId], now: float) -> dict[AttemptId, Sample]:
    """A sample of each attempt that has processes."""
    processes = {}
    for pid in pids():
        text = read(f"/proc/{pid}/stat")
        if text:
            processes[pid] = parse_process(pid, text)
    return {attempt: _sample(group, now) for attempt, group in members(processes, leaders).items()}


def _sample(group: list[Process], now: float) -> Sample:
    told = [io for process in group if (io := _disk(process.pid)) is not None]
    return Sample(
        at=now,
        cpu_seconds=sum(process.ticks for process in group) / _TICKS,
        memory=sum(process.pages for process in group) * _PAGE,
        disk_read=sum(io[0] for io in told) if told else None,
        disk_write=sum(io[1] for io in told) if told else None,
    )


def _disk(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to disks; None when it is not ours to know."""
    values = dict(row.split(b": ") for row in (read(f"/proc/{pid}/io") or b"").splitlines())
    if b"read_bytes" not in values or b"write_bytes" not in values:
        return None
    return int(values[b"read_bytes"]), int(values[b"write_bytes"])


def grown(before: Sample | None, now: Sample) -> Sample:
    """Counters never fall: a process that nobody waited for takes its share with it."""
    if before is None:
        return now
    return Sample(
        at=now.at,
        cpu_seconds=max(before.cpu_seconds, now.cpu_seconds),
        memory=now.memory,
        disk_read=_most(before.disk_read, now.disk_read),
        disk_write=_most(before.disk_write, now.disk_write),
    )


def _most(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)
