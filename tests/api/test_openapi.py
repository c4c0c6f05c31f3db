"""``/openapi.json`` describes every route truly: by its own structure, and by what schemathesis finds over all routes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.types import ASGIApp

from paddleflow.access import tokens, users
from paddleflow.api import health, metrics
from paddleflow.api.application import build
from paddleflow.api.openapi import describe
from paddleflow.api.platform import Compute, Platform
from paddleflow.api.routing import PREFIX, Route
from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.settings import ServerSettings, Settings
from paddleflow.spec.document import decode
from paddleflow.store.bus import LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.workshop import OneEngine

#: Answer 503 here, rightly: nobody schedules in this application.
WITHOUT_ENGINE = {"/readyz", f"{PREFIX}/queue/whatif", f"{PREFIX}/scheduler/replay"}
EXAMPLES = 4  #: per operation and mode; the whole stays well under a minute
CAPACITY = Resources.of(16_000, 64 * 2**30, {"nvidia.com/gpu": 4000})
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
#: Names that exist, so that half of the examples come past the first 404.
EXISTING = {"username": "alice", "id": "job-seed", "queue": "default-queue"}
NAMES = {"queue": "default-queue", "cluster": "default-cluster", "flavour": "flavour1", "resourcepool": "x", "fs": "x"}


@pytest.fixture
def all_routes(routes: list[Route]) -> list[Route]:
    return [*health.ROUTES, *metrics.ROUTES, *routes]


# ---- structure ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", [""])
async def test_the_description_is_served_to_everybody(nobody: Api, routes: list[Route]) -> None:
    description = (await nobody.call("GET", "/openapi.json", absolute=True)).ok()
    described = {(method.upper(), path) for path, item in description["paths"].items() for method in item}
    expected = {(route.method, route.prefix + route.path) for route in (*health.ROUTES, *metrics.ROUTES, *routes)}
    assert described == expected | {("GET", "/openapi.json")}


def test_every_reference_leads_somewhere_and_every_operation_is_named_once(all_routes: list[Route]) -> None:
    description = describe(all_routes)
    schemas = description["components"]["schemas"]
    for reference in _references(description):
        assert reference.removeprefix("#/components/schemas/") in schemas
    operations = [operation for item in description["paths"].values() for operation in item.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    for operation in operations:
        assert operation["summary"]
        assert "500" in operation["responses"]


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_security_is_said_as_it_is(all_routes: list[Route]) -> None:
    description = describe(all_routes)
    for route in all_routes:
        operation = description["paths"][route.prefix + route.path][route.method.lower()]
        assert operation["security"] == ([] if route.open else [{"token": []}, {"bearer": []}])
        assert ("401" in operation["responses"]) == (not route.open or route.path == "/login")
    open_paths = {route.path for route in all_routes if route.open}
    assert open_paths == {"/healthz", "/readyz", "/metrics", "/login"}


def test_handlers_take_what_their_routes_say(all_routes: list[Route]) -> None:
    for route in all_routes:
        body, query = get_args(get_type_hints(route.handler)["call"])
        read = route.body if route.reader is decode else get_type_hints(route.reader)["return"]
        assert body == _optional(read, route.body_optional), route.path
        assert query == (route.query or type(None)), route.path


def _optional(body: type | None, optional: bool) -> Any:
    return type(None) if body is None else (body | None) if optional else body


# ---- schemathesis -------------------------------------------------------------------------------------------------


class Seeded:
    """An application with a few rows in it, and tokens for root."""

    def __init__(self, folder: Path, routes: list[Route]) -> None:
        server = ServerSettings(data=str(folder), max_body=1_000_000)
        clock = SystemClock()
        self.platform = Platform(
            settings=Settings(server=server),
            database=asyncio.run(self._database(folder)),
            clock=clock,
            bus=LocalBus(),
            compute=Compute(folder, MemoryRuntime(clock, CAPACITY), OneEngine()),
        )
        self.platform.closing.set()  # streams end at once
        self.app: ASGIApp = build(self.platform, [routes])
        client = Api(self.app, routes, self.token())
        asyncio.run(client.post("/job/single", {"id": "job-seed", "image": "x", "command": "true"})).ok()

    async def _database(self, folder: Path) -> Database:
        database = await open_database("", folder, durable=False)
        now = SystemClock().now()
        await database.write(users.add, "root", "", now)
        await database.write(users.add, "alice", "", now)
        await database.write(ensure_defaults, now, CAPACITY)
        return database

    def token(self) -> str:
        """A new token each time: some operations end the one they are called with."""
        return asyncio.run(self.platform.database.write(tokens.issue, "root", self.platform.clock.now(), 1))

    def close(self) -> None:
        asyncio.run(self.platform.database.close())


@pytest.fixture
def seeded(tmp_path: Path, routes: list[Route]) -> Iterator[Seeded]:
    made = Seeded(tmp_path, routes)
    yield made
    made.close()


def test_schemathesis_finds_no_fault(seeded: Seeded, routes: list[Route]) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", seeded.app)
    operations = [_sound(result) for result in schema.get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    tried = 0
    faults: list[str] = []
    for operation, mode in itertools.product(operations, modes):
        if operation.path in WITHOUT_ENGINE or not _applies(operation, mode):
            continue
        positive = mode is schemathesis.GenerationMode.POSITIVE
        for known in ((False, True) if positive else (True,)) if "{" in operation.path else (False,):
            tried += 1
            try:
                _fuzz(operation, mode, seeded.token(), _known(operation.path) if known else None)
            except* (schemathesis.errors.SchemathesisError, AssertionError) as group:
                faults.extend(f"{operation.label}: {error}" for error in group.exceptions)
    assert not faults, "\n\n".join(faults)
    assert tried > len(routes)


def _sound(result: Any) -> schemathesis.APIOperation[Any, Any, Any, Any]:
    """Any operation that schemathesis could read; it raises for one that it could not."""
    operation: schemathesis.APIOperation[Any, Any, Any, Any] = result.ok()
    return operation


def _applies(operation: Any, mode: schemathesis.GenerationMode) -> bool:
    """Whether there is anything that could be wrong: an operation without input has no negative examples."""
    return mode is schemathesis.GenerationMode.POSITIVE or bool(list(operation.iter_parameters()) or operation.body)


def _known(path: str) -> dict[str, str]:
    kind = path.removeprefix(PREFIX).split("/")[1]
    return EXISTING | ({"name": NAMES[kind]} if kind in NAMES else {})


def _fuzz(operation: Any, mode: schemathesis.GenerationMode, token: str, known: dict[str, str] | None) -> None:
    names = {parameter.name for parameter in operation.path_parameters} if known else set()
    fixed = {name: value for name, value in (known or {}).items() if name in names} or None

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=fixed))
    def fuzz(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers={"x-pf-authorization": token}, checks=CHECKS)

    fuzz()
