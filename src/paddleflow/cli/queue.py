"""`paddleflow queue`: queues, their tree, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.account import show_grants
from paddleflow.cli.lazy import LazyCommand, Paging, group, listed, paging, pairs
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, note, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.queues import Queue, QueueShape

ORDERS = ("fifo", "shortest", "fair", "drf")
STATUSES = ("open", "closed")
ROOT = "root"

QUEUE: Kind[Queue] = Kind(
    "queues",
    lambda queue: queue.name,
    lambda queue: queue.raw,
    (
        Column(lambda queue: queue.name, "NAME", "name", flexible=True),
        Column(lambda queue: queue.namespace, "NAMESPACE", "namespace", wide=True),
        Column(lambda queue: queue.status, "STATUS", "status"),
        Column(lambda queue: queue.cluster, "CLUSTER", "cluster name", flexible=True),
        Column(lambda queue: output.amounts(queue.minimum), "GUARANTEE", wide=True),
        Column(lambda queue: output.amounts(queue.maximum), "MAXIMUM", flexible=True),
        Column(lambda queue: queue.order, "ORDER"),
        Column(lambda queue: queue.parent, "PARENT", wide=True),
        Column(lambda queue: output.age(queue.create_time), "AGE"),
        Column(lambda queue: queue.create_time, "CREATED", "create time", wide=True),
        Column(lambda queue: queue.update_time, "UPDATED", "update time", wide=True),
    ),
    "no queue found ",
)
SHOWN = QUEUE._replace(
    columns=[
        Column(lambda queue: queue.name, "", "name"),
        Column(lambda queue: queue.namespace, "", "namespace"),
        Column(lambda queue: queue.status, "", "status"),
        Column(lambda queue: queue.quota_type, "", "quota type"),
        Column(lambda queue: queue.cluster, "", "cluster name"),
        Column(lambda queue: queue.create_time, "", "create time"),
        Column(lambda queue: queue.update_time, "", "update time"),
    ]
)

queue = group(
    help="Manage queues and who may use them. Only root may create, change, delete and grant them.",
    lazy={
        "whatif": LazyCommand("queue_whatif:whatif", "Simulate a change with the jobs of the recent past."),
    },
)


def _amounts(cpu: str | None, mem: str | None, scalar: dict[str, str] | None) -> dict[str, object] | None:
    given = {"cpu": cpu, "mem": mem, "scalarResources": scalar}
    return {key: value for key, value in given.items() if value} or None


def _shape(function: Callable[..., None]) -> Callable[..., None]:
    """The options that create and update share; the command gets them as `shape`, and `maxscalar` beside it."""

    @wraps(function)
    def call(
        *args: Any,
        mincpu: str | None,
        minmem: str | None,
        minscalar: dict[str, str] | None,
        policy: list[str] | None,
        location: dict[str, str] | None,
        node_selector: dict[str, str] | None,
        parent: str | None,
        weight: int | None,
        order: str | None,
        otherclusters: list[str] | None,
        **kwargs: Any,
    ) -> None:
        shape: QueueShape = {
            "minimum": _amounts(mincpu, minmem, minscalar),
            "scheduling_policy": policy,
            "location": location,
            "node_selector": node_selector,
            "parent": parent,
            "weight": weight,
            "order": order,
            "other_clusters": otherclusters,
        }
        function(*args, shape=shape, **kwargs)

    for option in (
        click.option("--location", callback=pairs, help="Description of the location: label1=value1,label2=value2."),
        click.option(
            "--node-selector", callback=pairs, help="Labels that nodes must have to run its jobs: zone=a,gpu=a100."
        ),
        click.option("--policy", callback=listed, help="Scheduling policies: priority."),
        click.option(
            "--otherclusters",
            callback=listed,
            help="Further clusters that its jobs may run on, in order of preference.",
        ),
        click.option("--order", type=click.Choice(ORDERS), help="Order of jobs that have the same priority."),
        click.option("--weight", type=int, help="Share of unused resources, relative to sibling queues."),
        click.option("--parent", help="Parent queue; root for none."),
        click.option("--minscalar", callback=pairs, help="Guaranteed scalar resources: nvidia.com/gpu=2,rdma/hca=1."),
        click.option("--minmem", help="Guaranteed memory: 10Gi."),
        click.option("--mincpu", help="Guaranteed cores: 10, 500m."),
        click.option("--maxscalar", callback=pairs, help="Maximum of scalar resources: nvidia.com/gpu=8."),
    ):
        call = option(call)
    return call


def _warn(texts: Sequence[str]) -> None:
    for text in texts:
        note(f"warning: {text}")


@queue.command("list")
@paging("maxsize", 100)
@pass_session
def list_(session: Session, paging: Paging) -> None:
    """List the queues that you may use."""
    found, marker = paging.collect(lambda size, marker: session.client.queues.page(max_keys=size, marker=marker))
    output.show_list(session, QUEUE, found, marker)
    output.show_marker(session, marker)


@queue.command()
@click.argument("queuename")
@pass_session
def show(session: Session, queuename: str) -> None:
    """Show a queue with its used and free resources."""
    q = session.client.queues.get(queuename)
    rest: dict[str, object] = {
        "max resources": q.maximum,
        "min resources": q.minimum,
        "used resources": q.used,
        "idle resources": q.idle,
        "used with queues below": q.used_together if q.used_together != q.used else None,
        "parent": q.parent,
        "weight": q.weight if q.parent else None,
        "order": q.order,
        "scheduling policy": q.scheduling_policy,
        "location": q.location,
        "node selector": q.node_selector,
    }
    facts = {
        "Name": q.name,
        "Cluster": ", ".join([q.cluster, *q.other_clusters]),
        "Namespace": q.namespace,
        "Status": q.status,
        "Guarantee": output.amounts(q.minimum) or "none",
        "Maximum": output.amounts(q.maximum),
        "Used": output.amounts(q.used) or "nothing",
        "Free": output.amounts(q.idle),
        "Used with child queues": output.amounts(q.used_together) if q.used_together != q.used else "",
        "Parent": q.parent,
        "Weight": q.weight,
        "Order": q.order,
        "Policies": q.scheduling_policy,
        "Location": q.location,
        "Node selector": q.node_selector,
        "Quota type": q.quota_type,
        "Created": q.create_time,
        "Updated": q.update_time,
    }
    given = {key: value for key, value in rest.items() if value}
    output.show_one(session, SHOWN, q, facts, ("queue info: ", given))


@queue.command()
@click.argument("name")
@click.argument("namespace")
@click.argument("maxcpu")
@click.argument("maxmem")
@_shape
@click.option("--quota", help="elasticQuota or volcanoCapabilityQuota. [default: elasticQuota]")
@click.option("--clustername", help="Cluster of the queue, if there are several.")
@pass_session
def create(
    session: Session,
    name: str,
    namespace: str,
    maxcpu: str,
    maxmem: str,
    maxscalar: dict[str, str] | None,
    shape: QueueShape,
    quota: str | None,
    clustername: str | None,
) -> None:
    """Create a queue that may use up to MAXCPU cores and MAXMEM memory.

    \b
    Example:
      paddleflow queue create team-a default 16 64Gi --maxscalar nvidia.com/gpu=4 --mincpu 4 --minmem 16Gi
      paddleflow queue create team-a-dev default 8 32Gi --parent team-a --weight 2 --order fair
    """
    warnings = session.client.queues.create(
        name,
        namespace,
        _amounts(maxcpu, maxmem, maxscalar) or {},
        cluster=clustername,
        quota_type=quota,
        **shape,
    )
    _warn(warnings)
    output.done(session, f"queue[{name}] create success", name, lambda: session.client.queues.get(name).raw)


@queue.command()
@click.argument("name")
@click.option("--maxcpu", help="Maximum cores: 16.")
@click.option("--maxmem", help="Maximum memory: 64Gi.")
@_shape
@click.option(
    "--status", type=click.Choice(STATUSES), help="A closed queue accepts and starts no jobs; running jobs continue."
)
@pass_session
def update(
    session: Session,
    name: str,
    maxcpu: str | None,
    maxmem: str | None,
    maxscalar: dict[str, str] | None,
    shape: QueueShape,
    status: str | None,
) -> None:
    """Change a queue. `--location key=` and `--node-selector key=` remove that key, `--policy name-` that policy.

    \b
    Examples:
      paddleflow queue update team-a --maxcpu 32 --mincpu 8
      paddleflow queue update team-a --status closed       drain it; --status open reopens it
    """
    maximum = _amounts(maxcpu, maxmem, maxscalar)
    changed = session.client.queues.update(name, maximum=maximum, status=status, **shape)
    _warn(changed.warnings)
    output.done(session, f"queue[{name}] update success", name, lambda: session.client.queues.get(name).raw)


@queue.command()
@click.argument("queuename")
@pass_session
def delete(session: Session, queuename: str) -> None:
    """Delete a queue that has no pending or running jobs and no child queues."""
    session.client.queues.delete(queuename)
    output.done(session, f"queue[{queuename}] delete success", queuename, lambda: {"name": queuename})


@queue.command()
@click.argument("username")
@click.argument("queuename")
@pass_session
def grant(session: Session, username: str, queuename: str) -> None:
    """Allow a user to use a queue."""
    session.client.grants.create(username, queuename)
    output.done(session, f"queue[{queuename}] add username[{username}] success", queuename)


@queue.command()
@click.argument("username")
@click.argument("queuename")
@pass_session
def ungrant(session: Session, username: str, queuename: str) -> None:
    """Revoke the right of a user to use a queue."""
    session.client.grants.delete(username, queuename)
    output.done(session, f"queue[{queuename}] delete username[{username}] success", queuename)


@queue.command()
@click.option("-u", "--username", help="Only grants of this user.")
@paging("maxsize", 100, marker=False)
@pass_session
def grantlist(session: Session, username: str | None, paging: Paging) -> None:
    """List which users may use which queues."""
    show_grants(session, "queue", "queue name", username, paging)


@queue.command()
@pass_session
def tree(session: Session) -> None:
    """Show the queues that you may use as a tree, each resource as guaranteed / used / maximum.

    The use of a queue includes its child queues. A parent that you may not use is shown by name only.
    """
    found = list(session.client.queues.list(usage=True))
    if session.output in {"table", "wide", "compat"}:
        for line in drawn(found):
            click.echo(line)
        return
    output.show_list(session, QUEUE, found)


def drawn(queues: list[Queue]) -> list[str]:
    """The tree, line by line; the first says what the numbers are."""
    known = {queue.name: queue for queue in queues}
    below: dict[str, list[str]] = {}
    for queue in queues:
        below.setdefault(queue.parent or ROOT, []).append(queue.name)
    strangers = [parent for parent in below if parent != ROOT and parent not in known]
    rows = [(ROOT, "guaranteed / used / maximum")]
    shown = set[str]()

    def draw(names: list[str], before: str) -> None:
        for name in names:
            if name in shown:
                continue
            shown.add(name)
            last = name == names[-1]
            rows.append((f"{before}{'└─ ' if last else '├─ '}{name}", _words(known.get(name))))
            draw(below.get(name, []), before + ("   " if last else "│  "))

    draw([*below.get(ROOT, []), *strangers], "")
    wide = max(output.width(left) for left, _ in rows)
    return [f"{left}{' ' * (wide - output.width(left))}  {right}".rstrip() for left, right in rows]


def _words(queue: Queue | None) -> str:
    if queue is None:
        return ""
    least, used, most = (_flat(each) for each in (queue.minimum, queue.used_together, queue.maximum))
    names = list(dict.fromkeys([*most, *least, *used]))
    parts = [f"{name} {least.get(name, '0')} / {used.get(name, '0')} / {most.get(name, '0')}" for name in names]
    closed = [] if queue.status in ("open", "") else [queue.status]
    return ", ".join([*parts, f"weight {queue.weight}", queue.order or "fifo", *closed])


def _flat(amounts: Mapping[str, Any]) -> dict[str, str]:
    """All dimensions side by side."""
    scalars = amounts.get("scalarResources") or {}
    flat = {key: str(value) for key, value in amounts.items() if key != "scalarResources"} | dict(scalars)
    return {key: output.size(value) if key in {"mem", "memory"} else value for key, value in flat.items()}
