"""Jobs as rows: what is written is what is read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.frameworks.catalogue import FRAMEWORKS
from paddleflow.frameworks.framework import Completion
from paddleflow.jobs.machine import JobState, TaskState
from paddleflow.jobs.model import JobStatus, Member, MountedStorage, TaskStatus
from paddleflow.jobs.rows import (
    allocation_of,
    delete_at,
    job_row,
    lifecycle_of,
    member_sets_of,
    members_of,
    request_of,
    state_of,
)
from paddleflow.jobs.views import job_view
from paddleflow.scheduling.model import Assignment, MemberSet
from paddleflow.settings import JobSettings
from paddleflow.spec.job import PRIORITIES
from tests.job_tables import EACH, JOB, WORKER, row_of, task_row

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
AMOUNTS = st.builds(
    Resources.of,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.dictionaries(TEXT.filter(bool), st.integers(1, 2**40), max_size=2),
)
STORAGES = st.builds(MountedStorage, TEXT, TEXT, TEXT, TEXT, TEXT, st.booleans())
MEMBERS = st.builds(
    Member,
    role=st.sampled_from(["worker", "pserver"]),
    replicas=st.integers(1, 10_000),
    argv=st.lists(TEXT, max_size=3).map(tuple),
    env=st.dictionaries(TEXT, TEXT, max_size=2),
    request=AMOUNTS,
    limit=st.none() | AMOUNTS,
    storages=st.lists(STORAGES, max_size=2).map(tuple),
    document=st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=2),
)


@given(st.lists(MEMBERS, min_size=1, max_size=3).map(tuple))
def test_members_come_back_as_they_were(members: tuple[Member, ...]) -> None:
    row = job_row(replace(JOB, members=members), 1.0)
    assert members_of(str(row["members"])) == members
    assert member_sets_of(str(row["member_sets"])) == tuple(MemberSet(m.role, m.replicas, m.request) for m in members)


def test_the_scheduler_s_view_of_a_row() -> None:
    request = request_of(row_of(JOB))
    assert (request.job, request.queue, request.user, request.seq) == ("job-1", "q", "alice", 7)
    assert (request.submitted_at, request.priority) == (10.0, PRIORITIES["HIGH"])
    assert request.member_sets == (MemberSet("worker", 1, EACH),)
    assert request.member_sets is request_of(row_of(JOB)).member_sets, "equal jobs share what the scheduler compares"
    held = allocation_of(row_of(JOB, placed_at=12.0), [task_row()])
    assert held.assignments == (Assignment("worker", 0, "n1", (("nvidia.com/gpu", (0, 2)),)),)
    assert (held.since, allocation_of(row_of(JOB), []).since) == (12.0, 10.0)


def test_texts_are_kept_as_they_are() -> None:
    job = replace(JOB, template={"kind": "Pod", "名": [1, None]})
    row = row_of(job)
    assert json.loads(row.labels) == {"k": "ü"}
    assert json.loads(row.template or "") == job.template
    assert row.ttl == 5.0
    assert (row.cpu, row.memory, json.loads(row.scalars)) == (1000, 2**30, {"nvidia.com/gpu": 1000})
    view = job_view(row, [])
    assert (view["labels"], view["extensionTemplate"]) == ({"k": "ü"}, job.template)


@pytest.mark.parametrize("status", list(JobStatus))
@pytest.mark.parametrize("outcome", [None, JobStatus.FAILED])
def test_states_come_back_as_they_were(status: JobStatus, outcome: JobStatus | None) -> None:
    shape = lifecycle_of("standalone", [WORKER], JobSettings(restart_limit=3))
    row = row_of(
        JOB, status=str(status), message="m", outcome=outcome, placed=1, attempt=2, not_before=3.0, started_at=11.0
    )
    tasks = [task_row(attempt=1), task_row(attempt=2, status="failed", exit_code=3, message="x", finished_at=12.0)]
    assert state_of(row, tasks, shape) == JobState(
        "job-1", shape, status, "m",
        tasks=(TaskState("worker", 0, TaskStatus.FAILED, True, 3, "x", 11.0, 12.0),),
        attempt=2, outcome=outcome, started_at=11.0, not_before=3.0,
    )  # fmt: skip


def test_members_of_an_attempt_that_failed_do_not_count_while_the_job_waits() -> None:
    state = state_of(
        row_of(JOB, attempt=1, placed=0),
        [task_row(attempt=1)],
        lifecycle_of("standalone", [WORKER], JobSettings(restart_limit=0)),
    )
    assert state.tasks == ()
    assert not state.placed


@pytest.mark.parametrize(
    ("policy", "restarts"), [("Always", 4), ("OnFailure", 4), ("Never", 0), ("", 0), ("always", 0), ("sometimes", 0)]
)
def test_restart_policies(policy: str, restarts: int) -> None:
    member = replace(WORKER, env={"PF_JOB_RESTART_POLICY": policy})
    assert lifecycle_of("standalone", [WORKER, member], JobSettings(restart_limit=4)).restarts == restarts


def test_the_roles_that_are_there_say_whose_end_is_the_job_s() -> None:
    def completing(framework: str, *roles: str) -> frozenset[str]:
        return lifecycle_of(
            framework, [replace(WORKER, role=role) for role in roles], JobSettings(restart_limit=0)
        ).completing

    assert completing("tensorflow", "pserver", "master", "worker") == {"master"}
    assert completing("tensorflow", "pserver", "worker") == {"worker"}
    assert completing("paddle", "pserver", "worker") == {"worker"}
    for name, framework in FRAMEWORKS.items():
        shape = lifecycle_of(
            name, [replace(WORKER, role=role.name) for role in framework.roles], JobSettings(restart_limit=0)
        )
        assert shape.stages == framework.stages
        assert shape.completion in Completion


@pytest.mark.parametrize(
    ("status", "finished", "ttl", "expected"),
    [
        (JobStatus.SUCCEEDED, 100.0, None, 160.0),
        (JobStatus.FAILED, 100.0, None, None),
        (JobStatus.TERMINATED, 100.0, 5.0, 105.0),
        (JobStatus.SUCCEEDED, 100.0, 0.0, 100.0),
        (JobStatus.RUNNING, None, 5.0, None),
    ],
)
def test_when_a_job_is_deleted_by_itself(
    status: JobStatus, finished: float | None, ttl: float | None, expected: float | None
) -> None:
    assert delete_at(status, finished, ttl, JobSettings(ttl_succeeded=60, ttl_failed=0)) == expected
