"""`paddleflow queue`: queues, and who may use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from paddleflow.cli import grants, output
from paddleflow.cli.lazy import Late, group, listed, marker_options, pairs
from paddleflow.cli.session import Session, pass_session

HEADERS = ["name", "namespace", "status", "cluster name", "create time", "update time"]
SHOW_HEADERS = ["name", "namespace", "status", "quota type", "cluster name", "create time", "update time"]

ORDERS = ("fifo", "shortest", "fair", "drf")
STATUSES = ("open", "closed")

queue = group(
    help="Queues, and who may use them. Making, changing, deleting and granting is for root.",
    late={
        "tree": Late("tree:tree", "Draw the queues that you may use as a tree, with min, max and what is used."),
        "whatif": Late("whatif:whatif", "Try a change on the recent past; nothing is applied."),
    },
)


def _amounts(cpu: str | None, mem: str | None, scalar: dict[str, str] | None) -> dict[str, object] | None:
    given = {"cpu": cpu, "mem": mem, "scalarResources": scalar}
    return {key: value for key, value in given.items() if value} or None


def _shape(function: Callable[..., None]) -> Callable[..., None]:
    """The options that making and changing share."""
    for option in (
        click.option("--location", callback=pairs, help="Where it runs: label1=value1,label2=value2."),
        click.option("--policy", callback=listed, help="In which order jobs go: priority."),
        click.option("--order", type=click.Choice(ORDERS), help="Who goes first among jobs of one priority."),
        click.option("--weight", type=int, help="Its part of what its siblings leave over: 1, 2, 3."),
        click.option("--parent", help="The queue that it stands under; root for none."),
        click.option("--minscalar", callback=pairs, help="Least scalar resources: nvidia.com/gpu=2,rdma/hca=1."),
        click.option("--minmem", help="Least memory that it can have: 10Gi."),
        click.option("--mincpu", help="Least cores that it can have: 10, 500m."),
        click.option("--maxscalar", callback=pairs, help="Most scalar resources: nvidia.com/gpu=8."),
    ):
        function = option(function)
    return function


def _warn(texts: Sequence[str]) -> None:
    for text in texts:
        click.echo(f"warning: {text}", err=True)


@queue.command("list")
@marker_options("maxsize", 100)
@pass_session
def list_(session: Session, size: int, marker: str | None) -> None:
    """List the queues that you may use."""
    page = session.client.queues.page(max_keys=size, marker=marker)
    rows = [[q.name, q.namespace, q.status, q.cluster, q.create_time, q.update_time] for q in page]
    output.show(session, HEADERS, rows, empty="no queue found ")
    output.marker(session, page.next_marker)


@queue.command()
@click.argument("queuename")
@pass_session
def show(session: Session, queuename: str) -> None:
    """Show a queue, with what is used and free."""
    q = session.client.queues.get(queuename)
    row = [q.name, q.namespace, q.status, q.quota_type, q.cluster, q.create_time, q.update_time]
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
    }
    output.show_one(session, SHOW_HEADERS, row, "queue info: ", {key: value for key, value in rest.items() if value})


@queue.command()
@click.argument("name")
@click.argument("namespace")
@click.argument("maxcpu")
@click.argument("maxmem")
@_shape
@click.option("--quota", help="elasticQuota (as if not given) or volcanoCapabilityQuota.")
@click.option("--clustername", help="Its cluster, where there are several.")
@pass_session
def create(
    session: Session,
    name: str,
    namespace: str,
    maxcpu: str,
    maxmem: str,
    maxscalar: dict[str, str] | None,
    mincpu: str | None,
    minmem: str | None,
    minscalar: dict[str, str] | None,
    policy: list[str] | None,
    location: dict[str, str] | None,
    parent: str | None,
    weight: int | None,
    order: str | None,
    quota: str | None,
    clustername: str | None,
) -> None:
    """Make a queue that can have at most MAXCPU cores and MAXMEM memory.

    \b
    Example:
      paddleflow queue create team-a default 16 64Gi --maxscalar nvidia.com/gpu=4 --mincpu 4 --minmem 16Gi
      paddleflow queue create team-a-dev default 8 32Gi --parent team-a --weight 2 --order fair
    """
    warnings = session.client.queues.create(
        name,
        namespace,
        _amounts(maxcpu, maxmem, maxscalar) or {},
        minimum=_amounts(mincpu, minmem, minscalar),
        cluster=clustername,
        quota_type=quota,
        scheduling_policy=policy,
        location=location,
        parent=parent,
        weight=weight,
        order=order,
    )
    _warn(warnings)
    output.done(session, f"queue[{name}] create success ", name=name)


@queue.command()
@click.argument("name")
@click.option("--maxcpu", help="Most cores that it can have: 16.")
@click.option("--maxmem", help="Most memory that it can have: 64Gi.")
@_shape
@click.option("--status", type=click.Choice(STATUSES), help="closed: takes and starts no jobs; what runs goes on.")
@pass_session
def update(
    session: Session,
    name: str,
    maxcpu: str | None,
    maxmem: str | None,
    maxscalar: dict[str, str] | None,
    mincpu: str | None,
    minmem: str | None,
    minscalar: dict[str, str] | None,
    policy: list[str] | None,
    location: dict[str, str] | None,
    parent: str | None,
    weight: int | None,
    order: str | None,
    status: str | None,
) -> None:
    """Change a queue. `--location key=` removes that key, `--policy name-` that policy.

    \b
    Examples:
      paddleflow queue update team-a --maxcpu 32 --mincpu 8
      paddleflow queue update team-a --status closed       let it run empty; --status open goes on
    """
    changed = session.client.queues.update(
        name,
        maximum=_amounts(maxcpu, maxmem, maxscalar),
        minimum=_amounts(mincpu, minmem, minscalar),
        scheduling_policy=policy,
        location=location,
        parent=parent,
        weight=weight,
        order=order,
        status=status,
    )
    _warn(changed.warnings)
    output.done(session, f"queue[{name}] update success ", name=name)


@queue.command()
@click.argument("queuename")
@pass_session
def delete(session: Session, queuename: str) -> None:
    """Delete a queue that has no jobs waiting or running, and no queues below it."""
    session.client.queues.delete(queuename)
    output.done(session, f"queue[{queuename}] delete success ", name=queuename)


@queue.command()
@click.argument("username")
@click.argument("queuename")
@pass_session
def grant(session: Session, username: str, queuename: str) -> None:
    """Let a user use a queue."""
    session.client.grants.create(username, queuename)
    output.done(session, f"queue[{queuename}] add username[{username}] success", name=queuename, user=username)


@queue.command()
@click.argument("username")
@click.argument("queuename")
@pass_session
def ungrant(session: Session, username: str, queuename: str) -> None:
    """Let a user no longer use a queue."""
    session.client.grants.delete(username, queuename)
    output.done(session, f"queue[{queuename}] delete username[{username}] success", name=queuename, user=username)


@queue.command()
@click.option("-m", "--maxsize", type=int, default=100, show_default=True, help="How many to show at most.")
@click.option("-u", "--username", help="Only of this user.")
@pass_session
def grantlist(session: Session, maxsize: int, username: str | None) -> None:
    """List who may use which queue."""
    grants.show(session, "queue", "queue name", username, maxsize)
