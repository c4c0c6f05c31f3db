"""PaddleJobController under random events: names stay unique, passes come to rest, and members never believe in an old address."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulated_paddlejob import Obj, SimulatedCluster, role

ENDED = ("Completed", "Failed")


class PaddleJobController(RuleBasedStateMachine):
    """The cluster does as it likes; `SimulatedCluster` itself refuses a second object of a name and the deletion of a stranger's."""

    cluster: SimulatedCluster
    ended: Obj | None

    @initialize(
        servers=st.integers(0, 2),
        workers=st.integers(1, 3),
        intranet=st.sampled_from(["PodIP", "Service", "Host"]),
        gloo=st.integers(0, 1),
        limit=st.integers(0, 3),
        policy=st.sampled_from(["Always", "Never", "OnFailure", "OnCompletion"]),
        elastic=st.booleans(),
        options=st.sampled_from([{}, {"volcano": True}, {"etcd": "etcd:2379"}]),
    )
    def begin(self, servers: int, workers: int, intranet: str, gloo: int, limit: int, policy: str, elastic: bool, options: dict[str, Any]) -> None:  # fmt: skip
        spec: Obj = {"worker": role(workers), "intranet": intranet, "withGloo": gloo, "backoffLimit": limit}
        spec |= {"cleanPodPolicy": policy}
        if servers:
            spec["ps"] = role(servers)
        if elastic:
            spec["elastic"] = 1
        self.cluster = SimulatedCluster(spec, **options)
        self.ended = None

    def pick(self, number: int) -> Obj | None:
        pods = self.cluster.living()
        return pods[number % len(pods)] if pods else None

    @rule()
    def reconcile(self) -> None:
        self.cluster.step()

    @rule(number=st.integers(0, 5))
    def place(self, number: int) -> None:
        if pod := self.pick(number):
            self.cluster.place(pod)

    @rule(number=st.integers(0, 5))
    def run(self, number: int) -> None:
        if pod := self.pick(number):
            self.cluster.run(pod)

    @rule(number=st.integers(0, 5), code=st.sampled_from([0, 1, 137]))
    def end(self, number: int, code: int) -> None:
        pod = self.pick(number)
        if pod and pod["status"]["phase"] == "Running":
            self.cluster.end(pod, code)

    @rule(number=st.integers(0, 5))
    def evict(self, number: int) -> None:
        pod = self.pick(number)
        if pod and pod["status"]["phase"] in ("Pending", "Running"):
            self.cluster.evict(pod)

    @rule(number=st.integers(0, 5))
    def delete(self, number: int) -> None:
        if pod := self.pick(number):
            pod["metadata"]["deletionTimestamp"] = self.cluster.text()

    @rule(number=st.integers(0, 5))
    def vanish(self, number: int) -> None:
        if pod := self.pick(number):
            del self.cluster.objects["Pod", pod["metadata"]["name"]]

    @rule()
    def gone(self) -> None:
        self.cluster.gone()

    @rule()
    def admit(self) -> None:
        self.cluster.admit()

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        self.cluster.scale(replicas)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.cluster.edit(lambda spec: spec.update(suspend=suspend))

    @rule(seconds=st.sampled_from([1, 15, 400]))
    def wait(self, seconds: int) -> None:
        self.cluster.now += seconds

    @precondition(lambda self: self.cluster.phase not in ENDED)
    @rule()
    def everybody_works(self) -> None:
        """Left alone, a job runs with all its members, or it waits because it is suspended."""
        self.cluster.edit(lambda spec: spec.update(suspend=False))
        self.cluster.go(80)
        workers = self.cluster.job["spec"]["worker"]["replicas"]
        if self.cluster.phase in ENDED:
            return
        assert self.cluster.phase == "Running"
        ranks = [name for name in self.cluster.names() if "-worker-" in name]
        assert ranks == [f"demo-worker-{index}" for index in range(workers)]

    @invariant()
    def the_members_of_a_formation_know_the_same(self) -> None:
        published: dict[int, Obj] = {}
        for _, formation, found in getattr(self, "cluster", SimulatedCluster({"worker": role(1)})).starts:
            assert published.setdefault(formation, found) == found

    @invariant()
    def what_ended_stays_ended(self) -> None:
        if not hasattr(self, "cluster"):
            return
        if self.ended is not None:
            assert self.cluster.status == self.ended
            assert self.cluster.plan().creates == []
        elif self.cluster.phase in ENDED:
            self.ended = self.cluster.status

    @invariant()
    def failures_never_exceed_what_is_allowed_by_more_than_one(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.status.get("failures", 0) <= self.cluster.job["spec"]["backoffLimit"] + 1

    def teardown(self) -> None:
        """Whatever happened, passes come to rest."""
        if hasattr(self, "cluster"):
            self.cluster.settle()


TestPaddleJobs = PaddleJobController.TestCase
TestPaddleJobs.settings = settings(max_examples=100, stateful_step_count=30)
