"""Entries of a record as JSON values and back. Shortfall keys and shared sizes, because a busy server writes many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    Eviction,
    MemberSet,
    Node,
    Preempt,
    Queue,
    Reason,
    Request,
    Reservation,
    Resize,
    Snapshot,
    Start,
    UserUsage,
)
from paddleflow.scheduling.record import (
    Action,
    Allocated,
    Checkpoint,
    Decided,
    Entry,
    Nodes,
    Queues,
    Released,
    Resized,
    Restarted,
    Submitted,
    Withdrawn,
)
from paddleflow.scheduling.rules import Rules

Json = list[Any]


def encode(entry: Entry) -> Json:
    """A list whose first word says what it is."""
    match entry:
        case Submitted(request):
            return ["submit", _request(request)]
        case Withdrawn(job):
            return ["withdraw", job]
        case Allocated(allocation):
            return ["hold", _allocation(allocation)]
        case Released(job):
            return ["release", job]
        case Resized(job, members):
            return ["left", job, members]
        case Restarted(job, at):
            return ["restart", job, at]
        case Queues(queues):
            return ["queues", [_queue(queue) for queue in queues]]
        case Nodes(nodes):
            return ["nodes", [_node(node) for node in nodes]]
        case Decided(at, limit, actions):
            return ["decide", at, limit, [_action(action) for action in actions]]
        case Checkpoint(snapshot, fresh):
            return ["snapshot", _snapshot(snapshot), fresh]


def decode(data: Json) -> Entry:
    """The reverse; ValueError for what is none."""
    try:
        return _decoded(data)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no entry of a decision log: {str(data)[:80]}") from error


def _decoded(data: Json) -> Entry:
    match data:
        case ["submit", request]:
            return Submitted(_read_request(request))
        case ["withdraw", str(job)]:
            return Withdrawn(job)
        case ["hold", allocation]:
            return Allocated(_read_allocation(allocation))
        case ["release", str(job)]:
            return Released(job)
        case ["left", str(job), members]:
            return Resized(job, tuple((role, index) for role, index in members))
        case ["restart", str(job), at]:
            return Restarted(job, at)
        case ["queues", queues]:
            return Queues(tuple(_read_queue(queue) for queue in queues))
        case ["nodes", nodes]:
            return Nodes(tuple(_read_node(node) for node in nodes))
        case ["decide", at, limit, actions]:
            return Decided(at, limit, tuple(_read_action(action) for action in actions))
        case ["snapshot", snapshot, bool(fresh)]:
            return Checkpoint(_read_snapshot(snapshot), fresh)
    raise ValueError(f"no entry of a decision log: {str(data)[:80]}")


# --- the parts ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _amounts(each: Resources) -> Json:
    return [each.cpu, each.memory, dict(each.scalars)]


def _read_amounts(data: Json) -> Resources:
    cpu, memory, scalars = data
    return Resources.of(cpu, memory, scalars)


@lru_cache(maxsize=4096)
def _needs(member_sets: tuple[MemberSet, ...]) -> Json:
    return [
        [member_set.role, member_set.count, _amounts(member_set.each), member_set.min_count]
        for member_set in member_sets
    ]


def _request(r: Request) -> Json:
    rest = {
        key: value
        for key, value in (
            ("labels", r.node_labels),
            ("tolerates", r.tolerates),
            ("together", r.together),
            ("data", r.data),
            ("expected", r.expected),
            ("restarts", r.restarts),
        )
        if value or (value == 0.0 and key == "expected")
    }
    return [
        r.job,
        r.queue,
        _needs(r.member_sets),
        r.submitted_at,
        r.seq,
        r.priority,
        r.user,
        *([rest] if rest else []),
    ]


def _pairs(rows: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in rows)


def _read_request(data: Json) -> Request:
    job, queue, member_sets, at, order, priority, user, *rest = data
    more: Mapping[str, Any] = rest[0] if rest else {}
    return Request(
        job,
        queue,
        tuple(MemberSet(role, count, _read_amounts(each), least) for role, count, each, least in member_sets),
        at,
        order,
        priority,
        user,
        _pairs(more.get("labels", [])),
        tuple(more.get("tolerates", ())),
        more.get("together", ""),
        tuple(more.get("data", ())),
        more.get("expected"),
        more.get("restarts", False),
    )


def _assignment(a: Assignment) -> Json:
    return [a.role, a.index, a.node, *([a.devices] if a.devices else [])]


def _read_assignment(data: Json) -> Assignment:
    role, index, node, *devices = data
    given = tuple((name, tuple(numbers)) for name, numbers in devices[0]) if devices else ()
    return Assignment(role, index, node, given)


def _allocation(allocation: Allocation) -> Json:
    return [
        _request(allocation.request),
        [_assignment(a) for a in allocation.assignments],
        allocation.since,
        allocation.changed_at,
    ]


def _read_allocation(data: Json) -> Allocation:
    request, assignments, since, changed_at = data
    return Allocation(_read_request(request), tuple(_read_assignment(a) for a in assignments), since, changed_at)


def _action(action: Action) -> Json:
    match action:
        case Start(job, assignments):
            return ["start", job, [_assignment(a) for a in assignments]]
        case Preempt(job, by, reason):
            return ["end", job, by, reason.code, reason.text]
        case Resize(job, added, removed, by):
            return ["resize", job, [_assignment(a) for a in added], [_assignment(a) for a in removed], by]


def _read_action(data: Json) -> Action:
    match data:
        case ["start", job, assignments]:
            return Start(job, tuple(_read_assignment(a) for a in assignments))
        case ["end", job, by, code, text]:
            return Preempt(job, by, Reason(code, text))
        case ["resize", job, added, removed, by]:
            more, less = (tuple(_read_assignment(a) for a in part) for part in (added, removed))
            return Resize(job, more, less, by)
    raise ValueError(f"no decision: {str(data)[:80]}")


def _queue(queue: Queue) -> Mapping[str, Any]:
    ceiling = None if queue.ceiling is None else _amounts(queue.ceiling)
    kept = {name: getattr(queue, name) for name in ("open", "node_labels", "parent", "weight", "placement", "order")}
    return {"name": queue.name, "ceiling": ceiling, "guarantee": _amounts(queue.guarantee), **kept}


def _read_queue(data: Mapping[str, Any]) -> Queue:
    ceiling = None if data["ceiling"] is None else _read_amounts(data["ceiling"])
    guarantee = _read_amounts(data["guarantee"])
    changed = {"ceiling": ceiling, "guarantee": guarantee, "node_labels": _pairs(data["node_labels"])}
    return Queue(**{**data, **changed})


def _node(node: Node) -> Mapping[str, Any]:
    amounts = {"capacity": _amounts(node.capacity), "reserved": _amounts(node.reserved)}
    rest = {"labels": dict(node.labels), "schedulable": node.schedulable, "taints": node.taints}
    return {"name": node.name, **amounts, **rest}


def _read_node(data: Mapping[str, Any]) -> Node:
    amounts = {key: _read_amounts(data[key]) for key in ("capacity", "reserved")}
    return Node(**{**data, **amounts, "taints": tuple(data["taints"])})


def _snapshot(s: Snapshot) -> Mapping[str, Any]:
    return {
        "now": None if s.now == float("-inf") else s.now,
        "rules": asdict(s.rules),
        "nodes": [_node(node) for node in s.nodes],
        "queues": [_queue(queue) for queue in s.queues],
        "pending": [_request(request) for request in s.pending],
        "held": [_allocation(allocation) for allocation in s.allocations],
        "reservations": [[r.job, r.rows] for r in s.reservations],
        "past": [[p.queue, p.user, p.value, p.at, p.rate] for p in s.past],
        "evictions": [_eviction(eviction) for eviction in s.evictions],
        "shrinks": [_eviction(eviction) for eviction in s.shrinks],
    }


def _eviction(e: Eviction) -> Json:
    return [e.job, e.by, e.at, e.members, e.gone]


def _read_eviction(data: Json) -> Eviction:
    job, by, at, members, gone = data
    return Eviction(job, by, at, tuple((role, index) for role, index in members), gone)


def _read_snapshot(data: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        float("-inf") if data["now"] is None else data["now"],
        tuple(_read_node(node) for node in data["nodes"]),
        tuple(_read_queue(queue) for queue in data["queues"]),
        tuple(_read_request(request) for request in data["pending"]),
        tuple(_read_allocation(allocation) for allocation in data["held"]),
        tuple(Reservation(job, tuple((node, at, n) for node, at, n in rows)) for job, rows in data["reservations"]),
        tuple(UserUsage(*row) for row in data["past"]),
        tuple(_read_eviction(row) for row in data["evictions"]),
        tuple(_read_eviction(row) for row in data["shrinks"]),
        Rules(**data["rules"]),
    )
