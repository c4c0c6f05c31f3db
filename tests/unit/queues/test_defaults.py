"""What the first start makes, and what later starts leave alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.queues.clusters import find_cluster
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.flavours import delete_flavour, flavour_names
from paddleflow.queues.model import Queue
from paddleflow.queues.queues import change_queue, find_queue
from paddleflow.spec.document import parse
from paddleflow.spec.queue import QueueChange
from paddleflow.store import counters
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database

SMALL, LARGE = Resources.of(2000, 2**30), Resources.of(8000, 2**34, {"nvidia.com/gpu": 4000})


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database("", tmp_path, durable=False)
    yield opened
    await opened.close()


async def default_queue(database: Database) -> Queue:
    found = await database.read(find_queue, "default-queue")
    assert found is not None
    return found


async def test_the_first_start(database: Database) -> None:
    await database.write(ensure_defaults, 1.0, LARGE)
    cluster = await database.read(find_cluster, "default-cluster")
    assert cluster is not None
    assert (cluster.local, cluster.online) == (True, True)
    queue = await default_queue(database)
    assert (queue.cluster, queue.namespace, queue.ceiling, queue.open) == ("default-cluster", "default", LARGE, True)
    assert await database.read(flavour_names) == ["flavour1", "flavour2", "flavour3"]


async def test_the_next_start_changes_nothing(database: Database) -> None:
    await database.write(ensure_defaults, 1.0, LARGE)
    before = await default_queue(database), await database.read(counters.value, "queues")
    await database.write(delete_flavour, "flavour2")
    await database.write(ensure_defaults, 2.0, LARGE)
    assert (await default_queue(database), await database.read(counters.value, "queues")) == before
    assert await database.read(flavour_names) == ["flavour1", "flavour3"]


async def test_the_ceiling_follows_the_machine(database: Database) -> None:
    await database.write(ensure_defaults, 1.0, LARGE)
    least = parse(QueueChange, {"minResources": {"cpu": 4, "scalarResources": {"nvidia.com/gpu": 1}}})
    await database.write(change_queue, "default-queue", least, 1.5)
    before = await database.read(counters.value, "queues")
    await database.write(ensure_defaults, 2.0, SMALL)
    queue = await default_queue(database)
    assert (queue.ceiling, queue.least, queue.updated_at) == (SMALL, Resources.of(2000), 2.0)
    assert await database.read(counters.value, "queues") > before  # who keeps a copy of it looks again


async def test_until_somebody_sets_it(database: Database) -> None:
    await database.write(ensure_defaults, 1.0, SMALL)
    await database.write(change_queue, "default-queue", parse(QueueChange, {"status": "closed"}), 2.0)
    assert (await default_queue(database)).follows
    await database.write(change_queue, "default-queue", parse(QueueChange, {"maxResources": {"cpu": 1}}), 2.0)
    await database.write(ensure_defaults, 3.0, LARGE)
    queue = await default_queue(database)
    assert (queue.ceiling, queue.open) == (Resources.of(1000, 2**30), False)
