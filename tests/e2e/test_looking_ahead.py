"""`job eta`, `queue whatif` and `scheduler replay` as people type them: a real server, real processes."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

HALF = {"cpu": "1", "mem": "128Mi"}


def test_a_server_tells_what_comes_and_what_a_change_would_do(new_server: Callable[..., ServerProcess]) -> None:
    server = new_server(PADDLEFLOW_LOCAL_CPUS="2", PADDLEFLOW_LOCAL_MEMORY="2Gi")
    client = server.connect()
    for job in [client.jobs.submit(name="train", command="sleep 0.3", flavour=HALF) for _ in range(10)]:
        job.wait(PATIENCE)
    blocking = [client.jobs.submit(name="train", command="sleep 600", flavour=HALF) for _ in range(2)]
    for job in blocking:
        eventually(lambda job=job: job.refresh().status == "running", "the machine is full")  # type: ignore[misc]
    last = client.jobs.submit(name="train", command="true", flavour={"cpu": "2", "mem": "128Mi"})
    eventually(lambda: last.eta().seconds is not None, "a forecast")
    assert last.eta().learnt_from == 10
    assert "starts about" in server.cli("job", "eta", last.id).stdout

    eventually(lambda: client.scheduler.replay().starts >= 12, "the record has reached the disk")
    printed = server.cli("scheduler", "replay")
    assert "no differences" in printed.stdout
    same = json.loads(server.cli("queue", "whatif", "-o", "json").stdout)
    assert same["reproduced"]
    assert same["before"] == same["after"]
    shown = server.cli(
        "queue", "whatif", "--queue", "nlp,maxcpu=2,maxmem=2Gi,mincpu=2", "--team", "nlp,jobs=3,cpu=1,mem=64Mi"
    )
    assert "nlp" in shown.stdout
    assert "fairness: " in shown.stdout
    assert server.cli("queue", "whatif", "--queue", "nlp,colour=red", check=False).returncode == 2

    file = max((server.data / "decisions").iterdir())
    lines = file.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"start"' in line)
    decided = json.loads(lines[at])
    decided[3] = []
    file.write_text("\n".join([*lines[:at], json.dumps(decided), *lines[at + 1 :]]) + "\n")
    broken = server.cli("scheduler", "replay", check=False)
    assert broken.returncode == 1
    assert "then: nothing more" in broken.stdout
