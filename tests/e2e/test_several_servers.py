"""Two real servers on one PostgreSQL: the same answers from both, and a leader that is killed or frozen loses and doubles nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import paddleflow
from paddleflow.errors import PaddleFlowError
from paddleflow.sdk.client import PaddleFlow
from tests.balancing_proxy import BalancingProxy, balancing_proxy
from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import call, create, ended
from tests.patience import PATIENCE, eventually

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

TINY = {"cpu": "10m", "mem": "16Mi"}


@pytest.fixture
def pair(
    new_server: Callable[..., ServerProcess], request: pytest.FixtureRequest
) -> tuple[ServerProcess, ServerProcess]:
    """The first of them holds the lease of the default cluster."""
    url = request.getfixturevalue("postgres_url_factory")()
    first = new_server(PADDLEFLOW_DATABASE_URL=url, PADDLEFLOW_LOCAL_CPUS="2")
    job = first.connect().jobs.submit(command="true", flavour=TINY).wait(PATIENCE)
    assert job.status == "succeeded"
    return first, new_server(PADDLEFLOW_DATABASE_URL=url, PADDLEFLOW_LOCAL_CPUS="2")


@pytest.fixture
def proxy(pair: tuple[ServerProcess, ServerProcess]) -> Iterator[BalancingProxy]:
    with balancing_proxy([server.url for server in pair]) as made:
        yield made


def test_both_give_the_same_answers(pair: tuple[ServerProcess, ServerProcess], tmp_path: Path) -> None:
    first, second = (server.connect() for server in pair)
    gate = tmp_path / "gate"
    held = first.jobs.submit(
        command=f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo done",
        flavour={"cpu": "2", "mem": "16Mi"},
    )
    eventually(lambda: held.refresh().status == "running", "it runs")
    waiting = first.jobs.submit(command="true", flavour={"cpu": "2", "mem": "16Mi"})
    eventually(lambda: first.jobs.get(waiting.id).why().code not in {"not_seen", ""}, "the scheduler has seen it")
    asked = [client.jobs.get(waiting.id).why() for client in (first, second)]
    assert asked[0].code == asked[1].code
    assert asked[0].text == asked[1].text
    etas = [client.jobs.get(waiting.id).eta() for client in (first, second)]
    assert (etas[0].seconds is None) == (etas[1].seconds is None)
    # The record of the scheduler lies with the leader: both execute the same decisions again, and play the same past.
    eventually(lambda: first.scheduler.replay().starts > 0, "the record has reached the disk")
    replays = [client.scheduler.replay() for client in (first, second)]
    assert replays[0].difference is replays[1].difference is None
    assert (replays[0].begins, replays[0].snapshots) == (replays[1].begins, replays[1].snapshots)
    wider = {"nodesAdded": [{"each": {"cpu": "4", "mem": "4Gi"}}]}
    plays = [client.scheduler.what_if(wider) for client in (first, second)]
    assert [play.reproduced for play in plays] == [True, True]
    outcomes = [[(queue.name, queue.jobs, queue.started) for queue in play.after.queues] for play in plays]
    assert outcomes[0] == outcomes[1] != []
    lines = second.jobs.get(held.id).logs(follow=True)
    assert next(iter(lines)) == "begun\n"
    gate.touch()
    assert "done" in "".join(second.jobs.get(held.id).wait(PATIENCE).logs())
    first.jobs.get(waiting.id).wait(PATIENCE)


class Load:
    """Submits jobs until told to stop, and remembers what was acknowledged."""

    def __init__(self, client: PaddleFlow) -> None:
        self._client = client
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.acknowledged.append(self._client.jobs.submit(command="true", flavour=TINY).id)
            except PaddleFlowError:  # not acknowledged: nothing was promised
                self._stop.wait(0.05)

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join(PATIENCE)
        return self.acknowledged


def test_a_killed_leader_loses_nothing_and_followers_go_on(
    pair: tuple[ServerProcess, ServerProcess], proxy: BalancingProxy, tmp_path: Path
) -> None:
    first, _second = pair
    client = paddleflow.connect(proxy.url, token=first.token)
    gate = tmp_path / "gate"
    held = client.jobs.submit(
        command=f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo done", flavour=TINY
    )
    eventually(lambda: held.refresh().status == "running", "it runs")
    seen: list[str] = []
    told: list[str] = []
    followers = [
        threading.Thread(target=lambda: seen.extend(client.jobs.get(held.id).logs(follow=True)), daemon=True),
        threading.Thread(target=lambda: told.extend(each.status for each in held.events()), daemon=True),
    ]
    for thread in followers:
        thread.start()
    eventually(lambda: "begun" in "".join(seen) and "running" in told, "both follow")
    load = Load(client)
    eventually(lambda: len(load.acknowledged) > 10, "the load is there")
    first.kill()
    before = len(load.acknowledged)
    eventually(lambda: len(load.acknowledged) > before + 10, "the other server goes on")
    first.start()
    proxy.targets[0] = first.url
    gate.touch()
    acknowledged = load.stop()
    for thread in followers:
        thread.join(PATIENCE)
    assert "done" in "".join(seen)
    assert told[-1] == "succeeded"
    for job in acknowledged:
        assert client.jobs.get(job).wait(PATIENCE).status == "succeeded"


STEPS = 4


def chain(name: str, ledger: Path, gate: Path) -> str:
    """A pipeline whose steps follow each other; each writes one line, and the first waits for the gate."""
    steps = {
        f"s{number}": {
            "command": f"echo {name}-{number} >> {ledger}; until [ -e {gate} ]; do sleep 0.05; done",
            **({"deps": f"s{number - 1}"} if number else {}),
        }
        for number in range(STEPS)
    }
    return json.dumps({"name": name, "docker_env": "none", "entry_points": steps})


def test_a_frozen_leader_is_followed_by_the_other_one_and_doubles_nothing_when_it_goes_on(
    pair: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    first, second = pair
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    before = create(first, chain("before", ledger, gate))
    eventually(lambda: ledger.exists(), "its first step runs")
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        during = create(second, chain("during", ledger, gate))

        def taken_over() -> bool:
            return "jobID" in json.dumps(call(second, "GET", f"/run/{during}")).replace('"jobID": ""', "")

        eventually(taken_over, "the other server moves runs")
        assert ledger.read_text() == "before-0\n", "processes are started on their machine only"
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    gate.touch()
    for run in (before, during):
        assert ended(second, run)["status"] == "succeeded"
    wanted = [f"{name}-{number}" for name in ("before", "during") for number in range(STEPS)]
    assert sorted(ledger.read_text().split()) == wanted
