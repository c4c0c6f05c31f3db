"""`paddleflow scheduler`, which runs the pod scheduler, and `paddleflow scheduler replay`: decisions of a server, taken again."""

from __future__ import annotations

import click

from paddleflow.cli import output
from paddleflow.cli.kubernetes_process import (
    health_option,
    kubeconfig_option,
    metrics_option,
    needs_kubernetes,
    print_definitions,
)
from paddleflow.cli.lazy import Group
from paddleflow.cli.session import Session, pass_session

HEADERS = ["begins", "ends", "cycles", "events", "starts", "evictions", "resizes", "difference"]


@click.group(cls=Group, invoke_without_command=True)
@kubeconfig_option
@click.option(
    "--scheduler-name", default="paddleflow", show_default=True, help="schedulerName of the pods that it places."
)
@click.option(
    "--placement",
    type=click.Choice(["pack", "spread"]),
    default="pack",
    show_default=True,
    help="pack: prefer full nodes; spread: prefer empty ones.",
)
@click.option(
    "--preemption/--no-preemption", default=True, show_default=True, help="Evict pods to make room for others."
)
@click.option(
    "--min-runtime",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds that a pod runs before it may be preempted.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    help="Seconds after which nodes are kept free for a waiting pod or gang.",
)
@click.option(
    "--leader-elect-namespace", default="kube-system", show_default=True, help="Namespace of the leader lease."
)
@metrics_option
@health_option
@click.option("--crd", is_flag=True, help="Print the definitions of Queue and PodGroup, and exit.")
@click.pass_context
def scheduler(
    ctx: click.Context,
    kubeconfig: str,
    scheduler_name: str,
    placement: str,
    preemption: bool,
    min_runtime: float,
    patience: float,
    leader_elect_namespace: str,
    metrics_bind_address: str,
    health_probe_bind_address: str,
    crd: bool,
) -> None:
    """Run the pod scheduler on a Kubernetes cluster, or look at recorded decisions of a server.

    Places pods with schedulerName: paddleflow, whole gangs (PodGroup) at a time, within queues (Queue).

    \b
    Examples:
      paddleflow scheduler --crd | kubectl apply --server-side -f -
      paddleflow scheduler --kubeconfig ~/.kube/config
      paddleflow scheduler replay
    """
    if ctx.invoked_subcommand is not None:
        return
    with needs_kubernetes("scheduler"):
        from paddleflow.podscheduler.definitions import definitions
        from paddleflow.podscheduler.main import Arguments, run
        from paddleflow.scheduling.rules import Rules
    if crd:
        print_definitions(definitions())
        return
    ctx.exit(
        run(
            Arguments(
                kubeconfig=kubeconfig,
                scheduler=scheduler_name,
                placement=placement,
                lease_namespace=leader_elect_namespace,
                metrics_address=metrics_bind_address,
                health_address=health_probe_bind_address,
                rules=Rules(preemption=preemption, least_run=min_runtime, patience=patience),
            )
        )
    )


@scheduler.command()
@click.option("--since", help='Only decisions since "YYYY-MM-DD hh:mm:ss".')
@click.option("--until", help='Only decisions until "YYYY-MM-DD hh:mm:ss".')
@click.pass_context
@pass_session
def replay(session: Session, context: click.Context, since: str | None, until: str | None) -> None:
    """Replay recorded scheduling decisions on their recorded input, up to the first difference.

    Exits with 1 if there is a difference. The server's setting scheduling.log_size limits how much is recorded.

    \b
    Example:
      paddleflow scheduler replay --since "2026-11-17 09:00:00"
    """
    found = session.client.scheduler.replay(since, until)
    if session.output in {"table", "wide", "compat"}:
        click.echo(f"{found.cycles} cycles from {found.begins or '-'} to {found.ends or '-'}, {found.events} events")
        click.echo(f"  {found.starts} starts, {found.evictions} evictions, {found.resizes} resizes")
        click.echo("  no differences" if found.difference is None else _words(found.difference))
    else:
        row = [found.begins, found.ends, found.cycles, found.events, found.starts, found.evictions, found.resizes]
        output.show_rows(session, HEADERS, [[*row, found.difference]])
    context.exit(0 if found.difference is None else 1)


def _words(difference: object) -> str:
    found = difference if isinstance(difference, dict) else {}
    return (
        f"  first difference at {found.get('at')}, cycle {found.get('cycle')}, decision {found.get('decision')}:\n"
        f"    then: {found.get('then')}\n    now:  {found.get('now')}"
    )
