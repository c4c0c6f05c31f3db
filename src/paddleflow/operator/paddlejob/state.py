"""What one pass knows: the job, its members, its memory, and the writes noted so far. The steps of a pass work on it."""

from __future__ import annotations

from dataclasses import dataclass

from paddleflow.operator.paddlejob.contract import Membership, elastic_by_etcd, members_map, told
from paddleflow.operator.paddlejob.job import Job, Object, Options
from paddleflow.operator.paddlejob.members import Pod, wanted
from paddleflow.operator.paddlejob.record import Record
from paddleflow.operator.paddlejob.writes import Children, Event, Writes
from paddleflow.spec.paddlejob.model import PaddleJobSpec

FORMED = ("Running", "Completing")  #: phases in which every member of the formation has run


@dataclass(slots=True)
class Pass:
    """One pass over a job that can be read."""

    job: Job
    children: Children
    now: float
    options: Options
    pods: list[Pod]
    record: Record
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
        return next((obj for obj in self.children.pod_groups if "deletionTimestamp" not in obj["metadata"]), None)

    def living(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.living]

    def current(self) -> list[Pod]:
        """Members of the formation in force."""
        return [pod for pod in self.living() if pod.formation == self.record.formation]

    def told(self) -> Membership | None:
        """What the members of the formation in force were told, if they were."""
        found = {obj["metadata"]["name"]: obj for obj in self.children.config_maps}
        for role in ("worker", "ps"):
            if config_map := found.get(members_map(self.job, role, self.record.formation)):
                return told(config_map)
        return None

    def form_anew(self, phase: str, message: str) -> None:
        """Bring the members together again, all of them, with new endpoints."""
        self.record.formation += 1
        self.record.phase, self.record.message = phase, message
        self.record.set("Running", False, phase, message, self.job, self.now)

    def fail(self, reason: str, message: str) -> None:
        """End the job without success; why, in words for a person."""
        record = self.record
        record.phase, record.message, record.completed_at, record.retry_at = "Failed", message, self.now, None
        record.set("Running", False, reason, "", self.job, self.now)
        record.set("Failed", True, reason, message, self.job, self.now)
        self.say(reason, message, warning=True)

    def say(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.writes.events.append(Event(reason, message, warning))
