"""Pods that another scheduler of the cluster places: Volcano, whole gangs at a time, or kube-scheduler, one by one. Pure.

The platform still admits their jobs, by quota and by the room that it counts; where they go is not its decision then, so that the node
it counts a member on need not be the one on which the member runs.
"""

from __future__ import annotations

from paddleflow.base.ids import parse_attempt
from paddleflow.kube.resources import PODGROUPS, Object
from paddleflow.runtimes.kubernetes.pods import CLUSTER_LABEL, JOB_LABEL, PodSettings, service_name
from paddleflow.runtimes.runtime import Launch

#: `scheduler` of a cluster's setting → `schedulerName` of its pods; empty: the engine says on which node each goes
SCHEDULERS = {"paddleflow": "", "volcano": "volcano", "kube-scheduler": "default-scheduler"}
VOLCANO = SCHEDULERS["volcano"]
GROUP = "scheduling.k8s.io/group-name"


def handed_over(made: Object, launch: Launch, settings: PodSettings) -> Object:
    """The pod without a node, for another scheduler."""
    spec = made["spec"]
    spec.pop("nodeName", None)
    spec["schedulerName"] = settings.scheduler
    if launch.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **launch.node_selector}
    if grouped(launch, settings):
        job, _, _ = parse_attempt(launch.attempt)
        made["metadata"]["annotations"][GROUP] = service_name(job)
    return made


def grouped(launch: Launch, settings: PodSettings) -> bool:
    """Whether its pod is one of a gang."""
    return settings.scheduler == VOLCANO and launch.gang > 1


def pod_group(launch: Launch, settings: PodSettings) -> Object | None:
    """The gang of a job; None where there is none."""
    if not grouped(launch, settings):
        return None
    job, _, _ = parse_attempt(launch.attempt)
    made = PODGROUPS.object(
        service_name(job), launch.namespace or settings.namespace, spec={"minMember": launch.gang, "queue": "default"}
    )
    made["metadata"] |= {"labels": {CLUSTER_LABEL: settings.label}, "annotations": {JOB_LABEL: job}}
    return made
