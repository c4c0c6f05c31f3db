"""Jobs as people meet them: a real server, real processes, the SDK and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError
from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

TINY = {"cpu": "100m", "mem": "64Mi"}


def test_a_job_from_the_command_line(server: ServerProcess) -> None:
    done = server.cli("job", "run", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False)
    assert done.returncode == 3
    assert done.stdout == "out\nerr\n"
    listed = json.loads(server.cli("--output", "json", "job", "list").stdout)
    assert [row["status"] for row in listed] == ["failed"]


def test_environment_folder_and_log_stay(server: ServerProcess) -> None:
    job = server.connect().jobs.submit(
        command='echo "$GREETING from $PF_JOB_ID as $PF_USER_NAME in $(basename "$PWD")"; pwd > where',
        env={"GREETING": "hi"},
        flavour=TINY,
    )
    job.wait(PATIENCE)
    assert job.status == "succeeded"
    server.stop()
    server.start()
    again = server.connect().jobs.get(job.id)
    assert "".join(again.logs()) == f"hi from {job.id} as root in work\n"


def test_a_stubborn_job_is_stopped_with_its_children(server: ServerProcess, tmp_path: Path) -> None:
    alive = tmp_path / "pid"
    job = server.connect().jobs.submit(
        command=f"trap '' TERM; (trap '' TERM; exec sleep 1000) & echo $! > {alive}; wait", flavour=TINY
    )
    pid = int(eventually(lambda: alive.exists() and alive.read_text().strip(), "the job runs"))
    job.stop()
    job.wait(PATIENCE)
    assert job.status == "terminated"
    assert job.record.message == "stopped by root"
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "its child is gone")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program", "x"], "/no/such/program"),
        ("trian.py --now", "trian.py"),
    ],
)
def test_a_missing_executable_is_named(server: ServerProcess, command: str | list[str], words: str) -> None:
    job = server.connect().jobs.submit(command=command, flavour=TINY)
    job.wait(PATIENCE)
    assert job.status == "failed"
    assert words in job.record.message + "".join(job.logs())


def test_storage_appears_at_its_mount_path(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "in.txt").write_text("data\n")
    client = server.connect()
    client.storages.create("team", f"local://{folder}")
    job = client.jobs.submit(
        command="cat in.txt /mnt/pf-e2e/in.txt && cp in.txt out.txt && pwd",
        fs={"name": "team", "mountPath": "/mnt/pf-e2e"},
        flavour=TINY,
    )
    job.wait(PATIENCE)
    assert "".join(job.logs()) == "data\ndata\n/mnt/pf-e2e\n", job.record.message
    assert (folder / "out.txt").read_text() == "data\n"
    with pytest.raises(PaddleFlowError, match="does not exist"):
        client.jobs.submit(command="true", fs={"name": "nobody"})


def test_gpus_are_given_as_device_numbers(new_server: Callable[..., ServerProcess]) -> None:
    server = new_server(PADDLEFLOW_LOCAL_SCALARS="nvidia.com/gpu=2")
    client = server.connect()
    wanted = {"cpu": "100m", "mem": "64Mi", "scalarResources": {"nvidia.com/gpu": "1"}}
    jobs = [client.jobs.submit(command="echo [$CUDA_VISIBLE_DEVICES]; sleep 600", flavour=wanted) for _ in range(2)]
    for job in jobs:
        eventually(lambda job=job: job.refresh().status == "running", "both run")  # type: ignore[misc]
    third = client.jobs.submit(command="echo [$CUDA_VISIBLE_DEVICES]", flavour=wanted)
    plain = client.jobs.submit(command="echo [$CUDA_VISIBLE_DEVICES]", flavour=TINY)
    plain.wait(PATIENCE)
    assert "".join(plain.logs()) == "[]\n"
    assert "nvidia.com/gpu" in eventually(lambda: third.refresh().record.message, "the third says why it waits")
    for job in jobs:
        eventually(lambda job=job: list(job.logs()), "it says which card it has")  # type: ignore[misc]
    assert sorted("".join(job.logs()).strip() for job in jobs) == ["[0]", "[1]"]
    jobs[0].stop()
    third.wait(PATIENCE)
    assert "".join(third.logs()) == "".join(jobs[0].logs())


def test_a_gang_starts_together_or_not_at_all(server: ServerProcess) -> None:
    client = server.connect()
    cores = client.queues.get("default-queue").maximum["cpu"]
    full = client.jobs.submit(command="sleep 600", flavour={"cpu": cores, "mem": "64Mi"})
    eventually(lambda: full.refresh().status == "running", "the first takes everything")
    member = {"role": "worker", "replicas": 2, "command": "echo rank $PADDLE_TRAINER_ID", "flavour": TINY}
    gang = client.jobs.submit({"framework": "paddle", "members": [member]})
    eventually(lambda: gang.refresh().status == "pending" and gang.record.message, "the gang waits")
    assert full.id in gang.record.message
    full.stop()
    gang.wait(PATIENCE)
    assert gang.status == "succeeded", gang.record.message
    assert sorted(gang.logs()) == ["[worker-0] rank 0\n", "[worker-1] rank 1\n"]


def test_events_tell_the_whole_history_from_any_position(server: ServerProcess) -> None:
    job = server.connect().jobs.submit(command="true", flavour=TINY)
    job.wait(PATIENCE)
    history = list(job.events())
    assert [event.status for event in history] == ["init", "pending", "running", "succeeded"]
    assert [event.seq for event in job.events(after=history[1].seq)] == [event.seq for event in history[2:]]


def test_users_see_and_use_only_what_is_theirs(server: ServerProcess) -> None:
    root = server.connect()
    root.users.create("alice", "secret1")
    root.queues.create("private", "default", {"cpu": "1", "mem": "1Gi"})
    alice = server.connect()
    alice.login("alice", "secret1")
    with pytest.raises(Forbidden, match="private"):
        alice.jobs.submit(command="true", queue="private", flavour=TINY)
    root.grants.create("alice", "private")
    mine = alice.jobs.submit(command="true", queue="private", flavour=TINY)
    theirs = root.jobs.submit(command="true", flavour=TINY)
    assert [job.id for job in alice.jobs.list()] == [mine.id]
    with pytest.raises(Forbidden):
        alice.jobs.get(theirs.id)
    mine.wait(PATIENCE)
    theirs.wait(PATIENCE)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"flavour": {"cpu": "1.5.2", "mem": "1Gi"}}, Invalid, "1.5.2"),
        ({"flavour": {"cpu": "-1", "mem": "1Gi"}}, Invalid, "negative"),
        ({"flavour": {"cpu": "10000", "mem": "1Gi"}}, Invalid, "larger than queue's"),
        ({"flavour": {"name": "flavor1"}}, NotFound, "did you mean flavour1"),
        ({"queue": "defualt-queue"}, Invalid, "did you mean default-queue"),
        ({"id": "Not_A_Label"}, Invalid, "RFC 1123"),
        ({"port": 70000}, Invalid, "port must be in range"),
        ({"command": ""}, Invalid, "nothing to run"),
    ],
)
def test_bad_jobs_are_refused_with_a_hint(
    server: ServerProcess, change: dict[str, object], error: type[PaddleFlowError], words: str
) -> None:
    client = server.connect()
    queue = change.pop("queue", None) if "queue" in change else None
    document = {"command": "true", **change, "schedulingPolicy": {"queue": queue}}
    with pytest.raises(error) as caught:
        client.jobs.submit(document)
    assert words in f"{caught.value.message} {caught.value.hint}"
    assert list(client.jobs.list()) == []


def test_stop_modify_and_delete_in_every_state(server: ServerProcess) -> None:
    client = server.connect()
    running = client.jobs.submit(command="sleep 600", flavour=TINY)
    eventually(lambda: running.refresh().status == "running", "it runs")
    running.update(labels={"team": "blue"})
    assert [job.id for job in client.jobs.list(labels={"team": "blue"})] == [running.id]
    with pytest.raises(Conflict, match="priority"):
        running.update(priority="HIGH", labels={"team": "red"})
    assert running.refresh().record.labels == {"team": "blue"}
    with pytest.raises(Conflict, match="stop it first"):
        _with_hint(running.delete)
    running.stop()
    running.wait(PATIENCE)
    with pytest.raises(Conflict, match="has already ended"):
        running.stop()
    folder = next(server.data.glob(f"jobs/*/{running.id}"))
    running.delete()
    assert not folder.exists()
    with pytest.raises(NotFound):
        client.jobs.get(running.id)


def _with_hint(act: Callable[[], None]) -> None:
    try:
        act()
    except PaddleFlowError as error:
        raise type(error)(f"{error.message} ({error.hint})", code=error.code) from error


def test_a_flood_of_output_is_bounded_and_said_so(new_server: Callable[..., ServerProcess]) -> None:
    server = new_server(PADDLEFLOW_LOCAL_LOG_LIMIT="64Ki")
    job = server.connect().jobs.submit(
        command="echo first; i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero | tr '\\0' x; echo; sleep 0.05; i=$((i+1)); done; echo last",
        flavour=TINY,
    )
    job.wait(60)
    text = "".join(job.logs())
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "left out" in text
    assert len(text) < 2_000_000
