"""Quota that comes back and jobs that change their size: a real server, real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import ServerProcess
from tests.patience import eventually

QUICK = {
    "PADDLEFLOW_LOCAL_CPUS": "4",
    "PADDLEFLOW_LOCAL_GRACE": "60",  # members tidy up before they go
    "PADDLEFLOW_LOCAL_MEMORY": "4Gi",
    "PADDLEFLOW_SCHEDULING_LEAST_RUN": "1",
    "PADDLEFLOW_SCHEDULING_RESIZE_PAUSE": "1",
    "PADDLEFLOW_SCHEDULING_RESTART_PAUSE": "1",
}
SMALL = {"cpu": "1", "mem": "128Mi"}


def test_a_guarantee_comes_back_from_those_who_borrowed_it(new_server: Callable[..., ServerProcess]) -> None:
    server = new_server(**QUICK)
    client = server.connect()
    server.cli("queue", "create", "online", "default", "4", "4Gi", "--mincpu", "2", "--minmem", "1Gi")
    borrowers = [client.jobs.submit(command="sleep 600", flavour=SMALL) for _ in range(4)]
    for job in borrowers:
        eventually(lambda job=job: job.refresh().status == "running", "the whole machine is lent")  # type: ignore[misc]
    owner = client.jobs.submit(command="sleep 600", queue="online", flavour={"cpu": "2", "mem": "256Mi"})
    eventually(lambda: owner.refresh().status == "running", "the owner has its guarantee back")
    statuses = sorted(job.refresh().status for job in borrowers)
    assert statuses == ["pending", "pending", "running", "running"], "no more were ended than had to be"
    victim = next(job for job in borrowers if job.status == "pending")
    told = [event for event in victim.events(follow=False) if event.status == "preempting"]
    assert f"made way for {owner.id}" in str(told[0].raw)
    printed = server.cli("job", "why", victim.id).stdout
    assert f"it made way for {owner.id} at" in printed
    owner.stop()
    for job in borrowers:
        eventually(lambda job=job: job.refresh().status == "running", "all run again")  # type: ignore[misc]
    assert victim.record.raw["attempt"] == 2


def test_an_elastic_job_gives_members_and_gets_them_back(
    new_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = new_server(**QUICK)
    client = server.connect()
    command = f"trap 'rm {tmp_path}/'$RANK'; exit 0' TERM; echo $RANK > {tmp_path}/$RANK; while :; do sleep 0.05; done"
    worker = {"role": "worker", "command": command, "flavour": SMALL, "minReplicas": 1, "maxReplicas": 4}
    job = client.jobs.submit(framework="pytorch", members=[{**worker, "resize": "inPlace"}])

    def members() -> set[str]:
        return {path.name for path in tmp_path.iterdir() if path.name.isdigit()}

    eventually(lambda: members() == {"0", "1", "2", "3"}, "it has all that is idle")
    other = client.jobs.submit(command="sleep 600", flavour={"cpu": "2", "mem": "128Mi"})
    eventually(lambda: other.refresh().status == "running", "the other has room")
    assert members() == {"0", "1"}
    assert job.refresh().status == "running"
    other.stop()
    eventually(lambda: members() == {"0", "1", "2", "3"}, "it has grown again")
    changes = [event.raw for event in job.events(follow=False) if event.type == "members"]
    assert [len(change["removed"]) for change in changes if change["by"] == other.id] == [2]
    assert job.refresh().record.raw["attempt"] == 1, "the first members were never disturbed"


def test_a_job_that_starts_anew_at_each_size(new_server: Callable[..., ServerProcess]) -> None:
    server = new_server(**QUICK)
    client = server.connect()
    worker = {"role": "worker", "command": "echo of $WORLD_SIZE; sleep 600", "flavour": SMALL}
    job = client.jobs.submit(framework="pytorch", members=[{**worker, "minReplicas": 2, "maxReplicas": 4}])
    eventually(lambda: job.refresh().status == "running" and len(job.record.tasks) == 4, "it has all that is idle")
    eventually(lambda: "".join(job.logs(task="worker-0")) == "of 4\n", "it was told its size")
    other = client.jobs.submit(command="sleep 600", flavour={"cpu": "2", "mem": "128Mi"})
    eventually(lambda: other.refresh().status == "running", "the other has room")
    eventually(lambda: "of 2\n" in "".join(job.logs(task="worker-0")), "it was told its new size")
    assert job.refresh().record.raw["attempt"] == 2
    other.stop()
    eventually(lambda: job.refresh().record.raw["attempt"] == 3 and job.status == "running", "it has grown again")
    eventually(lambda: "".join(job.logs(task="worker-0")) == "of 4\nof 2\nof 4\n", "one line for each beginning")
