"""`paddleflow flavour`: named sizes of a job's members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Paging, group, paging, pairs
from paddleflow.cli.output import Column, Kind
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.queues import Flavour

FLAVOUR: Kind[Flavour] = Kind(
    "flavours",
    lambda flavour: flavour.name,
    lambda flavour: flavour.raw,
    (
        Column(lambda flavour: flavour.name, "NAME", "name"),
        Column(lambda flavour: flavour.cpu, "CPU", "cpu"),
        Column(lambda flavour: output.size(flavour.mem), "MEMORY"),
        Column(lambda flavour: flavour.mem, "", "mem"),
        Column(lambda flavour: dict(flavour.scalars), "SCALARS", "scalarResources"),
        Column(lambda flavour: flavour.cluster, "CLUSTER", "clusterName", wide=True),
    ),
    "not find flavour",
)

flavour = group(help="Manage flavours, the named sizes of jobs. Only root may create, change and delete them.")


@flavour.command("list")
@paging("maxkeys", 100)
@pass_session
def list_(session: Session, paging: Paging) -> None:
    """List flavours."""
    found, marker = paging.collect(lambda size, marker: session.client.flavours.page(max_keys=size, marker=marker))
    output.show_list(session, FLAVOUR, found, marker)
    output.show_marker(session, marker)


@flavour.command()
@click.argument("name")
@pass_session
def show(session: Session, name: str) -> None:
    """Show a flavour."""
    found = session.client.flavours.get(name)
    facts = {
        "Name": found.name,
        "CPU": found.cpu,
        "Memory": output.size(found.mem),
        "Scalars": found.scalars,
        "Cluster": found.cluster,
    }
    output.show_one(session, FLAVOUR, found, facts, ("", {}))


@flavour.command()
@click.argument("name")
@click.option("-c", "--cpu", required=True, help="Cores: 4, 500m.")
@click.option("-m", "--memory", required=True, help="Memory: 8Gi.")
@click.option("-s", "--scalar", callback=pairs, help="Scalar resources: nvidia.com/gpu=1,rdma/hca=1.")
@pass_session
def create(session: Session, name: str, cpu: str, memory: str, scalar: dict[str, str] | None) -> None:
    """Create a flavour.

    \b
    Example:
      paddleflow flavour create small-gpu -c 4 -m 8Gi -s nvidia.com/gpu=1
    """
    session.client.flavours.create(name, cpu, memory, scalars=scalar)
    output.done(session, f"flavour[{name}] create success", name, lambda: session.client.flavours.get(name).raw)


@flavour.command()
@click.argument("name")
@click.option("-c", "--cpu", help="Cores: 4, 500m.")
@click.option("-m", "--memory", help="Memory: 8Gi.")
@click.option("-s", "--scalar", callback=pairs, help="Scalar resources: nvidia.com/gpu=1,rdma/hca=1.")
@pass_session
def update(session: Session, name: str, cpu: str | None, memory: str | None, scalar: dict[str, str] | None) -> None:
    """Change a flavour. Existing jobs are not affected."""
    session.client.flavours.update(name, cpu=cpu, mem=memory, scalars=scalar)
    output.done(session, f"update [{name}] success", name, lambda: session.client.flavours.get(name).raw)


@flavour.command()
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a flavour. Existing jobs are not affected."""
    session.client.flavours.delete(name)
    output.done(session, f"flavour[{name}] delete success", name, lambda: {"name": name})
