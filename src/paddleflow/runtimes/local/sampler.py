"""What running attempts use now: one walk over /proc, in a thread of the server, whatever their number.

A process belongs to an attempt when it is in the attempt's session, or when its parent belongs. Memory is the sum of
resident sets, so pages that processes share count for each. The network is what went over TCP connections that were open
when a sample was taken, on the loopback too: one that opens and closes between two samples is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from paddleflow.base.ids import AttemptId
from paddleflow.base.values import dataclass
from paddleflow.runtimes.local import sockets
from paddleflow.runtimes.local.procfs import pids, read
from paddleflow.runtimes.local.sockets import Traffic
from paddleflow.runtimes.log_store import Sample

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


@dataclass(frozen=True, slots=True)
class Seen:
    """A sample, and the connections that its network counters come from; None where the kernel does not tell."""

    sample: Sample
    connections: Mapping[int, Traffic] | None


def take(leaders: Mapping[int, AttemptId], now: float) -> dict[AttemptId, Seen]:
    """What each attempt that has processes uses."""
    processes = {}
    for pid in pids():
        text = read(f"/proc/{pid}/stat")
        if text:
            processes[pid] = parse_process(pid, text)
    groups = members(processes, leaders)
    traffic = sockets.traffic() if groups else None
    return {attempt: _seen(group, traffic, now) for attempt, group in groups.items()}


def _seen(group: list[Process], traffic: Mapping[int, Traffic] | None, now: float) -> Seen:
    known = [io for process in group if (io := _disk(process.pid)) is not None]
    sample = Sample(
        at=now,
        cpu_seconds=sum(process.ticks for process in group) / _TICKS,
        memory=sum(process.pages for process in group) * _PAGE,
        disk_read=sum(io[0] for io in known) if known else None,
        disk_write=sum(io[1] for io in known) if known else None,
    )
    if not traffic:
        return Seen(sample, traffic)
    inodes = set[int]().union(*(sockets.held(process.pid) for process in group))
    return Seen(sample, {inode: traffic[inode] for inode in inodes if inode in traffic})


def _disk(pid: int) -> tuple[int, int] | None:
    """Bytes read from and written to disks; None when it is not ours to know."""
    values = dict(row.split(b": ") for row in (read(f"/proc/{pid}/io") or b"").splitlines())
    if b"read_bytes" not in values or b"write_bytes" not in values:
        return None
    return int(values[b"read_bytes"]), int(values[b"write_bytes"])


def grown(before: Seen | None, now: Seen) -> Seen:
    """Counters never fall: a process that nobody waited for, or a connection that closed, takes its share with it."""
    earlier = before.sample if before else now.sample
    received, sent = _carried(before, now.connections)
    counted = replace(
        now.sample,
        cpu_seconds=max(earlier.cpu_seconds, now.sample.cpu_seconds),
        disk_read=_most(earlier.disk_read, now.sample.disk_read),
        disk_write=_most(earlier.disk_write, now.sample.disk_write),
        net_received=received,
        net_sent=sent,
    )
    return Seen(counted, now.connections)


def _carried(before: Seen | None, now: Mapping[int, Traffic] | None) -> tuple[int | None, int | None]:
    """Bytes received and sent since the attempt's start: those known before, and what each connection has added."""
    earlier = before.sample if before else None
    received, sent = (earlier.net_received, earlier.net_sent) if earlier else (None, None)
    if now is None:
        return received, sent
    known = before.connections if before and before.connections else {}
    added = [_added(known.get(inode, (0, 0)), counted) for inode, counted in now.items()]
    return (received or 0) + sum(each[0] for each in added), (sent or 0) + sum(each[1] for each in added)


def _added(known: Traffic, counted: Traffic) -> Traffic:
    """What a connection added; one that counts less than before is another one with the same number."""
    if counted[0] < known[0] or counted[1] < known[1]:
        return counted
    return counted[0] - known[0], counted[1] - known[1]


def _most(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)
