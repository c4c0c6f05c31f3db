"""From a placed job to launches: names, environment, devices, mounts, folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.ids import attempt_id, parse_attempt, task_id
from paddleflow.base.names import JOB_ID
from paddleflow.base.quantity import Resources
from paddleflow.engine.launch import (
    LaunchContext,
    MemberPlacement,
    PlacedJob,
    PreparedLaunch,
    attempt_of,
    port_counts,
    prepare,
)
from paddleflow.frameworks.catalogue import FRAMEWORKS
from paddleflow.jobs.facts import Key
from paddleflow.jobs.model import Member, MountedStorage
from paddleflow.runtimes.runtime import Mount
from paddleflow.settings import JobSettings

GPU = "nvidia.com/gpu"
EACH = Resources.of(1000, 2**30)
WORKER = Member("worker", 1, ("python", "train.py"), {}, EACH, EACH)


def prepared(
    *places: MemberPlacement,
    members: tuple[Member, ...] = (WORKER,),
    framework: str = "standalone",
    base_env: Mapping[str, str] | None = None,
    **fields: Any,
) -> dict[Key, PreparedLaunch]:
    given = {"id": "job-1", "name": "my job", "user": "alice", "queue": "q", "attempt": 2, **fields}
    job = PlacedJob(
        framework=framework, members=members, places=places or (MemberPlacement("worker", 0, "n1"),), **given
    )
    return prepare(
        job, LaunchContext("/jobs/{}".format, base_env or {}, {"n1": "127.0.0.1"}, JobSettings(restart_limit=3))
    )


def alone(*places: MemberPlacement, **fields: Any) -> PreparedLaunch:
    (found,) = prepared(*places, **fields).values()
    return found


# ---- names ---------------------------------------------------------------------------------------------------------


@given(
    st.from_regex(JOB_ID.pattern, fullmatch=True) | st.from_regex(r"[a-z0-9]+(\.[a-z0-9-]+){1,3}", fullmatch=True),
    st.sampled_from([role.name for framework in FRAMEWORKS.values() for role in framework.roles]),
    st.integers(0, 10_000),
    st.integers(1, 10_000),
)
def test_attempt_ids_tell_job_member_and_attempt(job: str, role: str, index: int, attempt: int) -> None:
    assert parse_attempt(attempt_id(task_id(job, role, index), attempt)) == (job, (role, index), attempt)


def test_the_names_of_one_attempt() -> None:
    job = PlacedJob("job-1", "", "alice", "q", "standalone", 3, (WORKER,), ())
    assert attempt_of(job, ("worker", 0)) == "job-1.worker-0.3"


def test_what_a_launch_says() -> None:
    launch = alone().launch
    assert launch.attempt == "job-1.worker-0.2"
    assert (launch.command, launch.user, launch.node) == (("python", "train.py"), "alice", "n1")
    assert launch.labels == {
        "owner": "paddleflow",
        "paddleflow-job-id": "job-1",
        "paddleflow-job-framework": "standalone",
        "volcano.sh/queue-name": "q",
        "paddleflow/role": "worker",
    }
    assert (launch.request, launch.limit, launch.mounts, launch.ready_port) == (EACH, EACH, (), None)
    assert (launch.working_dir, launch.image, launch.prefetch) == ("", "", None)


def with_code(**code: str) -> Member:
    return Member("worker", 1, ("python", "train.py"), {}, EACH, EACH, document={"code": code})


def test_a_folder_of_this_machine_is_the_working_directory() -> None:
    launch = alone(members=(with_code(path="/srv/project", workdir="src"),)).launch
    assert (launch.working_dir, launch.code) == ("/srv/project/src", "")
    assert alone(members=(with_code(path="/srv"),)).launch.working_dir == "/srv"


def test_a_snapshot_is_told_to_the_runtime() -> None:
    launch = alone(members=(with_code(snapshot="ab" * 32, workdir="src"),)).launch
    assert (launch.working_dir, launch.code, launch.user) == ("src", "ab" * 32, "alice")


def test_the_image_is_the_one_that_the_member_names() -> None:
    member = Member("worker", 1, ("x",), {}, EACH, EACH, document={"image": "paddle:3"})
    assert alone(members=(member,)).launch.image == "paddle:3"


# ---- environment ---------------------------------------------------------------------------------------------------


def test_who_a_member_is() -> None:
    env = alone(MemberPlacement("worker", 0, "n1")).launch.env
    assert env.items() >= {
        "PF_JOB_ID": "job-1", "PF_JOB_NAME": "my job", "PF_JOB_QUEUE_NAME": "q", "PF_JOB_FRAMEWORK": "standalone",
        "PF_JOB_ATTEMPT": "2", "PF_USER_NAME": "alice", "PF_ROLE": "worker", "PF_ROLE_INDEX": "0",
    }.items()  # fmt: skip


def test_the_user_s_variables_win_over_the_server_s_but_not_over_who_it_is() -> None:
    user = {"PATH": "/mine", "PF_USER_NAME": "root", "PF_JOB_QUEUE_NAME": "other", "X": "1"}
    member = Member("worker", 1, ("x",), user, EACH, EACH)
    env = alone(members=(member,), base_env={"PATH": "/bin", "HOME": "/root"}).launch.env
    assert (env["PATH"], env["HOME"], env["X"]) == ("/mine", "/root", "1")
    assert (env["PF_USER_NAME"], env["PF_JOB_QUEUE_NAME"]) == ("alice", "q")


def test_device_numbers() -> None:
    place = MemberPlacement("worker", 0, "n1", ((GPU, (1, 3)), ("x.com/fpga-2", (0,))))
    env = alone(place).launch.env
    assert env["CUDA_VISIBLE_DEVICES"] == env["PF_DEVICES_NVIDIA_COM_GPU"] == "1,3"
    assert env["PF_DEVICES_X_COM_FPGA_2"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in alone().launch.env


def test_nobody_sees_devices_that_were_not_given() -> None:
    """A machine with GPUs hides them (`base_env`); a job's own variables do not bring them back."""
    member = Member("worker", 1, ("x",), {"CUDA_VISIBLE_DEVICES": "0,1"}, EACH, EACH)
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    assert alone(members=(member,), base_env=hidden).launch.env["CUDA_VISIBLE_DEVICES"] == ""
    given_one = MemberPlacement("worker", 0, "n1", ((GPU, (1,)),))
    assert alone(given_one, members=(member,), base_env=hidden).launch.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert alone(members=(member,)).launch.env["CUDA_VISIBLE_DEVICES"] == "0,1"  # none are counted here


