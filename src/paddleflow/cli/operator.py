"""`paddleflow operator`: runs the controllers. Their package is imported here and nowhere else in the command line."""

from __future__ import annotations

import click

from paddleflow.cli.kubernetes_process import (
    health_option,
    kubeconfig_option,
    metrics_option,
    needs_kubernetes,
    print_definitions,
)
from paddleflow.cli.lazy import Command
from paddleflow.errors import Invalid


@click.command(cls=Command)
@kubeconfig_option
@click.option("--namespace", default="", help="Namespace to watch. [default: all]")
@click.option(
    "--scheduling",
    type=click.Choice(["", "volcano", "paddleflow"]),
    default="",
    help="Gang scheduling: with Volcano, or with `paddleflow scheduler`. [default: pods one by one, by the cluster's own]",
)
@click.option("--etcd-server", default="", help="etcd endpoints for elastic jobs: [https://]host:2379[,host:2379].")
@click.option("--etcd-cacert", default="", help="CA file of an https etcd. [default: the system's]")
@click.option("--etcd-cert", default="", help="Client certificate file for etcd.")
@click.option("--etcd-key", default="", help="Key file of the client certificate.")
@click.option("--port-range", default="35000,65000", help="Ports for jobs on the host network.", show_default=True)
@click.option(
    "--lost-after",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds after which a terminating pod on an unreachable node is considered lost.",
)
@click.option("--leader-elect", is_flag=True, help="Elect a leader, for several replicas.")
@click.option(
    "--leader-elect-namespace", default="", help="Namespace of the leader lease. [default: the one of the operator]"
)
@metrics_option
@health_option
@click.option("--crd", is_flag=True, help="Print the CustomResourceDefinitions for kubectl apply, and exit.")
@click.pass_context
def operator(
    ctx: click.Context,
    kubeconfig: str,
    namespace: str,
    scheduling: str,
    etcd_server: str,
    etcd_cacert: str,
    etcd_cert: str,
    etcd_key: str,
    port_range: str,
    lost_after: float,
    leader_elect: bool,
    leader_elect_namespace: str,
    metrics_bind_address: str,
    health_probe_bind_address: str,
    crd: bool,
) -> None:
    """Run the operator for PaddleJobs on a Kubernetes cluster.

    \b
    Examples:
      paddleflow operator --crd | kubectl apply --server-side -f -
      paddleflow operator --namespace research --scheduling volcano
    """
    low, high = _ports(port_range)
    with needs_kubernetes("operator"):
        from paddleflow.operator.etcd import Keys
        from paddleflow.operator.main import Arguments, definitions, run
        from paddleflow.operator.paddlejob.job import OperatorOptions
    if crd:
        print_definitions(definitions())
        return
    options = OperatorOptions(
        volcano=bool(scheduling),
        gang_scheduler=scheduling or "volcano",
        etcd=_endpoints(etcd_server),
        low_port=low,
        high_port=high,
        lost_after=lost_after,
    )
    ctx.exit(
        run(
            Arguments(
                kubeconfig=kubeconfig,
                namespace=namespace,
                leader_elect=leader_elect,
                lease_namespace=leader_elect_namespace,
                metrics_address=metrics_bind_address,
                health_address=health_probe_bind_address,
                options=options,
                etcd_keys=Keys(etcd_cacert, etcd_cert, etcd_key),
            )
        )
    )


def _endpoints(text: str) -> str:
    if text and not text.strip(", /"):
        raise Invalid(f"--etcd-server {text!r} names no endpoint", hint="as in --etcd-server etcd.team:2379")
    return text


def _ports(text: str) -> tuple[int, int]:
    low, _, high = text.replace("-", ",").partition(",")
    if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) <= int(high) - 20 <= 65516):
        raise Invalid(
            f"--port-range {text!r} is not a range of at least 20 ports", hint="as in --port-range 35000,65000"
        )
    return int(low), int(high)
