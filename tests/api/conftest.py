"""The application over a real database, on each engine, and clients that call it in process."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from starlette.types import ASGIApp

import paddleflow.api
from paddleflow.access import tokens, users
from paddleflow.api import events, health, metrics
from paddleflow.api.application import build
from paddleflow.api.platform import Platform, Streaming
from paddleflow.api.routing import Route
from paddleflow.base.clock import ManualClock
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.settings import AccessSettings, JobSettings, ServerSettings, Settings
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.workshop import CAPACITY, Workshop

#: argon2 of "paddleflow1", with parameters so low that tests do not pay for hashes they are not about
CHEAP_HASH = "$argon2id$v=19$m=8,t=1,p=1$GICVVBfLNkWauDKCc2+UGA$80sc2fcEHitW0a4Gk5CzxRCMPPw7WqElHCTnPUFONd0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def job_settings() -> JobSettings:
    return JobSettings()


@pytest.fixture
def settings(tmp_path: Path, job_settings: JobSettings) -> Settings:
    return Settings(
        jobs=job_settings,
        server=ServerSettings(data=str(tmp_path), max_body=1_000_000, max_mounts=5, max_unfinished_uploads="2M"),
        access=AccessSettings(login_attempts=3, login_window=60, token_hours=2),
    )


@pytest.fixture
async def workshop(clock: ManualClock, settings: Settings) -> Workshop:
    """Where jobs run, when a test opens it."""
    return Workshop(clock, settings)


@pytest.fixture
def streaming() -> Streaming:
    """How often streams look; suites that wait for them look more often."""
    return Streaming()


@pytest.fixture
async def platform(
    settings: Settings, database: Database, clock: ManualClock, workshop: Workshop, streaming: Streaming
) -> Platform:
    return Platform(
        settings=settings, database=database, clock=clock, bus=LocalBus(), compute=workshop.place, streaming=streaming
    )


@pytest.fixture
async def ready(database: Database, clock: ManualClock) -> None:
    """The default cluster, queue and flavours are there, as on a server that has started."""
    await database.write(ensure_defaults, clock.now(), CAPACITY)


@pytest.fixture(scope="session")
def routes() -> list[Route]:
    """Every route of every module in ``paddleflow.api``, without those that `build` adds by itself."""
    found: list[Route] = []
    for module in sorted(pkgutil.iter_modules(paddleflow.api.__path__), key=lambda item: item.name):
        loaded = importlib.import_module(f"paddleflow.api.{module.name}")
        if loaded not in (health, metrics):
            found.extend(getattr(loaded, "ROUTES", ()))
    return found


@pytest.fixture
def app(platform: Platform, routes: list[Route]) -> ASGIApp:
    return build(platform, [routes], events.SOCKETS)


@pytest.fixture
def nobody(app: ASGIApp, routes: list[Route]) -> Api:
    """A client without a token."""
    return Api(app, [*health.ROUTES, *metrics.ROUTES, *routes])


@pytest.fixture
async def root(nobody: Api, database: Database, clock: ManualClock) -> Api:
    """A client of root, whose password is ``paddleflow1``."""
    await database.write(users.add, "root", CHEAP_HASH, clock.now())
    return nobody.with_token(await database.write(tokens.issue, "root", clock.now(), 2))


@pytest.fixture
async def alice(root: Api, database: Database, clock: ManualClock) -> Api:
    """A client of the user alice, whose password is ``paddleflow1``."""
    await database.write(users.add, "alice", CHEAP_HASH, clock.now())
    return root.with_token(await database.write(tokens.issue, "alice", clock.now(), 2))


@pytest.fixture
async def bob(root: Api, database: Database, clock: ManualClock) -> Api:
    """A client of the user bobby, whose password is ``paddleflow1``."""
    await database.write(users.add, "bobby", CHEAP_HASH, clock.now())
    return root.with_token(await database.write(tokens.issue, "bobby", clock.now(), 2))
