"""Admission: every rule for a job's document, and that all faults come out at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.errors import Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError
from paddleflow.jobs.admission import SHELL, command_line
from paddleflow.jobs.model import MountedStorage
from paddleflow.spec.document import parse
from paddleflow.spec.job import JobBatch, JobChange
from tests.admission_world import FLAVOURS, GPU, WORKERS, WORLD, faults, gang, one, single

# ---- what a good document becomes ----------------------------------------------------------------------------------


def test_the_smallest_job() -> None:
    job = single()
    assert (job.kind, job.framework, job.queue, job.priority) == ("single", "standalone", "default-queue", "NORMAL")
    assert (job.user, job.name, job.ttl, job.template) == ("alice", "", None, None)
    (member,) = job.members
    assert (member.role, member.replicas, member.argv) == ("worker", 1, (SHELL, "-c", "true"))
    assert member.request == member.limit == job.request == Resources.of(1000, 2**30)
    assert member.document["flavour"] == {"name": "", "cpu": "1", "mem": "1Gi", "scalarResources": {}}


def test_fields_of_older_clients_that_say_nothing() -> None:
    """They send ``queue: null`` in each member and flavours as ``{name, cpu: "", mem: ""}``."""
    nothing = {"schedulingPolicy": {"queue": None}, "flavour": {"name": "flavour1", "cpu": "", "mem": ""}}
    job = gang({**WORKERS, **nothing}, schedulingPolicy={"queue": "endless", "priority": None})
    assert job.queue == "endless"
    assert job.members[0].request == FLAVOURS["flavour1"]


def test_an_image_is_recorded_and_not_needed() -> None:
    assert "image" not in one().document
    assert one(image="paddle:3.3").document["image"] == "paddle:3.3"


def test_ids_names_labels_and_annotations_are_kept() -> None:
    job = single(id="my-job", name="n" * 512, labels={"team": "blue", "x/y": 7}, annotations={"note": "free text ✓"})
    assert (job.id, job.name, job.labels) == ("my-job", "n" * 512, {"team": "blue", "x/y": "7"})
    assert job.annotations == {"note": "free text ✓"}


@pytest.mark.parametrize("given", ["low", "LOW", "Low", "very_high", "Normal"])
def test_priorities_in_any_capitals(given: str) -> None:
    assert single(schedulingPolicy={"priority": given}).priority == given.upper()
    assert parse(JobChange, {"priority": given}).priority == given.upper()


def test_a_gang_is_as_urgent_as_its_most_urgent_member_unless_it_says_itself() -> None:
    members = [
        {"role": "pserver", "command": "s", "schedulingPolicy": {"priority": "low"}},
        {"role": "worker", "command": "w", "schedulingPolicy": {"priority": "high"}},
    ]
    assert gang(*members).priority == "HIGH"
    assert gang(*members, schedulingPolicy={"priority": "very_low"}).priority == "VERY_LOW"


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        ("echo $X; date", [], (SHELL, "-c", "echo $X; date")),
        ("echo", ["a b", "$X"], (SHELL, "-c", "echo 'a b' '$X'")),
        ("echo", "a 'b c'", (SHELL, "-c", "echo a 'b c'")),
        (["echo", "$X"], ["a b"], ("echo", "$X", "a b")),
        (["echo"], "a 'b c'", ("echo", "a", "b c")),
        ("", ["prog", "x"], ("prog", "x")),
        ("  ", "prog x", ("prog", "x")),
        (["seq", 3], [], ("seq", "3")),
    ],
)
def test_commands_and_arguments(command: Any, args: Any, argv: tuple[str, ...]) -> None:
    assert one(command=command, args=args).argv == argv


def test_command_line_without_anything_is_nothing() -> None:
    assert command_line("", []) == command_line([], "") == ()


# ---- queues --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "kind", "code", "words", "hint"),
    [
        ("smal", Invalid, "QueueNameNotFound", "queue[smal] does not exist", "did you mean small?"),
        ("closed", Invalid, "InvalidState", "queue[closed] is not open", "takes no new jobs"),
        ("private", Forbidden, "AccessDenied", "user[alice] may not use queue[private]", "queue grant alice private"),
    ],
)
def test_queues_that_take_no_job(queue: str, kind: type[PaddleFlowError], code: str, words: str, hint: str) -> None:
    with pytest.raises(kind) as caught:
        single(schedulingPolicy={"queue": queue})
    assert caught.value.code == code
    assert words in caught.value.message
    assert hint in caught.value.hint
    assert list(faults(caught)) == ["schedulingPolicy.queue"]


def test_members_may_name_the_queue_but_only_one() -> None:
    assert gang({**WORKERS, "schedulingPolicy": {"queue": "endless"}}).queue == "endless"
    servers = {"role": "pserver", "command": "s", "schedulingPolicy": {"queue": "small"}}
    with pytest.raises(Invalid, match="all members must name the same queue, found endless, small"):
        gang(servers, {**WORKERS, "schedulingPolicy": {"queue": "endless"}})


# ---- flavours and limits -------------------------------------------------------------------------------------------


def test_a_flavour_by_name_written_out_or_left_out() -> None:
    assert one(flavour={"name": "flavour2"}).request == FLAVOURS["flavour2"]
    custom = {"name": "customFlavour", "cpu": "500m", "mem": "1.5Gi", "scalarResources": {GPU: "1"}}
    assert one(flavour=custom).request == Resources.of(500, 3 * 2**29, {GPU: 1000})
    assert one(flavour={"cpu": 2, "memory": "64Mi"}).request == Resources.of(2000, 2**26)
    assert one(flavour={"name": ""}).request == Resources.of(1000, 2**30)
    assert one(flavour={"cpu": "1", "mem": "1Gi", "scalarResources": {GPU: ""}}).request.scalars == ()


@pytest.mark.parametrize(
    ("flavour", "where", "words"),
    [
        ({"cpu": "1.5.2", "mem": "1Gi"}, "flavour.cpu", "'1.5.2' is not a number"),
        ({"cpu": "1", "mem": "1.5.2Gi"}, "flavour.mem", "'1.5.2Gi' is not a number"),
        ({"cpu": "-1", "mem": "1Gi"}, "flavour.cpu", "negative"),
        ({"cpu": "0", "mem": "1Gi"}, "flavour.cpu", "cpu must be more than 0, found 0"),
        ({"cpu": "1"}, "flavour.mem", "mem must be more than 0, found nothing"),
        ({"scalarResources": {GPU: "1"}}, "flavour.cpu", "cpu must be more than 0"),
        ({"cpu": "1", "mem": "1Gi", "memory": "2Gi"}, "flavour.memory", "mem 1Gi and memory 2Gi"),
        ({"cpu": "1", "mem": "1Gi", "scalarResources": {GPU: "x"}}, "flavour.scalarResources", "'x' is not a number"),
        ({"cpu": "1", "mem": "1Gi", "scalarResources": {"cpu": "1"}}, "flavour.scalarResources", "not a scalar"),
        ({"cpu": "9" * 60, "mem": "1Gi"}, "flavour.cpu", "larger than this system can count"),
        ({"cpu": True, "mem": "1Gi"}, "flavour.cpu", "string"),
        ({"cpu": "1", "mem": "1Gi", "gpu": 1}, "flavour.gpu", "not a known field"),
    ],
)
def test_bad_quantities_are_named(flavour: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        single(flavour=flavour)
    assert words in faults(caught)[where].message
    assert caught.value.code == "JobInvalidField"


def test_an_unknown_flavour_is_not_found_with_the_nearest() -> None:
    with pytest.raises(NotFound) as caught:
        single(flavour={"name": "flavor1"})
    assert (caught.value.code, caught.value.hint) == ("FlavourNotFound", "did you mean flavour1?")


def test_limits() -> None:
    request = {"flavour": {"cpu": "1", "mem": "1Gi"}}
    assert one(**request).limit == one(**request).request
    assert one(**request, limitFlavour={"name": "flavour2"}).limit == FLAVOURS["flavour2"]
    assert one(**request, limitFlavour={"cpu": "2", "mem": "2Gi"}).limit == Resources.of(2000, 2**31)
    assert one(**request, env={"PF_JOB_LIMIT_FLAVOUR": "flavour2"}).limit == FLAVOURS["flavour2"]
    for none in ("NONE", "none"):
        assert one(**request, limitFlavour={"name": none}).limit is None
        assert one(**request, env={"PF_JOB_LIMIT_FLAVOUR": none}).limit is None
    both = one(**request, limitFlavour={"name": "NONE"}, env={"PF_JOB_LIMIT_FLAVOUR": "flavour2"})
    assert both.limit == FLAVOURS["flavour2"]


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        ({"limitFlavour": {"name": "flavour1"}}, "limitFlavour", "cpu 2 over 1, memory 2Gi over 1Gi"),
        ({"env": {"PF_JOB_LIMIT_FLAVOUR": "flavour1"}}, "env.PF_JOB_LIMIT_FLAVOUR", "larger than the limit"),
        ({"env": {"PF_JOB_LIMIT_FLAVOUR": "nope"}}, "env.PF_JOB_LIMIT_FLAVOUR", "flavour[nope] does not exist"),
        ({"limitFlavour": {"cpu": "x", "mem": "4Gi"}}, "limitFlavour.cpu", "'x' is not a number"),
    ],
)
def test_a_request_over_its_limit_is_refused(fields: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(PaddleFlowError) as caught:
        single(flavour={"cpu": "2", "mem": "2Gi"}, **fields)
    assert words in faults(caught)[where].message


def test_more_than_the_queue_ever_has() -> None:
    with pytest.raises(OverQuota) as caught:
        single(flavour={"cpu": "2", "mem": "512Mi"}, schedulingPolicy={"queue": "small"})
    assert "the flavour[cpu: 2, mem: 512Mi] is larger than queue's [cpu: 1, mem: 1Gi]" in caught.value.message
    assert "cpu: 2 wanted, 1 at most" in caught.value.message
    assert (caught.value.code, caught.value.status) == ("JobInvalidField", 400)
    with pytest.raises(OverQuota, match="larger than queue's"):
        gang({**WORKERS, "replicas": 9})  # 9 x 1 core, the queue has 8
    single(flavour={"cpu": "2", "mem": "512Mi"}, schedulingPolicy={"queue": "endless"})
    skipping = replace(WORLD, skip_queue_maximum=True)
    single(skipping, flavour={"cpu": "2", "mem": "512Mi"}, schedulingPolicy={"queue": "small"})


def test_more_than_any_node_has() -> None:
    with pytest.raises(OverQuota, match="no node can ever hold worker: the largest node n1 has cpu: 4, mem: 8Gi"):
        single(flavour={"cpu": "5", "mem": "1Gi"})
    with pytest.raises(OverQuota) as caught:
        gang({**WORKERS, "flavour": {"cpu": "5", "mem": "1Gi"}}, schedulingPolicy={"queue": "endless"})
    assert list(faults(caught)) == ["members[0].flavour"]


# ---- storages ------------------------------------------------------------------------------------------------------


def test_storages_are_resolved_for_the_user() -> None:
    member = one(
        fs={"name": "team", "mountPath": "/mnt/team/", "subPath": "a/b", "readOnly": True},
        extraFS=[{"name": "more"}, {"name": "team", "mountPath": "//mnt/./again"}],
    )
    assert member.storages == (
        MountedStorage("fs-alice-team", "team", "/data/team", "/mnt/team", "a/b", True),
        MountedStorage("fs-alice-more", "more", "/m", "/home/paddleflow/storage/mnt/fs-alice-more"),
        MountedStorage("fs-alice-team", "team", "/data/team", "/mnt/again"),
    )


@pytest.mark.parametrize(
    ("fields", "where", "words", "hint"),
    [
        ({"fs": {"name": "taem"}}, "fs.name", "fs[taem] does not exist for user[alice]", "did you mean team?"),
        ({"fs": {"name": "twice"}}, "fs.name", "granted by several users", "say which"),
        (
            {"fs": {"name": "team", "mountPath": "/x/"}, "extraFS": [{"name": "more", "mountPath": "/x"}]},
            "extraFS[0].mountPath",
            "mountPath[/x] is used twice",
            "",
        ),
        ({"extraFS": [{"name": "more"}, {"name": "more"}]}, "extraFS[1].mountPath", "is used twice", ""),
    ],
)
def test_bad_storages(fields: dict[str, Any], where: str, words: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        single(**fields)
    assert words in faults(caught)[where].message
    assert hint in faults(caught)[where].hint


@pytest.mark.parametrize(
    "mount",
    [{"mountPath": "x"}, {"mountPath": "/"}, {"mountPath": "/a/../b"}, {"subPath": "/a"}, {"subPath": "../a"}],
)
def test_paths_stay_where_they_belong(mount: dict[str, str]) -> None:
    with pytest.raises(Invalid) as caught:
        single(fs={"name": "team", **mount})
    assert list(faults(caught)) == [f"fs.{next(iter(mount))}"]


# ---- documents that are wrong in themselves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        ({"id": "Not_A_Label"}, "id", "ID[Not_A_Label] of Job is invalid, err: a lowercase RFC 1123 label must "),
        ({"id": "x" * 64}, "id", "a lowercase RFC 1123 label must "),
        ({"id": "-x"}, "id", "of Job is invalid"),
        ({"id": "a.b"}, "id", "of Job is invalid"),
        ({"name": "n" * 513}, "name", "must be no more than 512 characters"),
        ({"port": 65535}, "port", "port must be in range [0, 65534], found 65535"),
        ({"port": -1}, "port", "port must be in range [0, "),
        ({"schedulingPolicy": {"priority": "urgent"}}, "schedulingPolicy.priority", "priority[URGENT] is not one of"),
        ({"labels": {"bad key": "x"}}, "labels", "label key[bad key] is invalid"),
        ({"labels": {"k": "bad value!"}}, "labels", "label value[bad value!] is invalid"),
        ({"env": {"1X": "x"}}, "env", "environment variable name[1X] is invalid"),
        ({"env": {"X": "a\0b"}}, "env", "NUL"),
        ({"command": "a\0b"}, "command", "NUL"),
        ({"args": "it's"}, "args", "cannot be read as shell words"),
        ({"command": ""}, "command", "is empty: there is nothing to run"),
        ({"comand": "x"}, "comand", "is not a known field"),
        ({"annotations": {"x": "y" * 300_000}}, "annotations", "larger than 256 KiB"),
    ],
)
def test_refused_fields(fields: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        single(**fields)
    assert words in faults(caught)[where].message
    assert caught.value.code == "JobInvalidField"


@pytest.mark.parametrize(("text", "ttl"), [("0", 0.0), ("3600", 3600.0), ("", None)])
def test_time_to_live(text: str, ttl: float | None) -> None:
    assert single(annotations={"paddleflow/job-ttl-seconds": text}).ttl == ttl


@pytest.mark.parametrize("text", ["-1", "1.5", "soon", "\u0663", "1" * 400])
def test_a_bad_time_to_live_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="must be a number of seconds"):
        single(annotations={"paddleflow/job-ttl-seconds": text})


def test_faults_of_a_batch_name_the_job_while_decoding() -> None:
    with pytest.raises(Invalid) as caught:
        parse(JobBatch, {"jobs": [{"command": "x"}, {"port": -1, "flavour": {"cpus": 1}}]})
    assert set(faults(caught)) == {"jobs[1].port", "jobs[1].flavour.cpus"}


def test_all_faults_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        single(
            command="",
            flavour={"cpu": "x", "mem": "-1"},
            limitFlavour={"name": "nope"},
            fs={"name": "nobody"},
            schedulingPolicy={"queue": "closed"},
            annotations={"paddleflow/job-ttl-seconds": "soon"},
        )
    assert set(faults(caught)) == {
        "schedulingPolicy.queue",
        "flavour.cpu",
        "flavour.mem",
        "limitFlavour",
        "fs.name",
        "command",
        "annotations.paddleflow/job-ttl-seconds",
    }
    assert caught.value.code == "InvalidState"  # the first one's
    for fault in caught.value.details:
        assert fault.message in caught.value.message
