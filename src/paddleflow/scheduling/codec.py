"""Entries of a record as JSON values and back. Short keys and shared sizes, because a busy server writes many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import (
    Assignment,
    Eviction,
    Held,
    Need,
    Node,
    Past,
    Preempt,
    Queue,
    Reason,
    Request,
    Reservation,
    Resize,
    Snapshot,
    Start,
)
from paddleflow.scheduling.policy import Rules
from paddleflow.scheduling.record import (
    Action,
    Begun,
    Decided,
    Entry,
    Holds,
    Left,
    Nodes,
    Queues,
    Released,
    Restarted,
    Submitted,
    Withdrawn,
)

Json = list[Any]


def encode(entry: Entry) -> Json:
    """A list whose first word says what it is."""
    match entry:
        case Submitted(request):
            return ["submit", _request(request)]
        case Withdrawn(job):
            return ["withdraw", job]
        case Holds(held):
            return ["hold", _held(held)]
        case Released(job):
            return ["release", job]
        case Left(job, members):
            return ["left", job, members]
        case Restarted(job, at):
            return ["restart", job, at]
        case Queues(queues):
            return ["queues", [_queue(queue) for queue in queues]]
        case Nodes(nodes):
            return ["nodes", [_node(node) for node in nodes]]
        case Decided(at, limit, actions):
            return ["decide", at, limit, [_action(action) for action in actions]]
        case Begun(snapshot, fresh):
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
        case ["hold", held]:
            return Holds(_read_held(held))
        case ["release", str(job)]:
            return Released(job)
        case ["left", str(job), members]:
            return Left(job, tuple((role, index) for role, index in members))
        case ["restart", str(job), at]:
            return Restarted(job, at)
        case ["queues", queues]:
            return Queues(tuple(_read_queue(queue) for queue in queues))
        case ["nodes", nodes]:
            return Nodes(tuple(_read_node(node) for node in nodes))
        case ["decide", at, limit, actions]:
            return Decided(at, limit, tuple(_read_action(action) for action in actions))
        case ["snapshot", snapshot, bool(fresh)]:
            return Begun(_read_snapshot(snapshot), fresh)
    raise ValueError(f"no entry of a decision log: {str(data)[:80]}")


# --- the parts ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _amounts(each: Resources) -> Json:
    return [each.cpu, each.memory, dict(each.scalars)]


def _read_amounts(data: Json) -> Resources:
    cpu, memory, scalars = data
    return Resources.of(cpu, memory, scalars)


@lru_cache(maxsize=4096)
def _needs(needs: tuple[Need, ...]) -> Json:
    return [[need.role, need.count, _amounts(need.each), need.least] for need in needs]


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
    return [r.job, r.queue, _needs(r.needs), r.submitted_at, r.order, r.priority, r.user, *([rest] if rest else [])]


def _pairs(rows: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in rows)


def _read_request(data: Json) -> Request:
    job, queue, needs, at, order, priority, user, *rest = data
    more: Mapping[str, Any] = rest[0] if rest else {}
    return Request(
        job,
        queue,
        tuple(Need(role, count, _read_amounts(each), least) for role, count, each, least in needs),
        at,
        order,
        priority,
        user,
        _pairs(more.get("labels", [])),
        tuple(more.get("tolerates", ())),
        more.get("together", ""),
        _pairs(more.get("data", [])),
        more.get("expected"),
        more.get("restarts", False),
    )


def _assignment(a: Assignment) -> Json:
    return [a.role, a.index, a.node, *([a.devices] if a.devices else [])]


def _read_assignment(data: Json) -> Assignment:
    role, index, node, *devices = data
    given = tuple((name, tuple(numbers)) for name, numbers in devices[0]) if devices else ()
    return Assignment(role, index, node, given)


def _held(held: Held) -> Json:
    return [_request(held.request), [_assignment(a) for a in held.assignments], held.since, held.changed_at]


def _read_held(data: Json) -> Held:
    request, assignments, since, changed_at = data
    return Held(_read_request(request), tuple(_read_assignment(a) for a in assignments), since, changed_at)


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
    most = None if queue.most is None else _amounts(queue.most)
    kept = {name: getattr(queue, name) for name in ("open", "node_labels", "parent", "weight", "placement", "policy")}
    return {"name": queue.name, "most": most, "least": _amounts(queue.least), **kept}


def _read_queue(data: Mapping[str, Any]) -> Queue:
    most = None if data["most"] is None else _read_amounts(data["most"])
    changed = {"most": most, "least": _read_amounts(data["least"]), "node_labels": _pairs(data["node_labels"])}
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
        "held": [_held(held) for held in s.held],
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
        tuple(_read_held(held) for held in data["held"]),
        tuple(Reservation(job, tuple((node, at, n) for node, at, n in rows)) for job, rows in data["reservations"]),
        tuple(Past(*row) for row in data["past"]),
        tuple(_read_eviction(row) for row in data["evictions"]),
        tuple(_read_eviction(row) for row in data["shrinks"]),
        Rules(**data["rules"]),
    )
