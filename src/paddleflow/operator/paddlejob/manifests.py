"""The objects of a job: pods, the headless Service, the ConfigMaps of a formation. Names follow from the job, so that making
one twice is refused by the API server instead of happening."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.operator.paddlejob.contract import (
    MEMBERSHIP,
    PORT,
    PORTS,
    Membership,
    elastic_by_etcd,
    identity,
    members_map,
    port_of,
    shared,
    tuning,
)
from paddleflow.operator.paddlejob.job import Job, OperatorOptions
from paddleflow.operator.paddlejob.pods import (
    FORMATION,
    JOB_LABEL,
    NAME_LABEL,
    ROLE_ANNOTATION,
    ROLE_LABEL,
    pod_name,
)
from paddleflow.spec.paddlejob.model import PaddleJobSpec, Role


def metadata(job: Job, name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": {JOB_LABEL: job.name, **(labels or {})},
        "ownerReferences": [job.owner()],
    }


def replaced_alone(spec: PaddleJobSpec, role: str, options: OperatorOptions) -> bool:
    """Whether a member that is lost comes back by itself: nobody else holds its address or waits inside a call for it.

    Workers of a parameter server job talk to servers only, unless gloo or heter workers connect them. By name they keep their
    address. Elastic trainers with etcd look for each other. All others get a new formation together.
    """
    if elastic_by_etcd(spec, options):
        return True
    return (
        role == "worker"
        and spec.ps is not None
        and spec.intranet == "Service"
        and not spec.with_gloo
        and not spec.heter
    )


def restart_policy(spec: PaddleJobSpec, role: str, entry: Role, options: OperatorOptions) -> str:
    if elastic_by_etcd(spec, options):
        return "OnFailure"
    if entry.template.spec.restart_policy:
        return entry.template.spec.restart_policy
    return "OnFailure" if replaced_alone(spec, role, options) else "Never"


def pod(
    job: Job, role: str, index: int, formation: int, options: OperatorOptions, host_port: int, gang: bool
) -> dict[str, Any]:
    """One member."""
    spec = job.spec
    assert spec is not None, "a job with a fault has no members"
    entry = spec.roles()[role]
    template = entry.template.model_dump(by_alias=True, exclude_unset=True)
    given, body = template.get("metadata") or {}, template["spec"]
    name = pod_name(job, role, index)
    meta = metadata(job, name)
    meta["labels"] = {**(given.get("labels") or {}), **meta["labels"], NAME_LABEL: name, ROLE_LABEL: role}
    meta["annotations"] = {
        **(given.get("annotations") or {}),
        ROLE_ANNOTATION: role,
        FORMATION: str(formation),
        **(_group(job, role) if gang else {}),
    }
    body["restartPolicy"] = restart_policy(spec, role, entry, options)
    if spec.intranet == "Service":
        body |= {"hostname": name, "subdomain": job.name}
    if spec.intranet == "Host":
        body |= {"hostNetwork": True, "dnsPolicy": body.get("dnsPolicy") or "ClusterFirstWithHostNet"}
    if gang:
        body["schedulerName"] = options.gang_scheduler
    for container in body["containers"]:
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # a failure carries its last lines
    _set_environment(job, role, index, formation, options, host_port, body["containers"][0])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def _set_environment(
    job: Job, role: str, index: int, formation: int, options: OperatorOptions, host_port: int, container: dict[str, Any]
) -> None:
    """Set the environment and the ports of the training container."""
    spec = job.spec
    assert spec is not None, "a job with a fault has no members"
    port = port_of(job, role, index, options, host_port)
    own = identity(job, role, index, formation, port, options)
    hidden = MEMBERSHIP | {entry["name"] for entry in own}
    users = [entry for entry in container.get("env") or [] if entry.get("name") not in hidden]
    taken = hidden | {entry.get("name") for entry in users}
    extra = [{"name": key, "value": value} for key, value in tuning(role, container).items() if key not in taken]
    container["env"] = [*extra, *users, *own]
    if not elastic_by_etcd(spec, options):
        gate = {"configMapRef": {"name": members_map(job, role, formation)}}
        container["envFrom"] = [*(container.get("envFrom") or []), gate]  # the last one wins
    if spec.intranet == "Host":
        # Declared, so that the scheduler never puts two pods with the same ports on one node.
        used = [{"name": f"p-{n}", "containerPort": port + n, "hostPort": port + n} for n in range(PORTS)]
        container["ports"] = [*(container.get("ports") or []), *used]


def _group(job: Job, role: str) -> dict[str, str]:
    policy = job.spec.scheduling_policy if job.spec else None
    marks = {
        "scheduling.k8s.io/group-name": job.name,
        "volcano.sh/task-spec": role,
        "volcano.sh/job-name": job.name,
        "volcano.sh/job-version": "0",
    }
    return marks | ({"volcano.sh/queue-name": policy.queue} if policy and policy.queue else {})


def service(job: Job) -> dict[str, Any]:
    """The headless Service by which members have names. Addresses are given out before a pod is ready: members wait for each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: job.name},
            "ports": [{"name": "endpoint", "port": PORT}, {"name": "rendezvous", "port": PORT + 1}],
        },
    }


def config_map(job: Job, role: str, formation: int, membership: Membership) -> dict[str, Any]:
    """What the members of a formation share. Immutable: a formation's endpoints never change."""
    meta = metadata(job, members_map(job, role, formation), {NAME_LABEL: job.name})
    meta["annotations"] = {FORMATION: str(formation)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": shared(job, membership),
    }
