"""The status of Queues and PodGroups as it should be. Pure; `writer` writes what differs.

What changed is looked at, and everything now and then (`EVERYTHING`): a status that somebody else has changed, and the reasons of groups
that wait, are made true by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from paddleflow.base.quantity import Resources, format_bytes, format_milli
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.groups import PodGroup

PENDING, INQUEUE, RUNNING = "Pending", "Inqueue", "Running"
EVERYTHING = 30.0  #: seconds between two looks at all groups, changed or not
_LONGEST = 1024  #: characters of a message


def amounts(total: Resources) -> dict[str, str]:
    """An amount as a resource list."""
    found = {"cpu": format_milli(total.cpu), "memory": format_bytes(total.memory)}
    return found | {name: format_milli(amount) for name, amount in total.scalars}


def group_phase(board: Board, group: PodGroup) -> str:
    """Running once it has its pods, and for as long as none of them is there or waits; Pending while its queue takes none."""
    placed, waiting = board.placed_members(group.key), board.waiting_of(group.key)
    if placed >= group.min_member or (group.phase == RUNNING and (placed or not waiting)):
        return RUNNING
    queue = board.queues.get(group.queue)
    open_queue = queue.open if queue else group.queue == "default"
    return INQUEUE if open_queue else PENDING


def group_status(board: Board, group: PodGroup, now: str) -> dict[str, Any] | None:
    """The parts of its status that are not as they should be; None when all are."""
    phase, placed = group_phase(board, group), board.placed_members(group.key)
    why = "" if phase == RUNNING else board.why(group.key)[:_LONGEST]
    wanted: dict[str, Any] = {}
    if group.phase != phase:
        wanted["phase"] = phase
    if (group.status.get("running") or 0) != placed:
        wanted["running"] = placed
    kind = "Scheduled" if phase == RUNNING else "Unschedulable"
    known = list(group.status.get("conditions") or ())
    last = known[-1] if known else {}
    if (why or phase == RUNNING) and (last.get("type"), last.get("message") or "") != (kind, why):
        wanted["conditions"] = [
            {
                "type": kind,
                "status": "True",
                "reason": "tasks in gang are ready to be scheduled" if phase == RUNNING else "NotEnoughResources",
                "message": why,
                "lastTransitionTime": now,
                "transitionID": group.uid,
            }
        ]
    return wanted or None


class Statuses:
    """Of one board, from one look to the next."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._phases: dict[str, tuple[str, str]] = {}  # queue and phase of each group
        self._everything_at = float("-inf")

    def wrong_groups(self, at: float, now: str) -> list[tuple[str, dict[str, Any]]]:
        """For each PodGroup whose status is not true, what it should say; `at` is a moment of a monotonic clock."""
        board = self._board
        stale, board.stale = board.stale, set()
        if at - self._everything_at >= EVERYTHING:
            self._everything_at = at
            stale = {*board.groups, *self._phases}
        wrong = []
        for key in sorted(stale):
            group = board.groups.get(key)
            if group is None:
                self._phases.pop(key, None)
                continue
            self._phases[key] = (group.queue, group_phase(board, group))
            status = group_status(board, group, now)
            if status is not None:
                wrong.append((key, status))
        return wrong

    def wrong_queues(self) -> dict[str, dict[str, Any]]:
        """The same for each Queue, by the phases that the groups had at the last look."""
        found = Counter(self._phases.values())
        wrong = {}
        for name, queue in self._board.queues.items():
            wanted: dict[str, Any] = {
                "state": queue.status.get("state") or "Open",
                "pending": found[name, PENDING],
                "inqueue": found[name, INQUEUE],
                "running": found[name, RUNNING],
                "allocated": amounts(self._board.core.usage(name)),
            }
            if differs(wanted, queue.status):
                gone = {key: None for key in queue.status.get("allocated") or () if key not in wanted["allocated"]}
                wrong[name] = wanted | {"allocated": gone | wanted["allocated"]}
        return wrong


def differs(wanted: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    return any((status.get(key) or _EMPTY.get(key, 0)) != value for key, value in wanted.items())


_EMPTY: Mapping[str, object] = {"allocated": {}, "state": ""}
