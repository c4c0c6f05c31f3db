"""Records are built from whatever the server sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.jobs import model
from paddleflow.sdk import jobs
from paddleflow.sdk.access import User, WhoAmI
from paddleflow.sdk.clusters import Cluster, ClusterResources, NodeInfo
from paddleflow.sdk.follow import Event
from paddleflow.sdk.jobs import JobRecord, Task
from paddleflow.sdk.logs import JobLog
from paddleflow.sdk.queues import Flavour, Queue
from paddleflow.sdk.records import Record
from paddleflow.sdk.statistics import JobDetail, QueueCards, UserCards
from paddleflow.sdk.storages import Storage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KINDS: list[type[Record]] = [
    User,
    WhoAmI,
    Cluster,
    ClusterResources,
    NodeInfo,
    Event,
    JobLog,
    Queue,
    Flavour,
    JobDetail,
    QueueCards,
    UserCards,
    Storage,
]
KEYS = """
    id name status message clusterName maxResources location schedulingPolicy nodeList taskList logInfo result
    taskInfo runtime distributedRuntime runtimes members command args extraFS port index exitCode createTime
    cardTime totalCardTime detail jobCount
"""


def test_a_job_as_the_reference_has_it() -> None:
    found = JobRecord.of(
        {
            "id": "job-1",
            "name": "train",
            "UserName": "alice",
            "schedulingPolicy": {"queue": "team", "priority": "HIGH"},
            "command": ["python", "train.py"],
            "args": "--epochs 3",
            "extraFS": [{"name": "data"}],
            "members": [{"role": "worker", "replicas": 2, "command": "sleep 1", "new": 1}],
            "status": "running",
            "acceptTime": "2026-11-16 10:00:00",
            "distributedRuntime": {"runtimes": [{"role": "worker", "index": 1, "exitCode": 3, "nodeName": "n"}]},
            "unheardOf": {"x": 1},
        }
    )
    assert (found.queue, found.priority, found.user, found.status) == ("team", "HIGH", "alice", "running")
    assert (found.command, found.args, found.extra_fs) == (("python", "train.py"), "--epochs 3", ({"name": "data"},))
    assert [(one.role, one.replicas, one.command) for one in found.members] == [("worker", 2, "sleep 1")]
    assert [(one.label, one.exit_code, one.node) for one in found.tasks] == [("worker-1", 3, "n")]
    assert found.start_time == ""
    assert found.raw["unheardOf"] == {"x": 1}


def test_a_single_job_has_one_task() -> None:
    found = JobRecord.of({"id": "job-1", "runtime": {"role": "worker", "index": 0}})
    assert [task.label for task in found.tasks] == ["worker-0"]
    assert found.tasks[0].exit_code is None


def test_absent_keys_take_defaults_and_null_counts_as_absent() -> None:
    assert Queue.of({"name": "q", "location": None}) == Queue(name="q")
    assert Queue.of(None) == Queue()


def test_what_was_not_compared_does_not_make_records_differ() -> None:
    assert User.of({"name": "a", "extra": 1}) == User.of({"name": "a"})


@given(st.sampled_from(KINDS), JSON | st.dictionaries(st.sampled_from(KEYS.split()), JSON, max_size=6))
def test_no_answer_breaks_a_record(kind: type[Record], answer: object) -> None:
    kind.of(answer)


@given(JSON | st.dictionaries(st.sampled_from(KEYS.split()), JSON, max_size=6))
def test_no_answer_breaks_a_job(answer: object) -> None:
    JobRecord.of(answer)
    Task.of(answer)


def test_the_client_and_the_platform_agree_on_when_a_job_is_over() -> None:
    assert {status.value for status in model.FINAL} == jobs.FINAL


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        User(name="a").name = "b"  # type: ignore[misc]  # this is what is refused
