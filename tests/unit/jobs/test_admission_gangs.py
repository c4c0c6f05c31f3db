"""Admission of distributed and workflow jobs, and of templates: Kubernetes objects read as documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.errors import Invalid, PaddleFlowError
from paddleflow.jobs.admission import SHELL, admit
from paddleflow.jobs.model import NewJob
from paddleflow.spec.document import Document, decode, parse
from paddleflow.spec.job import DistributedJob, JobBatch, SingleJob, WorkflowJob
from tests.admission_world import GPU, WORKERS, WORLD, faults, gang, one, single


def test_a_gang_of_two_roles() -> None:
    servers = {"role": "PServer", "replicas": 2, "command": "serve", "flavour": {"cpu": "500m", "mem": "64Mi"}}
    job = gang(servers, {"role": "pworker", "replicas": 3, "command": "work"}, framework="Paddle")
    assert (job.kind, job.framework) == ("distributed", "paddle")
    assert [(m.role, m.replicas) for m in job.members] == [("pserver", 2), ("worker", 3)]
    assert job.request == Resources.of(4000, 2 * 2**26 + 3 * 2**30)


@pytest.mark.parametrize(
    ("framework", "members", "where", "words"),
    [
        ("mpi", [{"role": "pserver", "command": "x"}], "members[0].role", "the role[pserver] for framework mpi is not supported"),
        ("paddle", [{"role": "worker", "replicas": 1, "command": "x"}], "members", "needs at least 2 worker"),
        ("paddle", [WORKERS, WORKERS], "members[1].role", "the role[worker] is listed twice"),
        ("paddle", [WORKERS, {"role": "pworker", "command": "x"}], "members[1].role", "the role[worker] is listed twice"),
        ("pytorch", [{"role": "worker", "replicas": 2}], "members[0].command", "nothing to run"),
        ("mpi", [{"role": "master"}, {"role": "worker"}], "members[0].command", "nothing to run"),
        ("mpi", [{"role": "worker", "command": "x"}], "members", "at least 1 master"),
        ("padle", [WORKERS], "framework", "framework[padle] is not supported"),
    ],
)  # fmt: skip
def test_bad_gangs(framework: str, members: list[dict[str, Any]], where: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        gang(*members, framework=framework)
    assert words in faults(caught)[where].message


def test_members_are_needed() -> None:
    with pytest.raises(Invalid, match=r"request\.Members is empty"):
        admit(parse(DistributedJob, {"framework": "paddle"}), WORLD)
    with pytest.raises(Invalid, match="framework"):
        parse(DistributedJob, {"members": [WORKERS]})


@pytest.mark.parametrize(
    ("replicas", "words"),
    [(0, "the repilcas of member is less than 1"), (-3, "the repilcas of member is less than 1"), (10**5, "10000")],
)
def test_replicas(replicas: int, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        gang({**WORKERS, "replicas": replicas})
    assert words in faults(caught)["members[0].replicas"].message


def test_slots_need_no_command() -> None:
    job = gang({"role": "master", "command": "mpirun x"}, {"role": "worker", "replicas": 2}, framework="mpi")
    assert [member.argv for member in job.members] == [(SHELL, "-c", "mpirun x"), ()]


def test_faults_of_members_and_framework_come_together() -> None:
    with pytest.raises(Invalid) as caught:
        gang({"role": "worker", "replicas": 1, "command": "x", "flavour": {"cpu": "x", "mem": "1Gi"}})
    assert {"members[0].flavour.cpu", "members"} <= set(faults(caught))


def test_a_workflow_needs_a_template_and_a_cluster_that_can_run_it() -> None:
    empty: tuple[dict[str, Any], ...] = ({}, {"extensionTemplate": {}})
    for document in empty:
        with pytest.raises(Invalid, match="ExtensionTemplate for workflow job is needed, and now is empty"):
            admit(parse(WorkflowJob, document), WORLD)
    with pytest.raises(Invalid, match="cannot run on a cluster of type Local"):
        admit(parse(WorkflowJob, {"extensionTemplate": {"kind": "Workflow"}}), WORLD)


# ---- templates -----------------------------------------------------------------------------------------------------

CONTAINER = {
    "name": "main",
    "image": "paddle:3.3",
    "command": ["python", "train.py"],
    "args": ["--epochs", 3],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": 2}, {"name": "S", "valueFrom": {"secretKeyRef": {}}}],
    "resources": {"requests": {"cpu": "500m", "memory": "64Mi", GPU: 1, "ephemeral-storage": "9Gi"}},
}


def pod(**changes: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{**CONTAINER, **changes}]}}


def replica(replicas: int = 1, **changes: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": pod(**changes)}


def from_template(framework: str, template: Any) -> NewJob:
    return admit(parse(DistributedJob, {"framework": framework, "extensionTemplate": template}), WORLD)


def test_a_pod_says_what_a_single_job_runs() -> None:
    template = {"kind": "Pod", **pod()}
    job = admit(parse(SingleJob, {"extensionTemplate": template}), WORLD)
    (member,) = job.members
    assert member.argv == ("python", "train.py", "--epochs", "3")
    assert member.env == {"A": "1", "B": "2"}
    assert member.request == member.limit == Resources.of(500, 2**26, {GPU: 1000})
    assert member.document["image"] == "paddle:3.3"
    assert job.template == template


def test_the_document_s_own_fields_win_over_the_pod_s() -> None:
    member = one(
        command="mine",
        args=["x"],
        image="mine:1",
        env={"A": "mine", "C": "3"},
        flavour={"cpu": "1", "mem": "1Mi"},
        extensionTemplate=pod(),
    )
    assert member.argv == (SHELL, "-c", "mine x")
    assert member.env == {"A": "mine", "B": "2", "C": "3"}
    assert member.request == Resources.of(1000, 2**20)
    assert member.document["image"] == "mine:1"


def test_limits_of_a_pod() -> None:
    both = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", GPU: "1"}}
    member = one(extensionTemplate=pod(resources=both))
    assert (member.request, member.limit) == (Resources.of(1000, 2**30), Resources.of(2000, 2**30, {GPU: 1000}))
    alone = one(extensionTemplate=pod(resources={"limits": {"cpu": "2"}}))
    assert alone.request == alone.limit == Resources.of(2000, 2**30)
    assert one(extensionTemplate=pod(resources=None)).request == Resources.of(1000, 2**30)


@pytest.mark.parametrize(
    ("framework", "kind", "spec", "expected"),
    [
        ("paddle", "PaddleJob", {"ps": replica(), "worker": replica(2), "withGloo": 1, "elastic": {}}, {"pserver": 1, "worker": 2}),
        ("paddle", "PaddleJob", {"paddleReplicaSpecs": {"Worker": replica(2)}}, {"worker": 2}),
        ("pytorch", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": replica(), "Worker": replica(3)}}, {"master": 1, "worker": 3}),
        ("tensorflow", "TFJob", {"tfReplicaSpecs": {"PS": replica(), "Chief": replica(), "Worker": replica()}}, {"pserver": 1, "master": 1, "worker": 1}),
        ("mpi", "MPIJob", {"mpiReplicaSpecs": {"Launcher": replica(), "Worker": replica(2)}}, {"master": 1, "worker": 2}),
    ],
)  # fmt: skip
def test_framework_objects_say_who_the_members_are(
    framework: str, kind: str, spec: Any, expected: dict[str, int]
) -> None:
    small = {"requests": {"cpu": "100m", "memory": "1Mi"}}
    for part in spec.values():
        for item in [part, *part.values()] if isinstance(part, dict) else []:
            if isinstance(item, dict) and "template" in item:
                item["template"] = pod(resources=small)
    job = from_template(framework, {"kind": kind, "spec": spec})
    assert {member.role: member.replicas for member in job.members} == expected
    assert all(member.argv[0] == "python" for member in job.members)


def test_named_members_win_over_a_template() -> None:
    assert [member.role for member in gang(extensionTemplate={"kind": "Nonsense"}).members] == ["worker"]


def test_pod_level_resources_count_instead_of_the_container_s() -> None:
    def sized(whole: Any, **own: Any) -> Resources:
        template = pod(resources=own)
        template["spec"]["resources"] = whole
        return one(extensionTemplate=template).request

    assert sized({"requests": {"cpu": "3", "memory": "2Gi"}}) == Resources.of(3000, 2**31)
    assert sized({"limits": {"cpu": "3"}}, limits={GPU: "1", "cpu": "1"}) == Resources.of(3000, 2**30, {GPU: 1000})
    assert sized({"requests": {"memory": "2Gi"}}, requests={"cpu": "1"}) == Resources.of(1000, 2**31)
    wrong: tuple[Any, ...] = (5, [], {"requests": "much"})
    for broken in wrong:
        with pytest.raises(Invalid) as caught:
            sized(broken)
        assert faults(caught)["extensionTemplate.spec.resources"].message.startswith("must be an object")


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"command": 5}, "command", "expected a text or a list"),
        ({"command": [["x"]]}, "command", "should be"),
        ({"env": {"A": "1"}}, "env", "must be a list of objects with name and value"),
        ({"env": 5}, "env", "must be a list"),
        ({"env": [{"value": "1"}]}, "env", "must be a list"),
        ({"env": [{"name": "1A", "value": "x"}]}, "env", "environment variable name[1A] is invalid"),
        ({"resources": []}, "resources", "must be an object"),
        ({"resources": {"requests": "much"}}, "resources", "must be an object"),
        ({"image": {}}, "image", "should be"),
    ],
)
def test_broken_containers_give_faults(changes: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        single(extensionTemplate=pod(**changes))
    found = faults(caught)
    place = f"extensionTemplate.spec.containers[0].{where}"
    assert any(words in fault.message for at, fault in found.items() if at.startswith(place)), found


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({"kind": "Job"}, "extensionTemplate.kind"),
        ({"kind": ["Pod"]}, "extensionTemplate.kind"),
        ({"metadata": {}}, "extensionTemplate.spec.containers"),
        ({"spec": 5}, "extensionTemplate.spec.containers"),
        ({"spec": {"containers": []}}, "extensionTemplate.spec.containers"),
        ({"spec": {"containers": [7]}}, "extensionTemplate.spec.containers"),
    ],
)
def test_broken_pods_give_faults(template: dict[str, Any], where: str) -> None:
    with pytest.raises(Invalid) as caught:
        single(extensionTemplate=template)
    assert where in faults(caught)


def test_a_pod_without_a_command_has_nothing_to_run() -> None:
    with pytest.raises(Invalid, match="nothing to run"):
        admit(parse(SingleJob, {"extensionTemplate": pod(command=None, args=None)}), WORLD)


@pytest.mark.parametrize(
    ("template", "where", "words"),
    [
        ({"kind": "PyTorchJob"}, "kind", "framework paddle is described by PaddleJob"),
        ({"metadata": {}}, "kind", "cannot be read for framework paddle"),
        ({"kind": "PaddleJob"}, "spec", "describes no member"),
        ({"kind": "PaddleJob", "spec": {"worker": 5}}, "spec.worker", "must be an object"),
        ({"kind": "PaddleJob", "spec": {"worker": {**replica(), "replicas": 0}}}, "spec.worker.replicas", "less than 1"),
        ({"kind": "PaddleJob", "spec": {"worker": {"replicas": 2}}}, "spec.worker.template.spec.containers", "at least one"),
        ({"kind": "PaddleJob", "spec": {"paddleReplicaSpecs": {"Boss": replica()}}}, "spec.paddleReplicaSpecs.Boss", "none of the roles"),
    ],
)  # fmt: skip
def test_broken_framework_objects_give_faults(template: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        from_template("paddle", template)
    fault = faults(caught)[f"extensionTemplate.{where}"]
    assert words in f"{fault.message} {fault.hint}"


@pytest.mark.parametrize("framework", ["ray", "spark", "mxnet", "aitj", "standalone"])
def test_frameworks_whose_objects_are_not_read_want_members(framework: str) -> None:
    with pytest.raises(Invalid, match="cannot be read for framework") as caught:
        from_template(framework, {"kind": "RayJob"})
    assert caught.value.hint == "name the members instead"


def test_templates_that_could_never_be_shown_again_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"x": [deep]}
    with pytest.raises(Invalid, match="nested more than 100 deep"):
        single(extensionTemplate=deep)
    with pytest.raises(Invalid, match="which JSON does not know"):
        decode(SingleJob, b'{"command": "x", "extensionTemplate": {"a": [1e999]}}')


# ---- anything at all -----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = sorted(
    {
        "kind", "spec", "containers", "command", "args", "env", "name", "value", "resources", "requests", "limits", "cpu",
        "memory", "ps", "worker", "Worker", "Master", "replicas", "template", "pytorchReplicaSpecs", "mpiReplicaSpecs",
        "tfReplicaSpecs", "paddleReplicaSpecs", "image", "valueFrom",
    }
)  # fmt: skip
VALUES = st.sampled_from(["Pod", "PaddleJob", "PyTorchJob", "TFJob", "MPIJob", "1", "1Gi", -1, 2, None, "x", "it's"])
TEMPLATES = st.recursive(
    VALUES | JSON,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=16,
)
FIELDS = sorted(
    {field.alias or name for kind in (SingleJob, DistributedJob) for name, field in kind.model_fields.items()}
)
MEMBERS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["worker", "master", "pserver"])}, optional={
        "replicas": st.integers(-1, 3), "command": VALUES, "args": VALUES | st.lists(VALUES, max_size=2),
        "flavour": JSON, "env": st.dictionaries(st.sampled_from(["A", "RAY_JOB_ENTRY_POINT"]), VALUES, max_size=2),
    }),
    max_size=3,
)  # fmt: skip
DOCUMENTS = st.dictionaries(
    st.sampled_from(FIELDS), TEMPLATES | st.sampled_from(["worker", "paddle", "mpi"]), max_size=6
)
GANGS = st.fixed_dictionaries(
    {"framework": st.sampled_from(["paddle", "pytorch", "tensorflow", "mpi", "ray", "spark", "mxnet", "aitj", "x"])},
    optional={"members": MEMBERS, "extensionTemplate": TEMPLATES},
)


def _try(kind: type[Document], document: Any) -> None:
    """Only ever a job, or a refusal in words."""
    refusal: PaddleFlowError | None = None
    try:
        read = decode(kind, json.dumps(document).encode())
        for job in read.jobs if isinstance(read, JobBatch) else [read]:
            assert isinstance(job, SingleJob | DistributedJob | WorkflowJob)
            admit(job, WORLD)
    except PaddleFlowError as error:
        refusal = error
    assert refusal is None or (refusal.message and refusal.code)


@settings(max_examples=300)
@given(st.sampled_from([SingleJob, DistributedJob, WorkflowJob, JobBatch]), DOCUMENTS | GANGS | JSON)
def test_any_document_is_a_job_or_a_refusal(kind: type[Document], document: Any) -> None:
    _try(kind, {"jobs": [document]} if kind is JobBatch else document)


@settings(max_examples=300)
@given(st.sampled_from(["paddle", "pytorch", "tensorflow", "mpi"]), TEMPLATES)
def test_any_template_is_a_job_or_a_refusal(framework: str, template: Any) -> None:
    _try(SingleJob, {"extensionTemplate": template})
    _try(DistributedJob, {"framework": framework, "extensionTemplate": template})
