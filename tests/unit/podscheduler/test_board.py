"""Gangs, queues, preemption and what others placed: pods and groups in, bindings, reasons and evictions out."""

from __future__ import annotations

from typing import Any

from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.changeset import PodChangeset
from paddleflow.podscheduler.groups import read_group, read_queue
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.podscheduler.statuses import EVERYTHING, Statuses, group_status
from paddleflow.podscheduler.volumes import SELECTED_NODE, Preparation, read_claim, read_class, read_volume
from paddleflow.scheduling.rules import Rules

NOW = 1_800_000_000.0
GROUP = "scheduling.k8s.io/group-name"


class Scene:
    """A board with a few nodes of four cores."""

    def __init__(self, nodes: int = 2, **rules: Any) -> None:
        self.board = Board(Rules(**rules))
        self.reader = PodReader()
        self.now = NOW
        self.bound: dict[str, str] = {}
        for number in range(nodes):
            self.node(f"n{number}")

    def node(self, name: str, cpu: str = "4", **labels: str) -> None:
        room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        found = {"kubernetes.io/hostname": name, **labels}
        self.board.put_node(
            name, read_node({"metadata": {"name": name, "labels": found}, "status": {"allocatable": room}})
        )

    def pod(
        self, name: str, cpu: str = "1", *, group: str = "", node: str = "", ours: bool = True, **more: Any
    ) -> None:
        annotations = {GROUP: group} if group else {}
        annotations |= more.pop("annotations", {})
        spec = {
            "schedulerName": "paddleflow" if ours else "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "nodeName": node,
            **more,
        }
        metadata = {"name": name, "namespace": "d", "uid": f"uid-{name}", "annotations": annotations}
        self.board.put_pod(f"d/{name}", self.reader.read({"metadata": metadata, "spec": spec, "status": {}}))

    def group(self, name: str, least: int, queue: str = "", phase: str = "") -> None:
        obj = {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"minMember": least, "queue": queue}, "status": {"phase": phase}}  # fmt: skip
        self.board.put_group(f"d/{name}", read_group(obj))

    def queue(self, name: str, status: dict[str, Any] | None = None, **spec: Any) -> None:
        self.board.put_queue(name, read_queue({"metadata": {"name": name}, "spec": spec, "status": status or {}}))

    def decide(self) -> PodChangeset:
        self.now += 1
        changes = self.board.decide(self.now)
        self.bound |= {pod.name: node for pod, node in changes.binds}
        return changes

    def gone(self, name: str) -> None:
        self.board.put_pod(f"d/{name}", None)


def reasons(changes: PodChangeset) -> dict[str, str]:
    return {pod.name: why for pod, why in changes.waits}


def test_a_gang_starts_whole_or_not_at_all() -> None:
    scene = Scene(nodes=1)
    scene.group("g", 5)
    for number in range(4):
        scene.pod(f"g-{number}", group="g")
    changes = scene.decide()
    assert changes.binds == []
    assert reasons(changes)["g-0"] == "PodGroup d/g starts with 5 pods, 4 are there"
    scene.pod("g-4", group="g")
    changes = scene.decide()
    assert changes.binds == []
    assert reasons(changes)["g-4"].startswith("5 pods start together.")
    scene.node("n1")
    assert len(scene.decide().binds) == 5


def test_pods_beyond_the_gang_start_one_by_one_when_it_has_started() -> None:
    scene = Scene(nodes=1)
    scene.group("g", 2)
    for number in range(5):
        scene.pod(f"g-{number}", group="g")
    assert sorted(pod.name for pod, _ in scene.decide().binds) == ["g-0", "g-1"]
    assert sorted(pod.name for pod, _ in scene.decide().binds) == ["g-2", "g-3"]


