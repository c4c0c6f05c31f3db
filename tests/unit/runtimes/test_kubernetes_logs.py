"""Logs of containers, over streams that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Unavailable
from paddleflow.kube.client import Client, Page
from paddleflow.kube.resources import PODS, Resource, View
from paddleflow.runtimes.kubernetes import collection
from paddleflow.runtimes.kubernetes.collection import EVENTS_AT_ONCE, Kubelets, Turns, copy_log, last_warnings, task_of
from paddleflow.runtimes.log_folder import LogFolder
from tests.patience import PATIENCE

ATTEMPT = AttemptId("job-a.worker-0.1")


class Kubelet:
    """Gives a log in parts, and breaks off after so many."""

    def __init__(self, *parts: bytes) -> None:
        self.parts, self.most = parts, len(parts)

    async def follow_log(self, name: str, space: str, *, container: str) -> AsyncGenerator[bytes, None]:
        for part in self.parts[: self.most]:
            yield part
        if self.most < len(self.parts):
            raise Unavailable("the connection broke")


@pytest.mark.parametrize("most", [0, 1, 2, 3])
async def test_a_log_whose_stream_breaks_has_every_line_once(tmp_path: Path, most: int) -> None:
    kubelet, logs = Kubelet(b"one\n", b"two\nthr", b"ee\n", b"four\n"), LogFolder(tmp_path)
    client: Client = kubelet  # type: ignore[assignment]  # nothing else of a client is used
    kubelet.most = most
    for _ in range(2):
        with pytest.raises(Unavailable):
            await copy_log(client, logs, ATTEMPT, "pod", "space")
    kubelet.most = len(kubelet.parts)
    await copy_log(client, logs, ATTEMPT, "pod", "space")
    assert (await logs.read(task_of(ATTEMPT), 0, 100)).data == b"one\ntwo\nthree\nfour\n"


async def test_a_log_that_can_be_had_says_so_before_it_says_anything(tmp_path: Path) -> None:
    said: list[str] = []
    silent: Client = Kubelet(b"")  # type: ignore[assignment]  # nothing else of a client is used
    await copy_log(silent, LogFolder(tmp_path), ATTEMPT, "pod", "space", lambda: said.append("begun"))
    assert said == ["begun"]


async def test_a_turn_that_is_ended_twice_makes_room_for_one() -> None:
    turns = Turns(count=1, seconds=1000.0)
    end = await turns.take()
    end()
    end()
    await turns.take()
    next_one = asyncio.create_task(turns.take())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not next_one.done()
    next_one.cancel()


async def test_who_is_silent_holds_up_the_next_for_a_moment_only() -> None:
    turns = Turns(count=1, seconds=0.001)
    await turns.take()
    await asyncio.wait_for(turns.take(), PATIENCE)


# ---- nodes that give no logs ---------------------------------------------------------------------------------------


def test_a_node_that_refused_is_asked_for_one_pod_at_a_time() -> None:
    kubelets = Kubelets()
    assert kubelets.pause("n1", 0.0) == kubelets.pause("n1", 0.0) == 0.0
    for _ in range(100):
        kubelets.refuses("n1", 0.0)  # all that were on their way
    assert 0.0 < kubelets.pause("n1", 0.0) <= 1.1
    assert [kubelets.pause("n1", 1.0) == 0.0 for _ in range(5)] == [True, False, False, False, False]
    assert kubelets.pause("n2", 1.0) == 0.0


def test_a_node_that_refuses_for_long_is_asked_ever_more_seldom() -> None:
    kubelets = Kubelets()
    kubelets.refuses("n1", 0.0)
    asked, now = 0, 0.0
    while now < 3600.0:
        if kubelets.pause("n1", now) == 0.0:
            asked += 1
            kubelets.refuses("n1", now)
        now += 0.5
    assert 120 <= asked <= 200


def test_a_node_that_answers_is_asked_by_all() -> None:
    kubelets = Kubelets()
    kubelets.refuses("n1", 0.0)
    kubelets.answers("n1")
    assert [kubelets.pause("n1", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]


# ---- warnings ------------------------------------------------------------------------------------------------------


class Events:
    """Has a warning about every pod, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def list(self, resource: Resource, space: str, *, fields: str) -> Page:
        self.asked.append(fields)
        return Page([{"reason": "FailedMount", "message": fields.split(",")[0]}], "1")


async def test_of_a_thousand_pods_that_do_not_start_some_are_asked_about_each_time() -> None:
    events, pods = Events(), {}
    for number in range(1000):
        pod = PODS.object(f"p{number}", "default")
        pod["metadata"]["uid"] = f"uid-{number}"
        pods[AttemptId(f"job-{number}.worker-0.1")] = pod
    client: Client = events  # type: ignore[assignment]  # nothing else of a client is used
    found = [await last_warnings(client, pods) for _ in range(2)]
    assert len(events.asked) == 2 * EVENTS_AT_ONCE
    assert found[0].keys() != found[1].keys()
    for attempt, why in found[0].items():
        assert why == f"FailedMount: involvedObject.uid={pods[attempt]['metadata']['uid']}"
    few = dict(list(pods.items())[:3])
    assert (await last_warnings(client, few)).keys() == few.keys()


# ---- statistics ----------------------------------------------------------------------------------------------------


class SlowNodes:
    """Answer when as many are asked as ever will be at once."""

    def __init__(self) -> None:
        self.at_once, self.most = 0, 0

    async def raw(self, path: str) -> View:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return {"pods": [{"podRef": {"uid": "u"}, "memory": {"workingSetBytes": 1}}]}


async def test_nodes_that_do_not_answer_leave_connections_to_others() -> None:
    nodes = SlowNodes()
    client: Client = nodes  # type: ignore[assignment]  # nothing else of a client is used
    running = {(f"n{number}", "u"): AttemptId(f"job-{number}.worker-0.1") for number in range(100)}
    assert len(await collection.samples(client, running, 0.0)) == 100
    assert nodes.most == collection.NODES_AT_ONCE
