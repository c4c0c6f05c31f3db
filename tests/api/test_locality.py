"""Of nodes with room, a job gets the one whose cache holds most of its file systems; and it is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.locality import REFRESH
from paddleflow.runtimes.runtime import NodeInfo
from tests.api.client import Api
from tests.api.workshop import Workshop, until

pytestmark = pytest.mark.usefixtures("ready")
NODES = ("first", "second", "third")


async def report(root: Api, storage: str, node: str, held: int) -> None:
    """What a mount of the file system's client says."""
    made = (await root.post(f"/fs/{storage}/mounts", {"node": node, "folder": "/mnt"})).ok(201)
    (await root.put(f"/fs/{storage}/mounts/{made['mountID']}", {"cachedBytes": held})).ok()


def node_of(workshop: Workshop, job: str) -> str:
    (found,) = [each.node for each in workshop.runtime.cluster.launched if each.attempt.startswith(f"{job}.")]
    return found


async def place(root: Api, workshop: Workshop, job: str, *storages: str) -> str:
    """The node that a job gets."""
    body = {
        "id": job, "command": "x", "flavour": {"cpu": "1", "mem": "1Mi"}, "extraFS": [{"name": each} for each in storages],
    }  # fmt: skip
    (await root.post("/job/single", body)).ok()
    await until(root, job, "running")
    return node_of(workshop, job)


async def test_a_job_goes_where_its_data_is(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock, tmp_path: Path
) -> None:
    workshop.runtime.set_nodes([NodeInfo(name, "127.0.0.1", Resources.of(2000, 2**30)) for name in NODES])
    for name in ("pictures", "words"):
        (tmp_path / name).mkdir()
        (await root.post("/fs", {"name": name, "url": f"local://{tmp_path / name}"})).ok(201)
    await report(root, "pictures", "third", 3 * 2**30)
    await report(root, "pictures", "second", 2**30)
    await report(root, "pictures", "laptop", 2**40)
    async with workshop.open(platform):
        assert await place(root, workshop, "job-a", "pictures") == "third"
        assert await place(root, workshop, "job-b", "pictures") == "third"
        assert await place(root, workshop, "job-c", "pictures") == "second", "the next best; it waits for nobody"
        assert await place(root, workshop, "job-d", "words") == "second", "packed as ever"
        assert await place(root, workshop, "job-e") == "first"
        told = (await root.get("/job/job-b/why")).ok()
        assert {"code": "locality", "text": "node third holds 3.0 GiB of its file systems; most of them is on node laptop: 1024.0 GiB"} in told["causes"]  # fmt: skip
        assert (await root.get("/job/job-d/why")).ok()["causes"] == []
        await report(root, "words", "first", 2**20)
        clock.advance(REFRESH)
        workshop.finish("job-e.worker-0.1")
        await until(root, "job-e", "succeeded")
        assert await place(root, workshop, "job-f", "words") == "first"


async def test_jobs_that_waited_for_a_server_go_there_too(
    root: Api, platform: Platform, workshop: Workshop, tmp_path: Path
) -> None:
    workshop.runtime.set_nodes([NodeInfo(name, "127.0.0.1", Resources.of(2000, 2**30)) for name in NODES])
    (tmp_path / "words").mkdir()
    (await root.post("/fs", {"name": "words", "url": f"local://{tmp_path / 'words'}"})).ok(201)
    await report(root, "words", "second", 2**20)
    for job, storages in (("job-a", ["words"]), ("job-b", [])):
        body = {
            "id": job,
            "command": "x",
            "flavour": {"cpu": "1", "mem": "1Mi"},
            "extraFS": [{"name": s} for s in storages],
        }
        (await root.post("/job/single", body)).ok()
    async with workshop.open(platform):
        await until(root, "job-a", "running")
        await until(root, "job-b", "running")
    assert node_of(workshop, "job-a") == "second"
