"""`paddleflow flavour`: named amounts of resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import group, pairs
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.queues import Flavour

HEADERS = ["name", "cpu", "mem", "scalarResources", "clusterName"]

flavour = group(help="Named amounts of resources for jobs. Making, changing and deleting is for root.")


def _row(item: Flavour) -> list[object]:
    return [item.name, item.cpu, item.mem, item.scalars, item.cluster]


@flavour.command("list")
@click.option("-m", "--maxkeys", type=int, default=100, show_default=True, help="How many to show at most.")
@click.option("--marker", help="Where to go on: the marker that the page before ended with.")
@pass_session
def list_(session: Session, maxkeys: int, marker: str | None) -> None:
    """List flavours."""
    page = session.client.flavours.page(max_keys=maxkeys, marker=marker)
    output.show(session, HEADERS, [_row(item) for item in page], empty="not find flavour")
    output.marker(session, page.next_marker)


@flavour.command()
@click.argument("name")
@pass_session
def show(session: Session, name: str) -> None:
    """Show a flavour."""
    output.show(session, HEADERS, [_row(session.client.flavours.get(name))])


@flavour.command()
@click.argument("name")
@click.option("-c", "--cpu", required=True, help="Cores: 4, 500m.")
@click.option("-m", "--memory", required=True, help="Memory: 8Gi.")
@click.option("-s", "--scalar", callback=pairs, help="Scalar resources: nvidia.com/gpu=1,rdma/hca=1.")
@pass_session
def create(session: Session, name: str, cpu: str, memory: str, scalar: dict[str, str] | None) -> None:
    """Make a flavour.

    \b
    Example:
      paddleflow flavour create small-gpu -c 4 -m 8Gi -s nvidia.com/gpu=1
    """
    session.client.flavours.create(name, cpu, memory, scalars=scalar)
    output.done(session, f"flavour[{name}] create success ", name=name)


@flavour.command()
@click.argument("name")
@click.option("-c", "--cpu", help="Cores: 4, 500m.")
@click.option("-m", "--memory", help="Memory: 8Gi.")
@click.option("-s", "--scalar", callback=pairs, help="Scalar resources: nvidia.com/gpu=1,rdma/hca=1.")
@pass_session
def update(session: Session, name: str, cpu: str | None, memory: str | None, scalar: dict[str, str] | None) -> None:
    """Change a flavour. Jobs that exist keep what they have."""
    session.client.flavours.update(name, cpu=cpu, mem=memory, scalars=scalar)
    output.done(session, f"update [{name}] success", name=name)


@flavour.command()
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a flavour. Jobs that exist keep what they have."""
    session.client.flavours.delete(name)
    output.done(session, f"flavour[{name}] delete success ", name=name)
