"""What people write: roles with pod templates, how the members find each other, and the rules for failure and scaling.

Field names are those of existing manifests. Whatever an API server can check by itself (enums, minima, rules between fields)
is part of the schema, so that a wrong manifest is refused when it is applied. The operator reads with the same models, because
an older definition may have let a job in that this one refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from paddleflow.spec.document import Document, LooseText, checked

MOST_REPLICAS = (
    1_000  #: the endpoints of all members must fit into one environment variable, which Linux ends at 128 KiB
)
LONGEST_NAME = 51  #: ``<name>-worker-999`` and more is still a DNS label of 63
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
ROLES = ("ps", "worker", "heter")  #: in the order of their start

CleanPodPolicy = Literal["Always", "Never", "OnFailure", "OnCompletion"]
Intranet = Literal["PodIP", "Service", "Host"]
Quantity = Annotated[LooseText, Field(json_schema_extra={"x-kubernetes-int-or-string": True})]


def rule(expression: str, message: str) -> dict[str, Any]:
    """One CEL rule of the definition, with the sentence that a person gets."""
    return {"rule": expression, "message": message}


class Loose(Document):
    """A part of the pod template: the fields that matter here are checked, all others are Kubernetes' own and kept."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True, defer_build=True
    )


class Container(Loose):
    """A container; everything else is checked when its pod is created."""

    name: str = Field(min_length=1, max_length=63, description="Name of the container, a DNS label.")
    image: str = Field(min_length=1, description="Image to run.")


class PodSpec(Loose):
    """Pod specification."""

    containers: list[Container] = Field(
        min_length=1,
        description="The first one is the training container: it gets the environment of the job. Others are sidecars.",
    )
    restart_policy: Literal["Never", "OnFailure"] | None = Field(
        default=None,
        description="Never: the operator replaces pods that failed. OnFailure: the kubelet restarts the container in place.",
    )


class PodTemplate(Loose):
    """Template of a role's pods."""

    metadata: dict[str, Any] = Field(default_factory=dict, description="Labels and annotations of the pods.")
    spec: PodSpec = Field(description="Pod specification, as in any pod.")


class Role(Document):
    """One role of the job."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "!has(self.requests) || self.requests <= self.replicas",
                    "replicas must not be below requests, the least number of replicas",
                ),
                rule(
                    "!has(self.limits) || self.limits >= self.replicas",
                    "replicas must not be above limits, the largest number of replicas",
                ),
            ]
        }
    )

    replicas: int = Field(ge=1, le=MOST_REPLICAS, description="How many members. To have none, suspend the job.")
    requests: int | None = Field(
        default=None, ge=1, le=MOST_REPLICAS, description="The least number of replicas that scaling may set."
    )
    limits: int | None = Field(
        default=None, ge=1, le=MOST_REPLICAS, description="The largest number of replicas that scaling may set."
    )
    template: PodTemplate = Field(description="Template of the pods.")

    @model_validator(mode="after")
    def _bounded(self) -> Role:
        if self.requests is not None and self.requests > self.replicas:
            raise ValueError(
                f"replicas is {self.replicas}, below requests, the least number of replicas, {self.requests}"
            )
        if self.limits is not None and self.limits < self.replicas:
            raise ValueError(
                f"replicas is {self.replicas}, above limits, the largest number of replicas, {self.limits}"
            )
        return self


class SchedulingPolicy(Document):
    """How the pods are scheduled together; counts when the operator runs with ``--scheduling=volcano``."""

    min_available: int | None = Field(
        default=None, ge=1, description="Pods that must fit at once before any starts. Default: all of them."
    )
    queue: str | None = Field(default=None, min_length=1, description="Volcano queue.")
    priority_class: str | None = Field(default=None, min_length=1, description="Priority class of the PodGroup.")
    min_resources: dict[str, Quantity] | None = Field(
        default=None,
        description="Resources that must be free before any pod is created. Default: what all pods ask for.",
    )


_TOTAL = " + ".join(f"(has(self.{role}) ? self.{role}.replicas : 0)" for role in ROLES)


class PaddleJobSpec(Document):
    """What the job is."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "has(self.ps) || has(self.worker) || has(self.heter)", "name at least one role: ps, worker or heter"
                ),
                rule(
                    "!has(self.elastic) || has(self.worker)", "elastic needs worker: workers are what grows and shrinks"
                ),
                rule(
                    "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable)"
                    f" || self.schedulingPolicy.minAvailable <= {_TOTAL}",
                    "schedulingPolicy.minAvailable is more than all replicas together: the job could never start",
                ),
            ]
        }
    )

    ps: Role | None = Field(default=None, description="Parameter servers; they are started before the workers.")
    worker: Role | None = Field(
        default=None, description="Workers. Without ps more than one of them train collectively."
    )
    heter: Role | None = Field(default=None, description="Workers on other hardware, in parameter server mode.")
    intranet: Intranet = Field(
        default="PodIP",
        description="How members address each other. PodIP: by address. Service: by name, needs cluster DNS."
        " Host: on the nodes' network, each pod with ports of its own.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default="OnCompletion",
        description="Which pods are deleted when the job has ended. Pods that still run then are always deleted.",
    )
    with_gloo: int = Field(
        default=0, ge=0, le=2, description="With ps: 0 no gloo, 1 among the workers, 2 among workers and servers."
    )
    elastic: int | None = Field(
        default=None, description="Any value: the job is elastic, its trainers may use the operator's etcd."
    )
    scheduling_policy: SchedulingPolicy | None = Field(default=None, description="Scheduling as a gang.")
    backoff_limit: int = Field(
        default=6, ge=0, description="How many failures are mended by starting again before the job fails."
    )
    active_deadline_seconds: int | None = Field(
        default=None, ge=1, description="Seconds that the job may be active, waiting included; then it fails."
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None, ge=0, description="Seconds after its end when the job is deleted. Default: it is kept."
    )
    suspend: bool = Field(default=False, description="True: the job has no pods and waits.")

    def roles(self) -> Mapping[str, Role]:
        """The roles that the job has, in the order of their start."""
        found = {"ps": self.ps, "worker": self.worker, "heter": self.heter}
        return {name: role for name, role in found.items() if role is not None}

    @property
    def members(self) -> int:
        return sum(role.replicas for role in self.roles().values())

    @property
    def mode(self) -> str:
        """``PS``, ``Collective`` or ``Single``: never written by people, it follows from the roles."""
        if self.ps:
            return "PS"
        return "Collective" if self.members > 1 else "Single"

    @model_validator(mode="after")
    def _whole(self) -> PaddleJobSpec:
        faults = []
        if not self.roles():
            faults.append("has no role, expected at least one of ps, worker and heter")
        if self.elastic is not None and self.worker is None:
            faults.append("has elastic without worker: workers are what grows and shrinks")
        least = self.scheduling_policy.min_available if self.scheduling_policy else None
        if least and self.roles() and least > self.members:
            faults.append(f"has schedulingPolicy.minAvailable {least}, more than all {self.members} replicas together")
        if faults:
            raise ValueError("; ".join(faults))
        return self


def read_spec(data: object) -> PaddleJobSpec:
    """The specification of a job that an API server holds; `Invalid` lists every fault."""
    return checked(PaddleJobSpec, data)