def test_members_of_a_gang_may_need_different_nodes() -> None:
    scene = Scene(nodes=0)
    scene.node("gpu", kind="gpu")
    scene.node("cpu", kind="cpu")
    scene.group("g", 3)
    scene.pod("server", group="g", nodeSelector={"kind": "cpu"})
    scene.pod("worker-0", group="g", cpu="2", nodeSelector={"kind": "gpu"})
    scene.pod("worker-1", group="g", cpu="2", nodeSelector={"kind": "gpu"})
    scene.decide()
    assert scene.bound == {"server": "cpu", "worker-0": "gpu", "worker-1": "gpu"}


def test_members_that_keep_away_from_each_other_leave_nothing_behind_when_they_do_not_fit() -> None:
    scene = Scene(nodes=2)
    away = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    scene.group("g", 3)
    for number in range(3):
        scene.pod(f"g-{number}", group="g", affinity=affinity)
    assert scene.decide().binds == []
    scene.pod("alone", cpu="4")
    assert [pod.name for pod, _ in scene.decide().binds] == ["alone"]


def test_a_queue_never_exceeds_its_capability_and_says_so() -> None:
    scene = Scene()
    scene.queue("small", capability={"cpu": "2"})
    for name in "abc":
        scene.pod(name, annotations={"scheduling.volcano.sh/queue-name": "small"})
    changes = scene.decide()
    assert len(changes.binds) == 2
    assert reasons(changes)["c"].startswith("queue small has cpu 0 of 2 free, the job needs 1")
    found = Statuses(scene.board).wrong_queues()["small"]
    assert found["allocated"] == {"cpu": "2", "memory": "0", "pods": "2"}
    scene.gone("a")
    assert [pod.name for pod, _ in scene.decide().binds] == ["c"]


def test_unknown_and_closed_queues_hold_their_pods() -> None:
    scene = Scene()
    scene.queue("shut", {"state": "Closed"})
    scene.pod("a", annotations={"scheduling.volcano.sh/queue-name": "shut"})
    scene.pod("b", annotations={"scheduling.volcano.sh/queue-name": "nowhere"})
    assert reasons(scene.decide()) == {"a": "queue shut is closed", "b": "there is no queue nowhere"}


def test_what_others_placed_is_counted_and_never_evicted() -> None:
    scene = Scene(nodes=1, preemption=True, least_run=0.0)
    scene.queue("mine", deserved={"cpu": "4"})
    scene.pod("theirs", cpu="3", node="n0", ours=False)
    scene.pod("ours", cpu="2", annotations={"scheduling.volcano.sh/queue-name": "mine"}, priority=100)
    changes = scene.decide()
    assert (changes.binds, changes.evictions) == ([], [])
    assert "1 Insufficient cpu" in reasons(changes)["ours"]
    scene.gone("theirs")
    scene.decide()
    assert scene.bound == {"ours": "n0"}


def test_a_higher_priority_evicts_a_whole_gang() -> None:
    scene = Scene(nodes=1, preemption=True, least_run=0.0)
    scene.group("g", 3)
    for number in range(3):
        scene.pod(f"g-{number}", group="g")
    scene.decide()
    scene.pod("urgent", cpu="3", priority=100)
    assert sorted(pod.name for pod, _ in scene.decide().evictions) == ["g-0", "g-1", "g-2"]
    for number in range(3):
        scene.gone(f"g-{number}")
    scene.decide()
    assert scene.bound["urgent"] == "n0"


def test_a_pod_that_must_not_preempt_waits() -> None:
    scene = Scene(nodes=1, preemption=True, least_run=0.0)
    scene.pod("low", cpu="4")
    scene.decide()
    scene.pod("polite", cpu="3", priority=100, preemptionPolicy="Never")
    assert scene.decide().evictions == []


def test_a_restart_finishes_a_gang_that_was_bound_in_part() -> None:
    scene = Scene(nodes=2)
    scene.group("g", 4)
    scene.pod("g-0", group="g", node="n0", cpu="2")
    for number in (1, 2, 3):
        scene.pod(f"g-{number}", group="g", cpu="2")
    assert len(scene.decide().binds) == 3
    assert group_status(scene.board, scene.board.groups["d/g"], "now") is not None


