"""The documents of clusters, queues, flavours and pools: every fault at once, each with its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.errors import Invalid
from paddleflow.spec.cluster import NewCluster
from paddleflow.spec.document import Document, decode
from paddleflow.spec.fields import Amounts
from paddleflow.spec.flavour import NewFlavour
from paddleflow.spec.pool import NewPool, parse_labels
from paddleflow.spec.queue import NewQueue, QueueChange

QUEUE = {"name": "team-a", "namespace": "default", "maxResources": {"cpu": "4", "mem": "8Gi"}}


def refused(kind: type[Document], body: object) -> Invalid:
    with pytest.raises(Invalid) as caught:
        decode(kind, json.dumps(body).encode())
    return caught.value


def places(error: Invalid) -> set[str]:
    return {fault.where for fault in error.details}


def test_keys_match_without_regard_to_case_and_null_means_not_given() -> None:
    body = {**QUEUE, "CLUSTERNAME": "c1", "schedulingPolicy": None, "MaxResources": {"CPU": 4, "MEMORY": "8Gi"}}
    body.pop("maxResources")
    queue = decode(NewQueue, json.dumps(body).encode())
    assert queue.cluster_name == "c1"
    assert queue.max_resources.resources() == Resources.of(4000, 8 * 2**30)
    assert queue.scheduling_policy == []


def test_every_fault_of_a_queue_comes_at_once() -> None:
    error = refused(
        NewQueue,
        {
            "name": "Team_A",
            "namespace": "x" * 64,
            "quotaType": "elastic",
            "maxResources": {"cpu": "1.5.2", "mem": "-1Gi", "scalarResources": {"nvidia.com/gpu": "many", "cpu": 1}},
            "minResources": 3,
            "location": {"a b": "c"},
            "schedulingPolicy": ["priorty"],
            "maxResource": {},
        },
    )
    assert error.code == "QueueInvalidField"
    assert places(error) == {
        *("name", "namespace", "quotaType", "maxResources.cpu", "maxResources.mem", "maxResources.scalarResources"),
        *("minResources", "location", "schedulingPolicy", "maxResource"),
    }
    by_place = {fault.where: fault for fault in error.details}
    assert by_place["maxResource"].hint == "did you mean maxResources?"
    assert "did you mean priority?" in by_place["schedulingPolicy"].message
    assert "negative" in by_place["maxResources.mem"].message
    assert "cpu is not a scalar resource" in by_place["maxResources.scalarResources"].message


@pytest.mark.parametrize("quantity", ["1.5.2Gi", "-1", "1 Gi", "Gi", "1e999", "9" * 65, "NaN", "0x10", True, [], {}])
@pytest.mark.parametrize("field", ["cpu", "mem", "memory"])
def test_bad_quantities_are_refused(field: str, quantity: object) -> None:
    error = refused(NewFlavour, {"name": "f", "cpu": "1", "mem": "1Gi", field: quantity})
    assert error.code == "FlavourInvalidField"
    assert places(error) == {field}


@pytest.mark.parametrize(
    ("kind", "body", "where"),
    [
        (NewQueue, {**QUEUE, "name": "a" * 64}, "name"),
        (NewQueue, {**QUEUE, "name": "-a"}, "name"),
        (NewQueue, {**QUEUE, "name": ""}, "name"),
        (NewQueue, {**QUEUE, "name": 7}, "name"),
        (NewQueue, {"namespace": "n", "maxResources": {}}, "name"),
        (NewQueue, {**QUEUE, "location": ["a"]}, "location"),
        (QueueChange, {"status": "closing"}, "status"),
        (QueueChange, {"schedulingPolicy": ["fair-"]}, "schedulingPolicy"),
        (NewFlavour, {"name": "a/b", "cpu": 1, "mem": 1}, "name"),
        (NewCluster, {"clusterName": "-c", "clusterType": "K3S"}, "clusterName"),
        (NewCluster, {"clusterName": "c1", "clusterType": "kubernetes"}, "clusterType"),
        (NewCluster, {"clusterName": "c1"}, "clusterType"),
        (NewCluster, {"clusterName": "c1", "clusterType": "K3S", "status": "up"}, "status"),
        (NewCluster, {"clusterName": "c1", "clusterType": "K3S", "namespaceList": ["a", "B"]}, "namespaceList[1]"),
        (NewPool, {"name": "p", "namespace": "n", "type": "x" * 33}, "type"),
        (NewPool, {"name": "p", "namespace": "n", "isHybrid": "maybe"}, "isHybrid"),
        (NewPool, {"name": "p", "namespace": "n", "labels": {"a": "b c"}}, "labels"),
    ],
)
def test_each_bad_field_is_named(kind: type[Document], body: object, where: str) -> None:
    assert places(refused(kind, body)) == {where}


def test_a_pool_takes_hybrid_as_number_or_word() -> None:
    for given_as, meant in ((0, False), (1, True), (True, True), (False, False)):
        assert (
            decode(NewPool, json.dumps({"name": "p", "namespace": "n", "isHybrid": given_as}).encode()).is_hybrid
            is meant
        )


def test_amounts_over_old_ones() -> None:
    old = Resources.of(1000, 2**30, {"a": 1000, "b": 2000})
    assert Amounts().over(old) == old
    assert Amounts(cpu="2").over(old) == Resources.of(2000, 2**30, {"a": 1000, "b": 2000})
    assert Amounts(scalar_resources={"a": "", "c": "3"}).over(old) == Resources.of(1000, 2**30, {"b": 2000, "c": 3000})
    assert Amounts(scalar_resources={}).over(old) == Resources.of(1000, 2**30)
    assert Amounts(mem="1Gi", memory="1024Mi").disagree() == ""
    assert "differ" in Amounts(mem="1Gi", memory="2Gi").disagree()


amount = st.integers(min_value=0, max_value=2**40)
resources = st.builds(
    Resources.of, amount, amount, st.dictionaries(st.sampled_from(["nvidia.com/gpu", "a/b", "c"]), amount, max_size=3)
)


@given(resources, resources)
def test_what_is_written_out_reads_back(value: Resources, old: Resources) -> None:
    written = Amounts(
        cpu=value.text("cpu"),
        memory=value.text("memory"),
        scalar_resources={name: value.text(name) for name, _ in value.scalars},
    )
    assert written.resources() == value
    merged = written.over(old)
    assert (merged.cpu, merged.memory) == (value.cpu, value.memory)
    assert all(merged.scalar(name) == amount for name, amount in value.scalars)


def test_labels_of_a_query() -> None:
    assert parse_labels("") == {}
    assert parse_labels("a=b, c=d=e") == {"a": "b", "c": "d=e"}
    assert parse_labels('{"a": "b", "n": 1}') == {"a": "b", "n": "1"}
    for bad in ("a", "=b", "{", '{"a"}'):
        with pytest.raises(Invalid):
            parse_labels(bad)
