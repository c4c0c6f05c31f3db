"""What the operator keeps of a pod says all that a pass reads, in little room."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.kube.cache import packed, unpacked
from paddleflow.operator import transforms
from paddleflow.operator.paddlejob.pods import FORMATION, JOB_LABEL, NOTIFIED, read_pod

terminated = st.fixed_dictionaries({"exitCode": st.integers(0, 255), "reason": st.sampled_from(["Error", "Completed"])})
states: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
    st.fixed_dictionaries({"waiting": st.fixed_dictionaries({"reason": st.sampled_from(["ErrImagePull", "Waiting"])})}),
    st.fixed_dictionaries({"terminated": terminated}),
)
containers = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["main", "side"]),
            "state": states,
            "restartCount": st.integers(0, 3),
            "image": st.just("x"),
        }
    ),
    max_size=2,
)
conditions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["PodScheduled", "DisruptionTarget", "Ready"]),
            "status": st.sampled_from(["True", "False"]),
            "reason": st.sampled_from(["", "Unschedulable"]),
            "lastTransitionTime": st.just("2026-01-01T00:00:00Z"),
        }
    ),
    max_size=3,
)
statuses = st.fixed_dictionaries(
    {"phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])},
    optional={
        "podIP": st.sampled_from(["10.0.0.1", "fd00::1"]),
        "reason": st.sampled_from(["Evicted", "NodeLost", "Error"]),
        "containerStatuses": containers,
        "initContainerStatuses": containers,
        "conditions": conditions,
        "hostIP": st.just("10.1.1.1"),
    },
)


def pod(status: dict[str, Any], **marks: str) -> dict[str, Any]:
    metadata = {
        "name": "job-1-worker-3",
        "namespace": "space",
        "uid": "00000000-0000-0000-0000-000000000000",
        "resourceVersion": "7",
        "labels": {JOB_LABEL: "job-1", "theirs": "x" * 60},
        "annotations": {FORMATION: "1", "theirs": "x" * 400, **marks},
        "managedFields": [{"manager": "x"}],
    }
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "x"}, {"name": "side", "image": "y"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@given(statuses, st.sampled_from([{}, {NOTIFIED: "2"}]), st.booleans())
def test_a_pod_that_was_kept_reads_as_the_pod_itself(
    status: dict[str, Any], marks: dict[str, str], going: bool
) -> None:
    whole = pod(status, **marks)
    if going:
        whole["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    kept = unpacked(packed(transforms.pod)(copy.deepcopy(whole)))
    before, after = read_pod(whole, "job-1"), read_pod(kept, "job-1")
    assert before is not None
    assert after is not None
    for each in (
        "name",
        "uid",
        "role",
        "index",
        "formation",
        "phase",
        "address",
        "scheduled",
        "deleting_until",
        "notified",
        "original",
    ):
        assert getattr(after, each) == getattr(before, each)
    for each in ("living", "over", "state", "waits_for", "restarts", "disrupted"):
        assert getattr(after, each) == getattr(before, each)


def test_a_running_pod_takes_half_a_kilobyte() -> None:
    ready = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready", "Initialized")]
    running = [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "image": "x"}]
    status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": running, "conditions": ready}
    kept = packed(transforms.pod)(pod(status))
    assert len(kept) < 512
    assert b"theirs" not in kept
