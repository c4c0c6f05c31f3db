"""Health, readiness and the metrics of requests."""

from __future__ import annotations

import pytest

from paddleflow.api import health
from paddleflow.api.application import build
from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.errors import Unavailable
from paddleflow.settings import Settings
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database
from tests.api.client import Api


@pytest.fixture
def database_url() -> str:
    """Nothing here depends on the engine."""
    return ""


async def test_health(nobody: Api, platform: Platform) -> None:
    assert (await nobody.call("GET", "/healthz", absolute=True)).ok() == {"status": "ok"}
    assert (await nobody.call("GET", "/readyz", absolute=True)).ok() == {"status": "ok"}
    platform.closing.set()
    answer = (await nobody.call("GET", "/readyz", absolute=True)).refused(503, "InternalError")
    assert answer["details"] == [{"where": "server", "message": "is stopping"}]
    (await nobody.call("GET", "/healthz", absolute=True)).ok()


async def test_readiness_asks_every_check(settings: Settings, database: Database, clock: ManualClock) -> None:
    async def good() -> str:
        return ""

    async def bad() -> str:
        return "has no lease"

    async def failing() -> str:
        raise Unavailable("the disk is full")

    checks = {"good": good, "engine": bad, "disk": failing}
    platform = Platform(settings=settings, database=database, clock=clock, bus=LocalBus(), checks=checks)
    client = Api(build(platform, []), health.ROUTES)
    answer = (await client.call("GET", "/readyz", absolute=True)).refused(503, "InternalError")
    assert [fault["where"] for fault in answer["details"]] == ["engine", "disk"]
    await database.close()
    client_faults = (await client.call("GET", "/readyz", absolute=True)).refused(503, "InternalError")["details"]
    assert [fault["where"] for fault in client_faults] == ["database", "engine", "disk"]
