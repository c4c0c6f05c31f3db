"""`paddleflow cluster`: clusters, and what they have free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group, listed, marker_options
from paddleflow.cli.session import Session, pass_session

HEADERS = [
    "cluster id", "cluster name", "description", "cluster type", "version", "status", "create time", "update time",
]  # fmt: skip
SHOW_HEADERS = [
    "cluster id", "cluster name", "description", "endpoint", "source", "cluster type", "version", "status", "setting",
    "namespace list", "create time", "update time",
]  # fmt: skip

cluster = group(help="Clusters, and what they have free. Making, changing and deleting is for root.")


def _credential(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A kubeconfig file as base64; text that is no file is taken for base64 already."""
    if value is None:
        return None
    file = Path(value).expanduser()
    try:
        found = file.is_file()
    except OSError:  # longer than a file name can be
        found = False
    if found:
        from base64 import b64encode

        return b64encode(file.read_bytes()).decode()
    if value.startswith(("/", "./", "~")):
        raise click.BadParameter(f"there is no file {value}")
    return value


def _shape(function: Callable[..., None]) -> Callable[..., None]:
    """The options that making and changing share."""
    for option in (
        click.option("--version", help="Version of its Kubernetes: v1.29.3."),
        click.option("-ns", "--namespacelist", "namespaces", callback=listed, help="Namespaces for queues: a,b."),
        click.option("--status", help="online or offline."),
        click.option("--setting", help="Further settings, as JSON."),
        click.option("--source", help="Where it is from, such as OnPremise or AWS."),
        click.option("-d", "--description", help="A sentence about it."),
        click.option("-c", "--credential", callback=_credential, help="Its kubeconfig: a file, or base64."),
    ):
        function = option(function)
    return function


@cluster.command("list")
@marker_options("maxkeys", 100)
@click.option("-cn", "--clusternames", callback=listed, help="Only these: a,b.")
@click.option("-cs", "--clusterstatus", help="Only those with this status: online or offline.")
@pass_session
def list_(
    session: Session, size: int, marker: str | None, clusternames: list[str] | None, clusterstatus: str | None
) -> None:
    """List clusters."""
    page = session.client.clusters.page(max_keys=size, marker=marker, names=clusternames or (), status=clusterstatus)
    rows = [[c.id, c.name, c.description, c.type, c.version, c.status, c.create_time, c.update_time] for c in page]
    output.show(session, HEADERS, rows, empty="no cluster found ")
    output.marker(session, page.next_marker)


@cluster.command()
@click.argument("clustername")
@pass_session
def show(session: Session, clustername: str) -> None:
    """Show a cluster. Its credential stays on the server."""
    c = session.client.clusters.get(clustername)
    row = [
        c.id, c.name, c.description, c.endpoint, c.source, c.type, c.version, c.status, c.setting,
        list(c.namespaces), c.create_time, c.update_time,
    ]  # fmt: skip
    output.show(session, SHOW_HEADERS, [row])


@cluster.command()
@click.argument("clustername")
@click.argument("endpoint")
@click.argument("clustertype")
@_shape
@pass_session
def create(session: Session, /, clustername: str, endpoint: str, clustertype: str, **fields: Any) -> None:
    """Add a cluster of type CLUSTERTYPE: Kubernetes, Local or K3S.

    \b
    Example:
      paddleflow cluster create lab https://10.0.0.2:6443 Kubernetes -c ~/.kube/config --version v1.29.3
    """
    made = session.client.clusters.create(clustername, endpoint=endpoint, type=clustertype, **fields)
    output.done(session, f"cluster[{clustername}] create  success, id[{made.id}]", name=clustername, id=made.id)


@cluster.command()
@click.argument("clustername")
@click.option("-e", "--endpoint", help="Its address.")
@click.option("-t", "--clustertype", "type", help="Its type: Kubernetes, Local or K3S.")
@_shape
@pass_session
def update(session: Session, /, clustername: str, **fields: Any) -> None:
    """Change a cluster; only what is given."""
    changed = session.client.clusters.update(clustername, **fields)
    output.done(session, f"cluster[{clustername}] update success, id[{changed.id}]", name=clustername, id=changed.id)


@cluster.command()
@click.argument("clustername")
@pass_session
def delete(session: Session, clustername: str) -> None:
    """Delete a cluster that has no queues."""
    session.client.clusters.delete(clustername)
    output.done(session, f"cluster[{clustername}] delete success", name=clustername)


@cluster.command()
@click.option("-cn", "--clustername", callback=listed, help="Only these: a,b.")
@pass_session
def resource(session: Session, clustername: list[str] | None) -> None:
    """Show what clusters and their nodes have in all and free."""
    found = session.client.clusters.resources(clustername or ())
    _show_by_cluster(session, {name: cluster.raw for name, cluster in found.items()})


@cluster.command()
@click.option("--pageno", type=int, help="Which page of nodes, from 1.")
@click.option("--pagesize", type=int, default=1000, show_default=True, help="Nodes of a page.")
@click.option("-cn", "--clusternames", callback=listed, help="Only these: a,b.")
@click.option("-q", "--queuename", help="Only what this queue can use.")
@click.option("-l", "--labels", help="Only nodes with these labels: a=b,c=d.")
@pass_session
def statistic(
    session: Session,
    pageno: int | None,
    pagesize: int,
    clusternames: list[str] | None,
    queuename: str | None,
    labels: str | None,
) -> None:
    """Show what each node can give and has."""
    found = session.client.clusters.allocation(
        names=clusternames or (), queue=queuename, labels=labels, page_no=pageno, page_size=pagesize
    )
    _show_by_cluster(session, found)


def _show_by_cluster(session: Session, found: Mapping[str, Any]) -> None:
    nested = session.output == "table"
    rows = [[name, output.as_json(value) if nested else value] for name, value in found.items()]
    output.show(session, ["cluster name", "cluster info"], rows)
