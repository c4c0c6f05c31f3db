"""Routes over the scheduler's record: what a change would have done, and whether recorded decisions come out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources
from paddleflow.errors import Conflict, Fault, Invalid, Unavailable
from paddleflow.jobs.durations import DurationHistory, Profile
from paddleflow.queues.model import DEFAULT_CLUSTER, Queue, QueueStatus
from paddleflow.queues.queues import cluster_queues
from paddleflow.queues.rules import changed_queue
from paddleflow.queues.tree import as_scheduled
from paddleflow.scheduling import model
from paddleflow.scheduling.replay import replay
from paddleflow.simulator.report import PlayReport, report
from paddleflow.simulator.scenario import Scenario, scenario_of
from paddleflow.simulator.whatif import Change, play, queues_with
from paddleflow.spec import wire_scheduler as wire
from paddleflow.spec.job_query import parse_time
from paddleflow.spec.whatif import ReplayQuery, TeamIf, WhatIf
from paddleflow.store.database import Tx

# --- what if ---------------------------------------------------------------------------------------------------------


async def what_if(platform: Platform, call: Call[WhatIf, NoQuery]) -> wire.WhatIfAnswer:
    now, place, asked = platform.clock.now(), platform.jobs_run_here, call.body
    queues, keys = await platform.database.read(_read, place.durations)
    engine = place.engines.engine(DEFAULT_CLUSTER)
    live = None if engine is None else await engine.snapshot(now)
    if engine is None or live is None:
        raise Unavailable("this server does not schedule jobs at the moment", hint="try again in a moment")
    change = _change(asked, queues, live, now)

    def both() -> wire.WhatIfAnswer:
        scenario = scenario_of(engine.decisions(now - asked.past), now - asked.past) or Scenario(live)

        def length(request: model.Request, ran: float) -> float:
            return place.durations.length(request, ran, keys)

        base = play(scenario, Change(), length, asked.horizon)
        if base.first is not None:
            raise Conflict(
                f"the past {asked.past:.0f} s cannot be reproduced, so a simulation of a change would say nothing: "
                f"at {local_text(base.first.at)} {base.first}",
                code="NotReproducible",
                hint="ask about a shorter time, such as --past 60; paddleflow scheduler replay says whether the record is sound",
            )
        # The record may begin later than the past that was asked for; jobs of before it would only seem to have waited.
        begins = max(now - asked.past, scenario.snapshot.now)
        changed = replace(change, arrivals=_arrivals(asked.team, begins)) if asked.team else change
        other = play(scenario, changed, length, asked.horizon)
        until = max(base.ends, other.ends)
        return {
            "begins": local_text(base.begins),
            "now": local_text(base.now),
            "cycles": base.cycles,
            "reproduced": True,
            "firstChange": "" if other.first is None else local_text(other.first.at),
            "before": _side(report(base, until), base.ends),
            "after": _side(report(other, until), other.ends),
        }

    return await platform.computing.run(call.caller.name, both)


def _read(tx: Tx, durations: DurationHistory) -> tuple[list[Queue], Mapping[str, Profile]]:
    return cluster_queues(tx, DEFAULT_CLUSTER), durations.update(tx)


def _change(asked: WhatIf, queues: Sequence[Queue], live: model.Snapshot, now: float) -> Change:
    """The change that was asked for; refused as making it would be."""
    known = {queue.name: queue for queue in queues}
    new = "" if asked.team is None else asked.team.queue  # a new queue makes sense for those who bring jobs to it
    unknown = [
        Fault(
            f"queues[{n}].name",
            f"queue[{item.name}] does not exist",
            f"{nearest(item.name, known)}; a new queue needs jobs of its own, named in team",
        )
        for n, item in enumerate(asked.queues)
        if item.name not in known and item.name != new
    ]
    if unknown:
        raise Invalid.of(unknown, code=WhatIf.code)
    for item in asked.queues:
        blank = Queue(
            id="", name=item.name, namespace="default", cluster=DEFAULT_CLUSTER, quota_type="elasticQuota",
            most=Resources(), least=Resources(), location={}, policies=(), status=QueueStatus.OPEN, follows=False,
            created_at=now, updated_at=now,
        )  # fmt: skip
        before = known.get(item.name, blank)
        known[item.name] = changed_queue(before, item, now, [each for each in known.values() if each is not before])
    names = {node.name for node in live.nodes}
    faults = [
        Fault(f"nodesLost[{n}]", f"node[{name}] is not there", f"known: {', '.join(sorted(names))}")
        for n, name in enumerate(asked.nodes_lost)
        if name not in names
    ]
    if asked.team is not None and asked.team.queue not in known:
        hint = "describe it in queues as well"
        faults.append(Fault("team.queue", f"queue[{asked.team.queue}] does not exist", hint))
    if faults:
        raise Invalid.of(faults, code=WhatIf.code)
    added = tuple(
        model.Node(f"new-{group}-{number}", item.each.over(Resources()))
        for group, item in enumerate(asked.nodes_added)
        for number in range(item.count)
    )
    lost = set(asked.nodes_lost)
    change = Change(rules={key: value for key, value in asked.rules.model_dump().items() if value is not None})
    if asked.queues:
        change = replace(change, queues=queues_with([as_scheduled(known[item.name], True) for item in asked.queues]))
    if lost or added:
        change = replace(change, nodes=lambda nodes: (*[node for node in nodes if node.name not in lost], *added))
    return change


def _arrivals(team: TeamIf, begin: float) -> tuple[tuple[model.Request, float], ...]:
    need = model.MemberSet("worker", team.replicas, team.each.over(Resources()))
    return tuple(
        (
            model.Request(f"team-{n}", team.queue, (need,), begin + n * team.every, (1 << 40) + n, user="new team"),
            team.seconds,
        )
        for n in range(team.jobs)
    )


def _side(found: PlayReport, ends: float) -> wire.Side:
    rows: list[wire.QueueOutcome] = [
        {
            "name": row.name,
            "jobs": row.jobs,
            "started": row.started,
            "finished": row.finished,
            "meanWait": round(row.mean_wait, 1),
            "p90Wait": round(row.p90_wait, 1),
            "meanCompletion": round(row.mean_completion, 1),
            "use": round(row.use, 4),
            "victims": row.victims,
            "lostSeconds": round(row.lost, 1),
        }
        for row in found.queues
    ]
    rounded = replace(found, fairness=round(found.fairness, 4), use=round(found.use, 4))
    return {
        "queues": rows,
        "fairness": rounded.fairness,
        "use": rounded.use,
        "victims": found.victims,
        "ends": local_text(ends),
    }


# --- again -----------------------------------------------------------------------------------------------------------


async def replay_record(platform: Platform, call: Call[NoBody, ReplayQuery]) -> wire.Replay:
    since = parse_time("since", call.query.since) if call.query.since else 0.0
    until = parse_time("until", call.query.until) if call.query.until else float("inf")
    engine = platform.jobs_run_here.engines.engine(DEFAULT_CLUSTER)
    if engine is None:
        raise Unavailable(
            "this server does not schedule jobs", hint="ask the server on whose machine the cluster's jobs run"
        )
    found = await platform.computing.run(call.caller.name, lambda: replay(engine.decisions(since), since, until))
    differs = found.difference
    difference: wire.Difference | None = None
    if differs is not None:
        difference = {
            "at": local_text(differs.at),
            "cycle": differs.cycle,
            "decision": differs.number,
            "then": differs.then,
            "now": differs.now,
        }
    return {
        "begins": local_text(found.begins),
        "ends": local_text(found.ends),
        "snapshots": found.snapshots,
        "events": found.events,
        "cycles": found.cycles,
        "starts": found.starts,
        "evictions": found.evictions,
        "resizes": found.resizes,
        "difference": difference,
    }


ROUTES = (
    Route(
        "POST", "/queue/whatif", what_if, "Try a change of queues, nodes or rules on the recent past; nothing is applied.",
        body=WhatIf, leader="cluster", leader_only=True, answer=wire.WhatIfAnswer, root=True,
        errors=("QueueInvalidField", "409 NotReproducible"),
    ),
    Route(
        "GET", "/scheduler/replay", replay_record, "Execute recorded decisions again, up to the first difference.",
        query=ReplayQuery, answer=wire.Replay, root=True, leader="cluster", leader_only=True,
    ),
)  # fmt: skip
