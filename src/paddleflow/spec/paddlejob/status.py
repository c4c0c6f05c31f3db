"""What the operator answers: the phase that existing scripts read, conditions as batch Jobs have them, and the counts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paddleflow.spec.document import Document

#: `Starting` to `Failed` are set; the rest are words that older versions declared and scripts may know.
Phase = Literal[
    "Pending", "Starting", "Running", "Scaling", "Restarting", "Completing", "Completed", "Failed", "Suspended",
    "Terminating", "Terminated", "Aborting", "Aborted", "Succeed", "Unknown",
]  # fmt: skip


class Reference(Document):
    """One pod of a role."""

    kind: str = "Pod"
    name: str = ""
    uid: str = ""


class RoleStatus(Document):
    """The pods of one role, counted by what they do."""

    pending: int = 0
    starting: int = 0
    running: int = 0
    failed: int = 0
    succeeded: int = 0
    unknown: int = 0
    refs: list[Reference] = Field(default_factory=list, description="The pods.")


class Failure(Document):
    """Why a container ended."""

    pod: str = Field(default="", description="The pod.")
    uid: str = Field(default="", description="Its uid; a failure is counted once.")
    container: str = Field(default="", description="The container that ended first.")
    exit_code: int | None = Field(default=None, description="Its exit code; 128 + n is signal n.")
    reason: str = Field(default="", description="Kubernetes' word: Error, OOMKilled, Evicted and so on.")
    message: str = Field(default="", description="Its termination message, or the last lines of its log.")
    node: str = Field(default="", description="Where it ran.")
    time: str = Field(default="", description="When the operator counted it.")


class Condition(Document):
    """One thing that is so, or is not."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str
    observed_generation: int | None = None


class PaddleJobStatus(Document):
    """The state of the job."""

    phase: Phase | None = None
    mode: Literal["PS", "Collective", "Single"] | None = None
    message: str | None = Field(default=None, description="The phase in words, with names and numbers.")
    ps: RoleStatus | None = None
    worker: RoleStatus | None = None
    heter: RoleStatus | None = None
    replicas: int | None = Field(default=None, description="Worker pods that exist, for the scale subresource.")
    selector: str | None = Field(default=None, description="Label selector of the workers, for the scale subresource.")
    elastic: Literal["NONE", "DOING", "DONE", "ERROR"] | None = Field(
        default=None, description="Whether the members are being formed anew after scaling."
    )
    formation: int | None = Field(
        default=None, description="How often members were brought together; each has its own endpoints."
    )
    host_port: int | None = Field(default=None, description="First port of the job's range, with intranet Host.")
    failures: int | None = Field(default=None, ge=0, description="Failures so far, compared with backoffLimit.")
    disruptions: int | None = Field(
        default=None, ge=0, description="Members lost without a fault of the program: evicted, deleted, node gone."
    )
    last_failure: Failure | None = Field(
        default=None, description="The last failure or loss, with the log's last lines."
    )
    retry_time: str | None = Field(default=None, description="Before this moment no member is started again.")
    np: int | None = Field(default=None, description="Workers that the operator last wrote to etcd.")
    active_since: str | None = Field(default=None, description="From when activeDeadlineSeconds counts.")
    start_time: str | None = Field(default=None, description="When all members ran for the first time.")
    completion_time: str | None = Field(default=None, description="When the job ended.")
    observed_generation: int | None = None
    conditions: list[Condition] | None = None
