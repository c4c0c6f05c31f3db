"""Whether jobs can run on a Kubernetes cluster: is it there, may we, what does it lack. Nothing is written but questions about rights."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.values import dataclass
from paddleflow.errors import Forbidden, NotFound, PaddleFlowError, Unauthenticated
from paddleflow.kube.client import Client
from paddleflow.kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, PODS, SECRETS, SERVICES
from paddleflow.kube.rights import Right, missing_rights, rights
from paddleflow.runtimes.kubernetes import status
from paddleflow.runtimes.kubernetes.deployment_check import missing_for_deployment

LEASE = "paddleflow"  #: name of the lease that keeps servers of other databases away


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `needed`: without it no job runs."""

    what: str
    ok: bool
    message: str = ""
    hint: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found on a cluster."""

    version: str
    findings: Sequence[Finding]

    @property
    def lacking(self) -> list[Finding]:
        """What keeps jobs from running."""
        return [each for each in self.findings if each.needed and not each.ok]


def needed_rights(namespaces: Iterable[str], lease_namespace: str) -> list[Right]:
    found = [
        *rights("list watch", NODES),
        *rights("list watch", PODS),
        *rights("list", CONFIG_MAPS),
        *rights("list", SERVICES),
        *rights("get create update", LEASES, lease_namespace),
    ]
    for space in namespaces:
        found += rights("get create patch delete", PODS, space) + rights("get", PODS, space, "log")
        found += rights("get create delete", CONFIG_MAPS, space) + rights("get create delete", SERVICES, space)
    return found


def useful_rights(namespaces: Iterable[str]) -> list[tuple[Right, str]]:
    """Those without which something is missing, and what."""
    found = [(Right("get", NODES, "", "proxy"), "no statistics of jobs")]
    for space in namespaces:
        found.append((Right("list", EVENTS, space), "no messages about volumes that cannot be mounted"))
        found += [(right, "no shell in jobs") for right in rights("get create", PODS, space, "exec")]
        found += [(right, "no secrets in jobs") for right in rights("get create delete", SECRETS, space)]
    return found


async def inspect(client: Client, namespaces: Sequence[str], lease_namespace: str, identity: str) -> Preflight:
    """What a cluster has and lacks. Errors of the connection are raised; what is missing beyond it is a finding."""
    version = str((await client.raw("/version")).get("gitVersion", ""))
    missing = await missing_rights(client, needed_rights(namespaces, lease_namespace))
    findings = [
        Finding("API server", True, version),
        Finding(
            "rights",
            not missing,
            "not allowed to " + ", ".join(map(str, missing)) if missing else "all that are needed",
            "bind a role that allows it to the user of the kubeconfig; docs/guides/cluster-administration.md has one"
            if missing
            else "",
        ),
    ]
    wished = useful_rights(namespaces)
    denied = set(await missing_rights(client, [right for right, _ in wished]))
    findings += [Finding("rights", False, f"not allowed to {r}: {so}", needed=False) for r, so in wished if r in denied]
    for space in namespaces:
        findings += await _namespace(client, space)
    findings += await _nodes(client)
    findings += await _dns(client)
    findings += await _other_server(client, lease_namespace, identity)
    findings += [
        Finding("deployment", False, f"{what}: {so}", needed=False)
        for what, so in await missing_for_deployment(client, version)
    ]
    return Preflight(version, findings)


async def _namespace(client: Client, name: str) -> list[Finding]:
    what = f"namespace {name}"
    try:
        found = await client.get(NAMESPACES, name)
    except NotFound:
        return [Finding(what, False, "does not exist", f"kubectl create namespace {name}")]
    except Forbidden:
        return []  # nothing is lost by not knowing
    if found["metadata"].get("deletionTimestamp"):
        return [Finding(what, False, "is being deleted", "wait until it is gone, then create it again")]
    return [Finding(what, True)]


async def _nodes(client: Client) -> list[Finding]:
    try:
        found = [status.trimmed_node(each) for each in (await client.list(NODES)).items]
    except Forbidden:
        return []  # is among the rights
    ready = [each for each in found if each["status"]["ready"] and not each["spec"]["unschedulable"]]
    text = f"{len(ready)} of {len(found)} take pods"
    return [Finding("nodes", bool(ready), text, "" if ready else "add a node, or uncordon one", needed=False)]


async def _dns(client: Client) -> list[Finding]:
    so = "members of distributed jobs cannot find each other"
    try:
        await client.get(SERVICES, "kube-dns", "kube-system")
    except NotFound:
        return [Finding("DNS", False, f"there is no service kube-dns in kube-system: {so}", needed=False)]
    except Forbidden:
        return []
    return [Finding("DNS", True)]


async def _other_server(client: Client, namespace: str, identity: str) -> list[Finding]:
    try:
        lease = await client.get(LEASES, LEASE, namespace)
    except (NotFound, Forbidden):
        return []
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    if not holder or holder == identity:
        return []
    return [
        Finding(
            "other servers",
            False,
            f"another PaddleFlow ({holder}) holds the lease {namespace}/{LEASE}, or held it a moment ago",
            "a cluster has one server, or several on one database: delete it there first",
            needed=False,
        )
    ]


def refused_credential(error: PaddleFlowError, kubeconfig_token: str, clock: Clock) -> str:
    """Why the API server does not know the user; empty for any other error."""
    if not isinstance(error, Unauthenticated):
        return ""
    expires = token_expiry(kubeconfig_token)
    if expires is not None and expires < clock.now():
        return f"the token expired at {rfc3339(expires)}"
    return "the API server refuses the credential: it has expired, was revoked, or is of another cluster"


def token_expiry(token: str) -> float | None:
    """When a token that is a JWT expires; None for others."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        expires = json.loads(base64.urlsafe_b64decode(padded)).get("exp")
    except (binascii.Error, ValueError, AttributeError):
        return None
    return float(expires) if isinstance(expires, int | float) else None
