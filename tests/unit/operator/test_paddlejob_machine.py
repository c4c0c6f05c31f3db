"""PaddleJobs under random events: names stay unique, passes come to rest, and members never believe in an old address."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.paddlejob_world import Obj, World, role

ENDED = ("Completed", "Failed")


class PaddleJobs(RuleBasedStateMachine):
    """The cluster does as it likes; `World` itself refuses a second object of a name and the deletion of a stranger's."""

    world: World
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
        self.world = World(spec, **options)
        self.ended = None

    def pick(self, number: int) -> Obj | None:
        pods = self.world.living()
        return pods[number % len(pods)] if pods else None

    @rule()
    def look(self) -> None:
        self.world.step()

    @rule(number=st.integers(0, 5))
    def place(self, number: int) -> None:
        if pod := self.pick(number):
            self.world.place(pod)

    @rule(number=st.integers(0, 5))
    def run(self, number: int) -> None:
        if pod := self.pick(number):
            self.world.run(pod)

    @rule(number=st.integers(0, 5), code=st.sampled_from([0, 1, 137]))
    def end(self, number: int, code: int) -> None:
        pod = self.pick(number)
        if pod and pod["status"]["phase"] == "Running":
            self.world.end(pod, code)

    @rule(number=st.integers(0, 5))
    def evict(self, number: int) -> None:
        pod = self.pick(number)
        if pod and pod["status"]["phase"] in ("Pending", "Running"):
            self.world.evict(pod)

    @rule(number=st.integers(0, 5))
    def delete(self, number: int) -> None:
        if pod := self.pick(number):
            pod["metadata"]["deletionTimestamp"] = self.world.text()

    @rule(number=st.integers(0, 5))
    def vanish(self, number: int) -> None:
        if pod := self.pick(number):
            del self.world.objects["Pod", pod["metadata"]["name"]]

    @rule()
    def gone(self) -> None:
        self.world.gone()

    @rule()
    def admit(self) -> None:
        self.world.admit()

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        self.world.scale(replicas)

    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.world.edit(lambda spec: spec.update(suspend=suspend))

    @rule(seconds=st.sampled_from([1, 15, 400]))
    def wait(self, seconds: int) -> None:
        self.world.now += seconds

    @precondition(lambda self: self.world.phase not in ENDED)
    @rule()
    def everybody_works(self) -> None:
        """Left alone, a job runs with all its members, or it waits because it was told to."""
        self.world.edit(lambda spec: spec.update(suspend=False))
        self.world.go(80)
        workers = self.world.job["spec"]["worker"]["replicas"]
        if self.world.phase in ENDED:
            return
        assert self.world.phase == "Running"
        ranks = [name for name in self.world.names() if "-worker-" in name]
        assert ranks == [f"demo-worker-{index}" for index in range(workers)]

    @invariant()
    def the_members_of_a_formation_know_the_same(self) -> None:
        told: dict[int, Obj] = {}
        for _, formation, found in getattr(self, "world", World({"worker": role(1)})).starts:
            assert told.setdefault(formation, found) == found

    @invariant()
    def what_ended_stays_ended(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.ended is not None:
            assert self.world.status == self.ended
            assert self.world.look().creates == []
        elif self.world.phase in ENDED:
            self.ended = self.world.status

    @invariant()
    def failures_never_exceed_what_is_allowed_by_more_than_one(self) -> None:
        if hasattr(self, "world"):
            assert self.world.status.get("failures", 0) <= self.world.job["spec"]["backoffLimit"] + 1

    def teardown(self) -> None:
        """Whatever happened, passes come to rest."""
        if hasattr(self, "world"):
            self.world.settle()


TestPaddleJobs = PaddleJobs.TestCase
TestPaddleJobs.settings = settings(max_examples=100, stateful_step_count=30)
