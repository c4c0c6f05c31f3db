"""`paddleflow cluster`: clusters and their resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Paging, group, listed, paging
from paddleflow.cli.output import Column, Kind, with_id
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.clusters import Cluster

CLUSTER: Kind[Cluster] = Kind(
    "clusters",
    lambda cluster: cluster.name,
    lambda cluster: with_id(cluster.raw, "clusterName", "name"),
    (
        Column(lambda cluster: cluster.id, "ID", "cluster id", wide=True),
        Column(lambda cluster: cluster.name, "NAME", "cluster name"),
        Column(lambda cluster: cluster.type, "TYPE"),
        Column(lambda cluster: cluster.status, "STATUS"),
        Column(lambda cluster: cluster.description, "DESCRIPTION", "description", flexible=True),
        Column(lambda cluster: cluster.type, "", "cluster type"),
        Column(lambda cluster: cluster.version, "VERSION", "version"),
        Column(lambda cluster: cluster.status, "", "status"),
        Column(lambda cluster: output.age(cluster.create_time), "AGE"),
        Column(lambda cluster: cluster.create_time, "CREATED", "create time", wide=True),
        Column(lambda cluster: cluster.update_time, "UPDATED", "update time", wide=True),
    ),
    "no cluster found ",
)
SHOWN = CLUSTER._replace(
    columns=[
        Column(lambda cluster: cluster.id, "", "cluster id"),
        Column(lambda cluster: cluster.name, "", "cluster name"),
        Column(lambda cluster: cluster.description, "", "description"),
        Column(lambda cluster: cluster.endpoint, "", "endpoint"),
        Column(lambda cluster: cluster.source, "", "source"),
        Column(lambda cluster: cluster.type, "", "cluster type"),
        Column(lambda cluster: cluster.version, "", "version"),
        Column(lambda cluster: cluster.status, "", "status"),
        Column(lambda cluster: cluster.setting, "", "setting"),
        Column(lambda cluster: list(cluster.namespaces), "", "namespace list"),
        Column(lambda cluster: cluster.create_time, "", "create time"),
        Column(lambda cluster: cluster.update_time, "", "update time"),
    ]
)

cluster = group(help="Manage clusters and show their resources. Only root may create, change and delete them.")


def _credential(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A kubeconfig file as base64; text that is no file is taken for base64 already."""
    if value is None:
        return None
    file = Path(value).expanduser()
    try:
        found = file.is_file()
    except OSError:  # longer than a file name can be
        found = False
    from base64 import b64decode, b64encode

    if found:
        return b64encode(file.read_bytes()).decode()
    if value.startswith(("/", "./", "~")):
        raise click.BadParameter(f"file {value} does not exist")
    try:
        b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise click.BadParameter(f"{value[:60]} is neither a file nor base64") from None
    return value


def _shape(function: Callable[..., None]) -> Callable[..., None]:
    """The options that create and update share."""
    for option in (
        click.option("--version", help="Kubernetes version: v1.29.3."),
        click.option(
            "-ns", "--namespacelist", "namespaces", callback=listed, help="Namespaces that queues may use: a,b."
        ),
        click.option("--status", help="online or offline."),
        click.option("--setting", help="Further settings as JSON."),
        click.option("--source", help="Origin of the cluster, for example OnPremise or AWS."),
        click.option("-d", "--description", help="Description."),
        click.option("-c", "--credential", callback=_credential, help="Kubeconfig: a file, or base64."),
    ):
        function = option(function)
    return function


@cluster.command("list")
@click.option("-cn", "--clusternames", callback=listed, help="Only these clusters: a,b.")
@click.option("-cs", "--clusterstatus", help="Only clusters with this status: online or offline.")
@paging("maxkeys", 100)
@pass_session
def list_(session: Session, clusternames: list[str] | None, clusterstatus: str | None, paging: Paging) -> None:
    """List clusters."""
    found, marker = paging.collect(
        lambda size, marker: session.client.clusters.page(
            max_keys=size, marker=marker, names=clusternames or (), status=clusterstatus
        )
    )
    output.show_list(session, CLUSTER, found, marker)
    output.show_marker(session, marker)


@cluster.command()
@click.argument("clustername")
@pass_session
def show(session: Session, clustername: str) -> None:
    """Show a cluster with the capacity, usage and kubelet version of its nodes. Its credential is never shown."""
    found = session.client.clusters.get(clustername)
    for_people = session.output in {"table", "wide"}
    facts = {
        "Name": found.name,
        "ID": found.id,
        "Description": found.description,
        "Type": found.type,
        "Endpoint": found.endpoint,
        "Source": found.source,
        "Version": found.version,
        "Status": found.status,
        "Health": (session.client.clusters.resources([clustername])[clustername].error or "ok") if for_people else "",
        "Settings": found.setting,
        "Namespaces": list(found.namespaces),
        "Created": found.create_time,
        "Updated": found.update_time,
    }
    output.show_one(session, SHOWN, found, facts, ("", {}))
    if for_people:
        _show_nodes(session, clustername)


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
    message = f"cluster[{clustername}] create  success, id[{made.id}]"
    output.done(session, message, clustername, lambda: _data(session, clustername))


