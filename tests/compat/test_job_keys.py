"""The keys of job answers that clients of the original index without asking: always there, empty if they were not given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddleflow.errors import Invalid
from paddleflow.jobs.model import Member
from paddleflow.jobs.views import job_view
from paddleflow.spec.document import decode
from paddleflow.spec.job import DistributedJob, SingleJob, WorkflowJob
from tests.job_tables import EACH, JOB, WORKER, row_of, task_row

#: what `show_job` and `list_job` of the original SDK read by index, with the JSON types that it expects
INDEXED: dict[str, type] = {
    "id": str, "name": str, "labels": dict, "annotations": dict, "schedulingPolicy": dict, "flavour": dict, "fs": dict,
    "extraFS": list, "image": str, "env": dict, "command": str, "args": list, "port": int, "extensionTemplate": dict,
    "status": str, "message": str, "acceptTime": str, "startTime": str, "finishTime": str,
}  # fmt: skip
OF_MEMBERS = ("flavour", "fs", "extraFS", "image", "env", "command", "args", "port", "extensionTemplate")
BARE = Member(
    "worker", 1, ("true",), {}, EACH, EACH, document={"role": "worker", "replicas": 1, "flavour": {"name": ""}}
)


@pytest.mark.parametrize("member", [WORKER, BARE])
@pytest.mark.parametrize("kind", ["single", "distributed"])
def test_every_key_is_there_with_its_type(kind: str, member: Member) -> None:
    view: Any = job_view(row_of(replace(JOB, kind=kind, members=(member,)), attempt=1), [task_row()])
    assert {key: type(view[key]) for key in INDEXED} == INDEXED
    assert set(view["schedulingPolicy"]) == {"queue", "priority"}
    for shown in view["members"]:
        assert {key: type(shown[key]) for key in OF_MEMBERS} == {key: INDEXED[key] for key in OF_MEMBERS}
    assert ("runtime" in view, "distributedRuntime" in view) == (kind == "single", kind == "distributed")


EMPTY = (
    b'{"command": "x", "fs": {}, "extraFS": [], "env": [], "labels": [], "annotations": [], "flavour": {},'
    b' "limitFlavour": {}, "extensionTemplate": {}, "schedulingPolicy": {}, "args": []}'
)


def test_empty_objects_and_lists_mean_not_given() -> None:
    assert decode(SingleJob, EMPTY) == decode(SingleJob, b'{"command": "x"}')
    members = b'{"framework": "paddle", "extensionTemplate": {}, "members": [{"role": "worker", "replicas": 2, %s]}'
    assert decode(DistributedJob, members % EMPTY[1:]) == decode(DistributedJob, members % b'"command": "x"}')


@pytest.mark.parametrize("template", [b"", b', "extensionTemplate": {}', b', "extensionTemplate": null'])
def test_a_workflow_without_a_template_says_so_beside_other_faults(template: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        decode(WorkflowJob, b'{"image": "x"%s}' % template)
    found = {fault.where: fault.message for fault in caught.value.details}
    assert found["extensionTemplate"] == "ExtensionTemplate for workflow job is needed, and now is empty"
    assert found["image"] == "is not a known field"
