"""A PaddleJob as a reconcile reads it: its spec, its status, and the operator's own options."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid
from paddleflow.spec.paddlejob.model import LONGEST_NAME, PaddleJobSpec, read_spec

Object = Mapping[str, Any]

API_VERSION, KIND = "batch.paddlepaddle.org/v1", "PaddleJob"
ENDED = ("Completed", "Failed")
#: put on every job by the original operator; a job that carries it cannot be deleted while nobody takes it off
ORIGINAL_FINALIZER = "finalizers.paddlepaddle.org"


def stamp(moment: float) -> str:
    """A moment as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def moment(text: str | None) -> float | None:
    """The moment that Kubernetes wrote, if it wrote one."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).timestamp()
    except ValueError:
        return None  # somebody else wrote it: as good as nothing


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """What the operator was started with."""

    volcano: bool = False  #: pods are scheduled in gangs, by PodGroups of Volcano's kind
    gang_scheduler: str = "volcano"  #: who reads them: `schedulerName` of the pods
    etcd: str = ""  #: endpoints for elastic trainers, comma separated, each with or without a scheme
    low_port: int = 35000  #: of the range for intranet Host
    high_port: int = 65000
    backoff: float = 10.0  #: seconds before the first new try; doubled with each further one
    longest_backoff: float = 360.0
    lost_after: float = 30.0  #: seconds after which a pod that should have ended is given up: its node does not answer
    finish_grace: float = 30.0  #: seconds that servers have to end by themselves when all workers are done

    @property
    def etcd_addresses(self) -> list[str]:
        """The trainers' etcd as they read it: ``host:port``."""
        found = (part.strip().rpartition("//")[2].rstrip("/") for part in self.etcd.split(","))
        return [part for part in found if part]


@dataclass(frozen=True, slots=True)
class Job:
    """What was asked, and what the status remembers."""

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: PaddleJobSpec | None
    fault: str  #: why there is no spec
    status: Mapping[str, Any] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    version: str = ""

    @property
    def ended(self) -> bool:
        return self.status.get("phase") in ENDED

    def owner(self) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }


def read(obj: Object) -> Job:
    """The job in an object of the API server. A wrong one is a job with a fault, not an error: it must be answered."""
    metadata = obj.get("metadata") or {}
    spec, fault = None, ""
    try:
        spec = read_spec(obj.get("spec") or {})
    except Invalid as error:
        fault = error.message
    if len(metadata["name"]) > LONGEST_NAME:
        spec = None
        fault = f"metadata.name has {len(metadata['name'])} characters, at most {LONGEST_NAME} are allowed, because its pods' names are longer"
    return Job(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        fault=fault,
        status=obj.get("status") or {},
        finalizers=tuple(metadata.get("finalizers") or ()),
        version=metadata.get("resourceVersion", ""),
    )