@cluster.command()
@click.argument("clustername")
@click.option("-e", "--endpoint", help="Address of the API server.")
@click.option("-t", "--clustertype", "type", help="Type: Kubernetes, Local or K3S.")
@_shape
@pass_session
def update(session: Session, /, clustername: str, **fields: Any) -> None:
    """Change a cluster. Options that are not given leave their value unchanged."""
    changed = session.client.clusters.update(clustername, **fields)
    message = f"cluster[{clustername}] update success, id[{changed.id}]"
    output.done(session, message, clustername, lambda: _data(session, clustername))


@cluster.command()
@click.argument("clustername")
@pass_session
def delete(session: Session, clustername: str) -> None:
    """Delete a cluster that has no queues."""
    session.client.clusters.delete(clustername)
    output.done(session, f"cluster[{clustername}] delete success", clustername, lambda: {"name": clustername})


@cluster.command()
@click.argument("clustername")
@pass_session
@click.pass_context
def check(ctx: click.Context, session: Session, clustername: str) -> None:
    """Check that a Kubernetes cluster can be reached and can run jobs. Exits with 1 if it cannot."""
    found = session.client.clusters.check(clustername)
    if session.machine:
        output.print_data(session, found.raw)
    else:
        rows: list[list[object]] = [
            [
                "ok" if each.ok else "MISSING" if each.needed else "warning",
                each.what,
                each.message + (f" (hint: {each.hint})" if each.hint else ""),
            ]
            for each in found.findings
        ]
        output.show_rows(session, ["result", "what", "message"], rows)
    ctx.exit(0 if found.ok else 1)


@cluster.command()
@click.option("-cn", "--clustername", callback=listed, help="Only these clusters: a,b.")
@pass_session
def resource(session: Session, clustername: list[str] | None) -> None:
    """Show the total and free resources of clusters and their nodes."""
    found = session.client.clusters.resources(clustername or ())
    _show_by_cluster(session, {name: cluster.raw for name, cluster in found.items()})


@cluster.command()
@click.option("--pageno", type=int, help="Page of nodes, starting with 1.")
@click.option("--pagesize", type=int, default=1000, show_default=True, help="Nodes per page.")
@click.option("-cn", "--clusternames", callback=listed, help="Only these clusters: a,b.")
@click.option("-q", "--queuename", help="Only nodes that this queue can use.")
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
    """Show the allocatable and allocated resources of each node."""
    found = session.client.clusters.allocation(
        names=clusternames or (), queue=queuename, labels=labels, page_no=pageno, page_size=pagesize
    )
    _show_by_cluster(session, found)


def _show_nodes(session: Session, name: str) -> None:
    """The nodes of a cluster, behind what is shown of itself."""
    rows: list[list[object]] = [
        [
            node.name,
            "yes" if node.schedulable else "no",
            *(output.amounts(each) for each in (node.capacity, node.used, node.used_by_others)),
            node.pods_count,
            node.version,
        ]
        for node in session.client.clusters.nodes(name)
    ]
    click.echo()
    output.show_rows(session, ["node", "schedulable", "capacity", "jobs", "others", "members", "version"], rows)


def _data(session: Session, name: str) -> object:
    return CLUSTER.data(session.client.clusters.get(name))


def _show_by_cluster(session: Session, found: Mapping[str, Any]) -> None:
    """Clusters with their nodes: the API's object, the original client's cell of JSON, or a table of nodes."""
    if session.machine:
        output.print_data(session, found)
        return
    if session.output in {"compat", "text"}:
        nested = session.output == "compat"
        rows: list[list[object]] = [[name, output.as_json(info) if nested else info] for name, info in found.items()]
        output.show_rows(session, ["cluster name", "cluster info"], rows)
        return
    rows = [
        [name, node.get("nodeName", ""), *(output.amounts(node.get(key) or {}) for key in ("total", "idle"))]
        for name, info in found.items()
        for node in _nodes(info)
    ]
    output.show_rows(session, ["cluster", "node", "total", "free"], rows)


def _nodes(info: Any) -> list[dict[str, Any]]:
    """The nodes of an answer of either route."""
    if "nodeList" in info:
        return [node for node in info["nodeList"] if isinstance(node, dict)]
    free, total = info.get("allocatable") or {}, info.get("capacity") or {}
    return [{"nodeName": name, "total": total.get(name), "idle": free.get(name)} for name in {**total, **free}]