def test_statuses_are_looked_at_when_something_changed_and_all_of_them_now_and_then() -> None:
    scene = Scene(nodes=2)
    statuses = Statuses(scene.board)
    for name in ("g", "h"):
        scene.group(name, 2)
        scene.pod(f"{name}-0", group=name)
    scene.decide()
    assert [key for key, _ in statuses.wrong_groups(0.0, "now")] == ["d/g", "d/h"]
    assert statuses.wrong_groups(1.0, "now") == []
    scene.pod("g-1", group="g")
    scene.decide()
    scene.decide()
    ((key, status),) = statuses.wrong_groups(2.0, "now")
    assert (key, status["phase"], status["running"]) == ("d/g", "Running", 2)
    assert [key for key, _ in statuses.wrong_groups(EVERYTHING, "now")] == ["d/g", "d/h"]  # nobody has written them


def test_a_binding_that_was_refused_gives_its_place_back() -> None:
    scene = Scene(nodes=1)
    scene.pod("a", cpu="4")
    ((pod, _),) = scene.decide().binds
    scene.board.failed(pod)
    scene.pod("b", cpu="4")
    assert [each.name for each, _ in scene.decide().binds] == ["b"]
    scene.board.retry(pod)
    assert "a" in reasons(scene.decide())


def test_a_pod_that_is_bound_elsewhere_is_counted_there() -> None:
    scene = Scene(nodes=2)
    scene.pod("a", cpu="4")
    ((_, node),) = scene.decide().binds
    other = "n1" if node == "n0" else "n0"
    scene.pod("a", cpu="4", node=other)
    scene.pod("b", cpu="4")
    scene.decide()
    assert scene.bound["b"] == node


def test_volumes_decide_the_node() -> None:
    scene = Scene(nodes=0)
    scene.node("n0", zone="a")
    scene.node("n1", zone="b")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    scene.pod("a", volumes=volumes)
    assert reasons(scene.decide()) == {"a": 'persistentvolumeclaim "data" not found'}
    claim = {"metadata": {"name": "data"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    expression = {"key": "zone", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": required}}}
    scene.board.put_volume("pv", read_volume(volume))
    scene.board.put_claim("d/data", read_claim(claim))
    scene.decide()
    assert scene.bound == {"a": "n1"}


def test_gated_pods_are_left_alone_until_their_gates_are_gone() -> None:
    scene = Scene()
    scene.pod("a", schedulingGates=[{"name": "x"}])
    assert scene.decide().binds == []
    scene.pod("a")
    assert len(scene.decide().binds) == 1


def test_a_namespace_that_gets_a_label_starts_who_waited_for_it() -> None:
    scene = Scene()
    scene.board.put_namespace("d", {})
    scene.pod("other", node="n1", ours=False)
    near = {
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    scene.pod("a", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}})
    assert scene.decide().binds == []
    scene.board.put_namespace("d", {"team": "x"})
    scene.decide()
    assert scene.bound == {"a": "n1"}


def test_a_gang_goes_into_the_narrowest_domain_that_has_room() -> None:
    scene = Scene(nodes=0)
    for number, (rack, zone) in enumerate([("r0", "z0"), ("r1", "z0"), ("r2", "z1"), ("r2", "z1"), ("r3", "z1")]):
        scene.node(f"n{number}", cpu="2", rack=rack, zone=zone)
    annotations = {"paddleflow.org/together": "rack, zone"}
    for name, count in (("small", 4), ("large", 3)):
        obj = {
            "metadata": {"name": name, "namespace": "d", "uid": name, "annotations": annotations},
            "spec": {"minMember": count},
        }
        scene.board.put_group(f"d/{name}", read_group(obj))
        for index in range(count):
            scene.pod(f"{name}-{index}", group=name)
        scene.decide()
    assert {scene.bound[f"small-{index}"] for index in range(4)} == {"n2", "n3"}, "one rack has room for all four"
    assert {scene.bound[f"large-{index}"] for index in range(3)} == {"n0", "n1"}, "no rack has, but a zone"


class Shelf:
    """Claims, volumes and classes of a scene."""

    def __init__(self, scene: Scene, **storage_class: Any) -> None:
        self.board = scene.board
        found = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "x", **storage_class}
        self.board.put_class("late", read_class(found))

    def claim(self, name: str, size: str = "1Gi", volume: str = "", node: str = "") -> list[dict[str, Any]]:
        """A claim of the class; what a pod says to use it."""
        spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": volume}  # fmt: skip
        metadata = {"name": name, "uid": f"uid-{name}", "annotations": {SELECTED_NODE: node} if node else {}}
        obj = {"metadata": metadata, "spec": spec, "status": {"phase": "Bound" if volume else "Pending"}}
        self.board.put_claim(f"d/{name}", read_claim(obj))
        return [{"name": name, "persistentVolumeClaim": {"claimName": name}}]

    def volume(self, name: str, node: str, size: str = "1Gi") -> None:
        named = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [named]}]}},
        }
        obj = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
        self.board.put_volume(name, read_volume(obj))


