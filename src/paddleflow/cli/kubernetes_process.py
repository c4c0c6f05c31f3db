"""What `paddleflow operator` and `paddleflow scheduler` share: options of a process on Kubernetes, and what it needs installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from paddleflow.errors import Unavailable

kubeconfig_option = click.option("--kubeconfig", default="", help="Kubeconfig file. [default: the cluster it runs in]")
metrics_option = click.option(
    "--metrics-bind-address", default=":8080", help="Address of /metrics; 0 disables it.", show_default=True
)
health_option = click.option(
    "--health-probe-bind-address",
    default=":8081",
    help="Address of /healthz and /readyz; 0 disables them.",
    show_default=True,
)


@contextmanager
def needs_kubernetes(what: str) -> Iterator[None]:
    """Imports of this command's package: a library that is missing is named, with what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("paddleflow"):
            raise
        raise Unavailable(
            f"the {what} needs {error.name}, which is not installed", hint="pip install 'paddleflow[kubernetes]'"
        ) from error


def print_definitions(definitions: Iterable[Mapping[str, Any]]) -> None:
    """CustomResourceDefinitions for ``kubectl apply``."""
    import yaml

    click.echo(yaml.safe_dump_all(definitions, sort_keys=False), nl=False)
