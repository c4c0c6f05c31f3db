"""Whatever people change wakes the engine by itself: nothing rests on the look that it takes once a second."""

from __future__ import annotations

import pytest

from paddleflow.api.platform import Platform
from paddleflow.engine.cluster_engine import Timing
from tests.api.client import Api
from tests.api.workshop import Workshop, until

pytestmark = pytest.mark.usefixtures("ready")  # a machine of 8 cores and 16Gi

TEAM = {"name": "team", "namespace": "default", "maxResources": {"cpu": "2", "mem": "8Gi"}}


async def submit(root: Api, cpu: str) -> str:
    body = {"command": "x", "flavour": {"cpu": cpu, "mem": "1Gi"}, "schedulingPolicy": {"queue": "team"}}
    job: str = (await root.post("/job/single", body)).ok()["id"]
    return job


async def test_new_jobs_stops_and_quotas_are_seen_without_a_look(
    root: Api, platform: Platform, workshop: Workshop
) -> None:
    (await root.post("/queue", TEAM)).ok()
    async with workshop.open(platform, Timing(poll=3600.0)):
        first, second, third = [await submit(root, "2") for _ in range(3)]
        await until(root, first, "running")
        await until(root, second, "pending")
        (await root.put("/queue/team", {"maxResources": {"cpu": "4"}})).ok()
        await until(root, second, "running")
        (await root.put(f"/job/{first}", action="stop")).ok()
        await until(root, first, "terminated")
        await until(root, third, "running")