def test_a_claim_that_waits_for_its_consumer_gets_the_smallest_volume_that_fits() -> None:
    scene = Scene(nodes=3)
    shelf = Shelf(scene, provisioner="kubernetes.io/no-provisioner")
    scene.pod("a", volumes=shelf.claim("data", size="2Gi"))
    assert "finds no free volume of storage class late" in reasons(scene.decide())["a"]
    for name, size in (("small", "1Gi"), ("large", "9Gi"), ("middle", "3Gi")):
        shelf.volume(name, "n2", size)
    ((pod, node, wanted),) = scene.decide().prepared
    assert (pod.name, node, wanted) == ("a", "n2", [Preparation("d/data", "uid-data", "middle")])
    scene.pod("b", volumes=shelf.claim("more", size="2Gi"))
    ((_, node, wanted),) = scene.decide().prepared
    assert (node, wanted[0].volume) == ("n2", "large"), "what is on its way to one claim is not given to another"


def test_two_claims_do_not_get_one_volume() -> None:
    scene = Scene(nodes=2)
    shelf = Shelf(scene, provisioner="kubernetes.io/no-provisioner")
    shelf.volume("only", "n1")
    for name in "ab":
        scene.pod(name, volumes=shelf.claim(f"claim-{name}"))
    changes = scene.decide()
    assert [pod.name for pod, _, _ in changes.prepared] == ["a"]
    assert [pod.name for pod in changes.refused] == ["b"]
    scene.board.failed(changes.refused[0])
    scene.board.retry(changes.refused[0])
    assert "finds no free volume" in reasons(scene.decide())["b"]
    scene.gone("a")
    ((pod, node, _),) = scene.decide().prepared
    assert (pod.name, node) == ("b", "n1"), "what was given to a pod that is gone is free again"


def test_a_volume_is_made_where_the_class_allows_it_or_where_it_was_begun() -> None:
    scene = Scene(nodes=1)
    scene.node("far", zone="far")
    shelf = Shelf(scene, allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["far"]}]}])
    scene.pod("a", volumes=shelf.claim("data"))
    ((_, node, wanted),) = scene.decide().prepared
    assert (node, wanted[0].volume) == ("far", "")
    scene.node("n5", zone="far")
    scene.pod("b", volumes=shelf.claim("begun", node="n5"))
    ((_, node, _),) = scene.decide().prepared
    assert node == "n5"


def test_pods_that_share_a_claim_go_where_it_is_being_made() -> None:
    scene = Scene(nodes=2, patience=float("inf"))
    volumes = Shelf(scene).claim("data")
    scene.pod("a", cpu="3", volumes=volumes)
    ((_, first, _),) = scene.decide().prepared
    scene.pod("b", cpu="2", volumes=volumes)
    assert scene.decide().prepared == [], "the node where it is being made has no room"
    scene.pod("c", cpu="1", volumes=volumes)
    ((_, node, _),) = scene.decide().prepared
    assert node == first
