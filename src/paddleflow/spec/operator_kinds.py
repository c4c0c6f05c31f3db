"""Kinds of other people's operators that a job may be, by its `extensionTemplate`: facts of their definitions, and nothing else.

Only these are ever created for a job: a template names the kind, and the server's rights on a cluster are larger than those of the
person who wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """A kind and who runs it."""

    group: str
    versions: tuple[str, ...]  #: known ones, the newest first
    kind: str
    plural: str
    framework: str  #: of the job document
    operator: str  #: for people
    pods: str  #: label of its pods with the object's name


KINDS = (
    OperatorKind(
        "argoproj.io", ("v1alpha1",), "Workflow", "workflows", "workflow", "Argo Workflows", "workflows.argoproj.io/workflow"
    ),
    *(
        OperatorKind(
            "kubeflow.org", ("v1",), kind, plural, framework, "Kubeflow's training operator", "training.kubeflow.org/job-name"
        )
        for kind, plural, framework in (
            ("PyTorchJob", "pytorchjobs", "pytorch"),
            ("TFJob", "tfjobs", "tensorflow"),
            ("MPIJob", "mpijobs", "mpi"),
            ("PaddleJob", "paddlejobs", "paddle"),
            ("MXJob", "mxjobs", "mxnet"),
        )
    ),
    OperatorKind(
        "batch.paddlepaddle.org", ("v1",), "PaddleJob", "paddlejobs", "paddle", "the PaddleJob operator", "paddle-job-name"
    ),
    OperatorKind(
        "sparkoperator.k8s.io",
        ("v1beta2",),
        "SparkApplication",
        "sparkapplications",
        "spark",
        "the Spark operator",
        "sparkoperator.k8s.io/app-name",
    ),
    OperatorKind("ray.io", ("v1", "v1alpha1"), "RayJob", "rayjobs", "ray", "KubeRay", "ray.io/originated-from-cr-name"),
)  # fmt: skip


def kind_of(template: Mapping[str, Any]) -> OperatorKind | None:
    """The kind that a template is of; None when it is none of these."""
    version, kind = template.get("apiVersion"), template.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    group, _, number = version.rpartition("/")
    return next((each for each in KINDS if (each.group, each.kind) == (group, kind) and number in each.versions), None)


def kinds_of(framework: str) -> list[str]:
    """The kinds of a framework, as people write them."""
    return [f"{each.group}/{each.versions[0]} {each.kind}" for each in KINDS if each.framework == framework]
