"""What documents make of clusters, queues, flavours and pools: pure rules."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.errors import Invalid
from paddleflow.queues import credentials, rules, tree
from paddleflow.queues.model import QUOTA_TYPE_KEY, Cluster, Queue, QueueStatus
from paddleflow.queues.tree import as_scheduled
from paddleflow.spec.cluster import ClusterChange, NewCluster
from paddleflow.spec.document import parse
from paddleflow.spec.flavour import FlavourChange, NewFlavour
from paddleflow.spec.pool import NewPool, PoolChange
from paddleflow.spec.queue import NewQueue, QueueChange

KUBECONFIG = "apiVersion: v1\nclusters:\n- name: c\ncontexts: []\nusers: []\n"
GI = 2**30


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def cluster(**fields: Any) -> Cluster:
    return rules.new_cluster(parse(NewCluster, {"clusterName": "c1", "clusterType": "K3S", **fields}), 1.0)


def queue(**fields: Any) -> Queue:
    document = {"name": "q1", "namespace": "ns", "clusterName": "c1", "maxResources": {"cpu": 8, "mem": "16Gi"}}
    return rules.new_queue(parse(NewQueue, {**document, **fields}), cluster(), ["c1"], 1.0)


def changed(old: Queue, **fields: Any) -> Queue:
    return rules.changed_queue(old, parse(QueueChange, fields), 2.0)


def test_a_queue_has_what_was_asked_for() -> None:
    made = queue(
        minResources={"cpu": "500m", "mem": "1Gi"},
        maxResources={"cpu": 8, "memory": "16Gi", "scalarResources": {"nvidia.com/gpu": 2}},
        location={"zone": "a", "gone": ""},
        schedulingPolicy=["priority", "priority"],
    )
    assert made.most == Resources.of(8000, 16 * GI, {"nvidia.com/gpu": 2000})
    assert made.least == Resources.of(500, GI)
    assert made.location == {"zone": "a"}
    assert made.policies == ("priority",)
    assert (made.status, made.quota_type, made.follows) == (QueueStatus.OPEN, "elasticQuota", False)
    assert made.id.startswith("queue-")


def test_all_faults_of_a_new_queue_at_once() -> None:
    document = {
        "name": "q1",
        "namespace": "other",
        "clusterName": "c1",
        "maxResources": {"cpu": 1, "mem": "1Gi", "memory": "2Gi"},
        "minResources": {"cpu": 2, "scalarResources": {"a": 1}},
        "location": {QUOTA_TYPE_KEY: "odd"},
    }
    within = cluster(namespaceList=["ns", "others"], status="offline")
    with pytest.raises(Invalid) as caught:
        rules.new_queue(parse(NewQueue, document), within, ["c1"], 1.0)
    faults = {fault.where: fault for fault in caught.value.details}
    assert set(faults) == {
        *(
            "clusterName",
            "namespace",
            "maxResources",
            "minResources.cpu",
            "minResources.a",
            f"location.{QUOTA_TYPE_KEY}",
        )
    }
    assert faults["minResources.cpu"].message == "2 is more than the 1 of maxResources"
    assert faults["namespace"].hint == "did you mean others?"
    assert caught.value.code == "QueueInvalidField"


def test_a_single_kind_of_fault_gives_its_own_code() -> None:
    document = parse(
        NewQueue, {"name": "q", "namespace": "n", "clusterName": "clustr-1", "maxResources": {"cpu": 1, "mem": 1}}
    )
    with pytest.raises(Invalid) as caught:
        rules.new_queue(document, None, ["cluster-1"], 1.0)
    assert caught.value.code == "ClusterNotFound"
    assert caught.value.hint == "did you mean cluster-1?"


def test_a_queue_needs_cpu_and_memory() -> None:
    with pytest.raises(Invalid) as caught:
        queue(maxResources={})
    assert [fault.where for fault in caught.value.details] == ["maxResources.cpu", "maxResources.mem"]


def test_a_change_merges() -> None:
    old = queue(location={"a": "1", "b": "2"}, schedulingPolicy=["priority"])
    new = changed(old, maxResources={"cpu": 4}, location={"a": "", "c": "3"}, schedulingPolicy=["priority-"])
    assert new.most == Resources.of(4000, 16 * GI)
    assert new.location == {"b": "2", "c": "3"}
    assert new.policies == ()
    assert (new.created_at, new.updated_at) == (1.0, 2.0)
    assert changed(old) == changed(old, maxResources={}, location={})


def test_min_may_not_pass_max_from_either_side() -> None:
    old = queue(minResources={"cpu": 4})
    for change in ({"maxResources": {"cpu": 3}}, {"minResources": {"cpu": 9}}):
        with pytest.raises(Invalid, match=r"minResources\.cpu"):
            changed(old, **change)
    assert changed(old, maxResources={"cpu": 3}, minResources={"cpu": 3}).least.cpu == 3000


def test_the_quota_type_stays() -> None:
    old = queue(location={QUOTA_TYPE_KEY: "logical"})
    assert changed(old, location={QUOTA_TYPE_KEY: "logical"}).location == old.location
    for other in ("physical", ""):
        with pytest.raises(Invalid, match="cannot be changed"):
            changed(old, location={QUOTA_TYPE_KEY: other})


def test_status_and_the_scheduler_s_view() -> None:
    open_queue = queue(location={"room": "b", QUOTA_TYPE_KEY: "logical"}, nodeSelector={"zone": "a"})
    closed = changed(open_queue, status="closed")
    assert closed.status is QueueStatus.CLOSED
    assert as_scheduled(open_queue, online=True).node_labels == (("zone", "a"),)
    assert as_scheduled(open_queue, online=True).open
    assert not as_scheduled(open_queue, online=False).open
    assert not as_scheduled(closed, online=True).open
    unlimited = queue(maxResources={"cpu": 0, "mem": 0}, quotaType="volcanoCapabilityQuota")
    assert as_scheduled(unlimited, online=True).ceiling is None
    assert as_scheduled(queue(maxResources={"cpu": 0, "mem": 0}), online=True).ceiling == Resources()


maps = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "1", "2"]), max_size=4)


@given(maps, maps)
def test_no_empty_value_is_kept(first: dict[str, str], second: dict[str, str]) -> None:
    after = changed(queue(location=first, nodeSelector=first), location=second, nodeSelector=second)
    assert all(after.location.values())
    assert after.node_selector == after.location
    assert all(after.location.get(key, "") == value for key, value in second.items())
    assert all(after.location.get(key, "") == value for key, value in first.items() if key not in second)


def test_flavours() -> None:
    made = rules.new_flavour(parse(NewFlavour, {"name": "f", "cpu": 2, "mem": "4Gi"}), None, [], 1.0)
    assert (made.each, made.cluster) == (Resources.of(2000, 4 * GI), "")
    new = rules.changed_flavour(
        made,
        parse(FlavourChange, {"scalarResources": {"nvidia.com/gpu": 1}, "clusterName": "c1"}),
        cluster(),
        ["c1"],
        2.0,
    )
    assert new.each == Resources.of(2000, 4 * GI, {"nvidia.com/gpu": 1000})
    assert new.cluster == "c1"
    with pytest.raises(Invalid) as caught:
        rules.new_flavour(parse(NewFlavour, {"name": "f", "cpu": "0", "clusterName": "nope"}), None, [], 1.0)
    assert [fault.where for fault in caught.value.details] == ["clusterName", "cpu", "mem"]
    with pytest.raises(Invalid, match="more than 0"):
        rules.changed_flavour(made, parse(FlavourChange, {"mem": "0"}), None, [], 2.0)


def test_pools() -> None:
    document = {"name": "p", "namespace": "n", "totalResources": {"cpu": 4, "mem": "4Gi"}, "minResources": {"cpu": 1}}
    made = rules.new_pool(parse(NewPool, document), cluster(), ["c1"], "root", 1.0)
    assert (made.creator, made.status, made.cluster) == ("root", "open", "default-cluster")
    new = rules.changed_pool(made, parse(PoolChange, {"status": "closed", "annotations": {"a": "b"}}), 2.0)
    assert (new.status, new.annotations, new.total) == ("closed", {"a": "b"}, made.total)
    with pytest.raises(Invalid, match=r"minResources\.cpu"):
        rules.changed_pool(made, parse(PoolChange, {"totalResources": {"cpu": "500m"}}), 2.0)
    with pytest.raises(Invalid, match="cannot be changed"):
        rules.changed_pool(made, parse(PoolChange, {"annotations": {QUOTA_TYPE_KEY: "logical"}}), 2.0)


def test_all_faults_of_a_cluster_at_once() -> None:
    document = {
        "clusterName": "resource",
        "clusterType": "Kubernetes",
        "credential": "!!",
        "setting": "{",
    }
    with pytest.raises(Invalid) as caught:
        rules.new_cluster(parse(NewCluster, document), 1.0)
    assert {fault.where for fault in caught.value.details} == {"clusterName", "version", "credential", "setting"}
    assert caught.value.code == "InvalidClusterProperties"


def test_only_the_default_cluster_is_local() -> None:
    with pytest.raises(Invalid, match="cannot be of type Local"):
        cluster(clusterType="Local")
    local = rules.new_cluster(parse(NewCluster, {"clusterName": "default-cluster", "clusterType": "Local"}), 1.0)
    with pytest.raises(Invalid, match="cannot be of type K3S"):
        rules.changed_cluster(local, parse(ClusterChange, {"clusterType": "K3S"}), 2.0, queues=0)
    offline = rules.changed_cluster(local, parse(ClusterChange, {"status": "offline"}), 2.0, queues=1)
    assert not offline.online


def test_a_cluster_with_queues_keeps_its_type() -> None:
    change = parse(ClusterChange, {"clusterType": "Kubernetes", "version": "1.29"})
    assert rules.changed_cluster(cluster(), change, 2.0, queues=0).cluster_type == "Kubernetes"
    with pytest.raises(Invalid, match="has 2 queues"):
        rules.changed_cluster(cluster(), change, 2.0, queues=2)


@pytest.mark.parametrize(
    "text", [KUBECONFIG, KUBECONFIG.replace("\n", "\r\n"), json.dumps({"clusters": [], "contexts": [], "users": []})]
)
def test_a_kubeconfig_is_taken(text: str) -> None:
    assert credentials.fault_of(encoded(text)) == ""
    wrapped = encoded(text)
    assert credentials.fault_of("\n".join(wrapped[n : n + 76] for n in range(0, len(wrapped), 76))) == ""


@pytest.mark.parametrize(
    "credential",
    [
        *("!!", "YQ=", encoded(" "), encoded("hello"), encoded("{"), encoded("\x01" + KUBECONFIG)),
        *(encoded("clusters: []\n"), base64.b64encode(b"\xff\xfe").decode()),
    ],
)
def test_anything_else_is_not_and_is_not_repeated(credential: str) -> None:
    fault = credentials.fault_of(credential)
    assert fault
    assert credential not in fault
    with pytest.raises(Invalid) as caught:
        cluster(credential=credential)
    assert caught.value.code == "InvalidClusterCredential"


@given(st.text(max_size=200))
def test_no_text_breaks_the_credential_check(text: str) -> None:
    credentials.fault_of(text)
    credentials.fault_of(encoded(text.encode("utf-8", "replace").decode()))


def test_use_is_summed_up_the_tree_and_a_circle_ends() -> None:
    queues = [replace(queue(), name=name, parent=parent) for name, parent in ("ab", "bc", "cb", "dx", "er")]
    one = Resources.of(1000)
    sums = tree.subtree_usage(queues, {"a": one, "c": one, "d": one, "gone": one})
    assert {name: amount.cpu for name, amount in sums.items()} == {"a": 1000, "b": 2000, "c": 2000, "d": 1000, "e": 0}


def test_other_clusters_are_there_are_others_and_are_of_one_kind() -> None:
    first, machine = cluster(), replace(cluster(), name="here", cluster_type="Local")
    document = {
        "name": "q1", "namespace": "ns", "clusterName": "c1", "parent": "p", "maxResources": {"cpu": 8, "mem": "16Gi"},
        "otherClusters": ["gone", "c1", "here"],
    }  # fmt: skip
    others = {"gone": None, "c1": first, "here": machine}
    with pytest.raises(Invalid) as caught:
        rules.new_queue(parse(NewQueue, document), first, ["c1"], 1.0, others=others)
    found = {fault.where: fault.message for fault in caught.value.details}
    assert found["otherClusters[0]"] == "cluster[gone] does not exist"
    assert found["otherClusters[1]"] == "cluster[c1] is the queue's clusterName already"
    assert found["otherClusters[2]"] == "cluster[here] is of type Local, cluster[c1] of type K3S"
    assert "several clusters stands under root" in "".join(
        fault.message for fault in caught.value.details if fault.where == "parent"
    )
    second = replace(first, name="c2")
    made = rules.new_queue(
        parse(NewQueue, {**document, "parent": "root", "otherClusters": ["c2"]}),
        first,
        ["c1"],
        1.0,
        others={"c2": second},
    )
    assert made.clusters == ("c1", "c2")
