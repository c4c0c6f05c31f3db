"""A cluster in memory for the pure passes over a PaddleJob: objects, a kubelet that obeys the contract, and a clock.

It plays the parts that matter: a name is taken until its pod is gone, a container starts only when its ConfigMap is there, an
address is a new one for each pod. It refuses what an API server would refuse.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from paddleflow.operator.paddlejob.job import OperatorOptions, read, stamp
from paddleflow.operator.paddlejob.reconcile import reconcile
from paddleflow.operator.paddlejob.writes import Children, Event, Writes

Obj = dict[str, Any]


def role(replicas: int, **body: Any) -> Obj:
    return {
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "main", "image": "train:1"}], **body}},
    }


def job(spec: Obj, name: str = "demo") -> Obj:
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name, "namespace": "team", "uid": "job-uid", "generation": 1},
        "spec": {
            "intranet": "PodIP",
            "cleanPodPolicy": "OnCompletion",
            "withGloo": 0,
            "backoffLimit": 6,
            **copy.deepcopy(spec),
        },
    }


class SimulatedCluster:
    """One job and what belongs to it."""

    def __init__(self, spec: Obj, **options: Any) -> None:
        self.job = job(spec)
        self.options = OperatorOptions(**options)
        self.objects: dict[tuple[str, str], Obj] = {}
        self.now = 1_000_000.0
        self.events: list[Event] = []
        self.np: list[int] = []
        self.status_writes = 0
        self.deleted_job = False
        self.starts: list[tuple[str, int, dict[str, str]]] = []  #: name, formation, what the container was environment
        self.gang_reason = ""  #: what Volcano says in an event
        self._numbers = itertools.count(1)

    # ---- the operator ----------------------------------------------------------------------------------------------

    def children(self) -> Children:
        def of(kind: str) -> list[Obj]:
            return [obj for (found, _), obj in self.objects.items() if found == kind]

        groups = of("PodGroup")
        owned = [each for each in groups if each["metadata"].get("ownerReferences")]
        unowned = next((each for each in groups if each not in owned), None)
        return Children(of("Pod"), of("ConfigMap"), of("Service"), owned, unowned)

    def plan(self, refused: Event | None = None) -> Writes:
        return reconcile(
            read(self.job),
            self.children(),
            self.now,
            self.options,
            refused=refused,
            host_port=40000,
            gang_reason=self.gang_reason,
        )

    def step(self) -> Writes:
        """One pass, carried out."""
        writes = self.plan()
        if writes.status is not None:
            self.job["status"] = copy.deepcopy(writes.status)
            self.status_writes += 1
        if writes.np is not None:
            self.np.append(writes.np)
        for delete in writes.deletes:
            key = delete.obj["kind"], delete.obj["metadata"]["name"]
            assert self.objects[key]["metadata"]["uid"] == delete.obj["metadata"]["uid"], f"not ours: {key}"
            if key[0] == "Pod" and not delete.force:
                self.objects[key]["metadata"].setdefault("deletionTimestamp", self.text())
            else:
                del self.objects[key]
        for obj in writes.creates:
            key = obj["kind"], obj["metadata"]["name"]
            assert key not in self.objects, f"{key} is made twice"
            made = copy.deepcopy(dict(obj))
            made["metadata"]["uid"] = f"uid-{next(self._numbers)}"
            if key[0] == "Pod":
                made["status"] = {"phase": "Pending"}
            self.objects[key] = made
        for patch in writes.patches:
            _merge(self.objects[patch.obj["kind"], patch.obj["metadata"]["name"]], patch.body)
        if writes.finalizers is not None:
            self.job["metadata"]["finalizers"] = list(writes.finalizers)
        self.events.extend(writes.events)
        self.deleted_job |= bool(writes.expired)
        return writes

    def settle(self, most: int = 30) -> None:
        """Passes until nothing is left to write."""
        for _ in range(most):
            if self.step().quiet:
                return
        raise AssertionError(f"no rest after {most} passes: {self.plan()}")

    # ---- the kubelet -----------------------------------------------------------------------------------------------

    def pods(self) -> list[Obj]:
        return [obj for (kind, _), obj in sorted(self.objects.items()) if kind == "Pod"]

    def living(self) -> list[Obj]:
        return [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.living()]

    def pod(self, name: str) -> Obj:
        return self.objects["Pod", name]

    def place(self, pod: Obj) -> None:
        """Give it a node and an address."""
        if pod["status"].get("podIP") or pod["status"]["phase"] != "Pending":
            return
        pod["spec"]["nodeName"] = "node1"
        pod["status"]["podIP"] = f"10.0.0.{next(self._numbers)}"

    def run(self, pod: Obj) -> bool:
        """Start its container, if what it refers to is there."""
        status = pod["status"]
        if not status.get("podIP") or status["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
            return False
        environment: dict[str, str] = {}
        for source in pod["spec"]["containers"][0].get("envFrom", []):
            found = self.objects.get(("ConfigMap", source["configMapRef"]["name"]))
            if found is None:
                waiting = {"reason": "CreateContainerConfigError", "message": "configmap not found"}
                status["containerStatuses"] = [{"name": "main", "state": {"waiting": waiting}}]
                return False
            environment |= found["data"]
        status |= {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
        formation = int(pod["metadata"]["annotations"]["paddle-formation"])
        name, _, index = pod["metadata"]["name"].rpartition("-")
        if name.endswith("-worker") and environment and self.job["spec"]["intranet"] != "Service":
            own = environment["PADDLE_TRAINERS"].split(",")[int(index)]
            assert own.strip("[]") == status["podIP"], (
                f"{name}-{index} is at {status['podIP']}, its peers were environment {own}"
            )
        self.starts.append((pod["metadata"]["name"], formation, environment))
        return True

    def end(self, pod: Obj, code: int, reason: str = "", message: str = "") -> None:
        """End its container."""
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": self.text()}
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        state = {"terminated": {**ended, "message": message}}
        pod["status"]["containerStatuses"] = [{"name": "main", "state": state}]

    def evict(self, pod: Obj) -> None:
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}

    def gone(self) -> None:
        """Pods on their way out are gone."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                del self.objects["Pod", pod["metadata"]["name"]]

    def admit(self) -> None:
        """Volcano lets the gang in."""
        for (kind, _), obj in self.objects.items():
            if kind == "PodGroup":
                obj["status"] = {"phase": "Inqueue"}

    def go(self, rounds: int = 40) -> None:
        """Everybody does their work until nothing changes any more."""
        before: object = None
        for _ in range(rounds):
            writes = self.step()
            self.admit()
            self.gone()
            for pod in self.living():
                self.place(pod)
                self.run(pod)
            if writes.quiet and before == self.shape():
                if writes.again is None or self.phase in ("Running", "Completed", "Failed", "Suspended"):
                    return
                self.now += writes.again + 1
            else:
                before = self.shape() if writes.quiet else None
        raise AssertionError(f"still at work after {rounds} rounds: {self.plan()}")

    def finish(self) -> None:
        """Every worker succeeds."""
        for pod in self.living():
            if "-worker-" in pod["metadata"]["name"]:
                self.end(pod, 0)

    # ---- what can be asked -----------------------------------------------------------------------------------------

    def shape(self) -> object:
        return sorted((key, obj["metadata"]["uid"], str(obj.get("status"))) for key, obj in self.objects.items())

    def text(self) -> str:
        return stamp(self.now)

    @property
    def status(self) -> Obj:
        found: Obj = self.job.get("status", {})
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> Obj:
        return next((entry for entry in self.status.get("conditions", []) if entry["type"] == kind), {})

    def messages(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]

    def edit(self, change: Callable[[Obj], None]) -> None:
        change(self.job["spec"])
        self.job["metadata"]["generation"] += 1

    def scale(self, replicas: int) -> None:
        self.edit(lambda spec: spec["worker"].update(replicas=replicas))


def _merge(obj: Obj, body: Any) -> None:
    for key, value in body.items():
        if isinstance(value, dict) and isinstance(obj.get(key), dict):
            _merge(obj[key], value)
        else:
            obj[key] = copy.deepcopy(value)