# ---- storages ------------------------------------------------------------------------------------------------------


def test_the_first_storage_is_the_working_directory() -> None:
    storages = (
        MountedStorage("fs-a-x", "x", "/srv/x", "/mnt/x", "sub/dir", True),
        MountedStorage("fs-a-y", "y", "/srv/y", "/mnt/y"),
    )
    launch = alone(members=(Member("worker", 1, ("x",), {}, EACH, None, storages),)).launch
    assert launch.mounts == (
        Mount("fs-a-x", "/mnt/x", "/srv/x", "sub/dir", True),
        Mount("fs-a-y", "/mnt/y", "/srv/y"),
    )
    assert launch.working_dir == "/mnt/x"
    assert launch.limit is None


# ---- gangs ---------------------------------------------------------------------------------------------------------


def test_members_know_each_other() -> None:
    places = tuple(MemberPlacement("worker", n, "n1", ports=(2000 + 2 * n, 2001 + 2 * n)) for n in range(2))
    found = prepared(*places, members=(Member("worker", 2, ("x",), {}, EACH, EACH),), framework="paddle")
    assert list(found) == [("worker", 0), ("worker", 1)]
    for n, item in enumerate(found.values()):
        env = item.launch.env
        assert env["PADDLE_TRAINER_ENDPOINTS"] == "127.0.0.1:2000,127.0.0.1:2002"
        assert (env["PADDLE_TRAINER_ID"], env["PF_ROLE_INDEX"]) == (str(n), str(n))
        assert not item.passive


@pytest.mark.parametrize("limits", [(EACH, EACH), (None, EACH), (EACH, None)])
def test_slots_lend_what_they_hold_to_the_one_that_runs(limits: tuple[Resources | None, ...]) -> None:
    members = (
        Member("master", 1, ("mpirun", "x"), {}, EACH, limits[0]),
        Member("worker", 2, (), {}, EACH, limits[1]),
    )
    places = (
        MemberPlacement("master", 0, "n1"),
        MemberPlacement("worker", 0, "n1", ((GPU, (2,)),)),
        MemberPlacement("worker", 1, "n1", ((GPU, (0,)),)),
    )
    found = prepared(*places, members=members, framework="mpi", base_env={"CUDA_VISIBLE_DEVICES": ""})
    assert [found[key].passive for key in found] == [False, True, True]
    launch = found["master", 0].launch
    assert launch.request == EACH * 3
    assert launch.limit == (None if None in limits else EACH * 3)
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert "hostfile" in launch.files


def test_how_many_ports_each_member_needs() -> None:
    assert port_counts("paddle", [("pserver", 0), ("worker", 0)]) == [2, 2]
    assert port_counts("standalone", [("worker", 0)]) == [0]
    assert port_counts("ray", [("master", 0), ("worker", 0), ("worker", 1)]) == [5, 0, 0]
