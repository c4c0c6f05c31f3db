"""What a cluster lacks for the platform itself as a deployment (the chart deploy/helm/paddleflow). Nothing of it keeps jobs from running:
a server may be anywhere. What we may not ask is not said."""

from __future__ import annotations

import re

from paddleflow.errors import PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.kube.resources import Object

OLDEST = (1, 29)  #: Kubernetes that the charts are made for
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


async def missing_for_deployment(client: Client, version: str) -> list[tuple[str, str]]:
    """(what is missing, what follows from it), in words for a person."""
    found = []
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        found.append((f"Kubernetes {version} is older than {OLDEST[0]}.{OLDEST[1]}", "the charts refuse it"))
    classes = await _items(client, "/apis/storage.k8s.io/v1/storageclasses")
    if classes is not None and not any(
        (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true" for each in classes
    ):
        found.append(
            (
                "no default StorageClass",
                "set postgresql.storageClass, or use a database outside; filesClaim needs a claim too",
            )
        )
    ingresses = await _items(client, "/apis/networking.k8s.io/v1/ingressclasses")
    if ingresses == []:
        found.append(("no IngressClass", "ingress.enabled has no effect; use a LoadBalancer or port-forward"))
    groups = await _items(client, "/apis", "groups")
    if groups is not None and "monitoring.coreos.com" not in {each.get("name") for each in groups}:
        found.append(("no Prometheus operator", "serviceMonitor.enabled would fail"))
    return found


async def _items(client: Client, path: str, field: str = "items") -> list[Object] | None:
    """None: we may not know."""
    try:
        found = (await client.raw(path)).get(field)
    except PaddleFlowError:
        return None
    return found if isinstance(found, list) else None
