"""What one reconcile works on: the job, its members, its status, and the writes collected so far."""

from __future__ import annotations

from paddleflow.base.values import dataclass
from paddleflow.operator.paddlejob.contract import Membership, elastic_by_etcd, members_map, read_membership
from paddleflow.operator.paddlejob.job import Job, Object, OperatorOptions
from paddleflow.operator.paddlejob.pods import Pod, wanted
from paddleflow.operator.paddlejob.status import JobStatus
from paddleflow.operator.paddlejob.writes import Children, Event, Writes
from paddleflow.spec.paddlejob.model import PaddleJobSpec

FORMED = ("Running", "Completing")  #: phases in which every member of the formation has run


@dataclass(slots=True)
class JobState:
    """One reconcile of a job whose spec is valid."""

    job: Job
    children: Children
    now: float
    options: OperatorOptions
    gang_reason: str  #: why Volcano holds the PodGroup, in its own words
    pods: list[Pod]
    status: JobStatus
    writes: Writes

    @property
    def spec(self) -> PaddleJobSpec:
        assert self.job.spec is not None, "a job with a fault is answered before"
        return self.job.spec

    @property
    def wanted(self) -> list[tuple[str, int]]:
        return wanted(self.job)

    @property
    def by_etcd(self) -> bool:
        return elastic_by_etcd(self.spec, self.options)

    @property
    def pod_group(self) -> Object | None:
        owned = next((obj for obj in self.children.pod_groups if "deletionTimestamp" not in obj["metadata"]), None)
        return owned or self.children.unowned_pod_group

    def living(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.living]

    def current(self) -> list[Pod]:
        """Members of the current formation."""
        return [pod for pod in self.living() if pod.formation == self.status.formation]

    def membership(self) -> Membership | None:
        """The published membership of the current formation, if it was published."""
        found = {obj["metadata"]["name"]: obj for obj in self.children.config_maps}
        for role in ("worker", "ps"):
            if config_map := found.get(members_map(self.job, role, self.status.formation)):
                return read_membership(config_map)
        return None

    def start_formation(self, phase: str, message: str) -> None:
        """Replace all members, with new endpoints."""
        self.status.formation += 1
        self.status.phase, self.status.message = phase, message
        self.status.set("Running", False, phase, message, self.job, self.now)

    def fail(self, reason: str, message: str) -> None:
        """End the job without success; `message` says why."""
        status = self.status
        status.phase, status.message, status.completed_at, status.retry_at = "Failed", message, self.now, None
        status.set("Running", False, reason, "", self.job, self.now)
        status.set("Failed", True, reason, message, self.job, self.now)
        self.emit(reason, message, warning=True)

    def emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.writes.events.append(Event(reason, message, warning))
