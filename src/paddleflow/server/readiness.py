"""What ``/readyz`` asks besides the database, and the gauges of the same answers. The composition root puts it together.

Every check answers with words for a person when something is wrong, and with nothing when all is well.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from paddleflow.api.platform import Check
from paddleflow.base.quantity import format_bytes
from paddleflow.errors import PaddleFlowError
from paddleflow.store.database import Database, Tx
from paddleflow.store.statements import Statement

LEAST_FREE = 64 * 2**20  #: bytes below which the disk counts as full: logs and the database need some
PATIENCE = 2.0  #: seconds that a check may take
_ONE = Statement("one", "Whether the database answers.", "select 1", "select 1")


def disk_check(folder: Path, least: int = LEAST_FREE) -> Check:
    """Whether the disk of a folder has room."""

    async def check() -> str:
        try:
            free = (await asyncio.to_thread(shutil.disk_usage, folder)).free
        except OSError as error:
            return f"{folder} cannot be read: {error}"
        return f"{folder} is full: {format_bytes(free)} left, {format_bytes(least)} wanted" if free < least else ""

    return check


def database_check(database: Database) -> Check:
    """Whether the database answers."""

    def ask(tx: Tx) -> None:
        tx.value(_ONE)

    async def check() -> str:
        await database.read(ask)
        return ""

    return check


class ReadinessMetrics(Collector):
    """``pf_ready{check}``: 1 while a check finds nothing wrong, 0 while it does."""

    def __init__(self, registry: CollectorRegistry, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._found: dict[str, float] = {}
        registry.register(self)

    async def refresh(self) -> None:
        """Ask all checks again; called before every scrape."""
        for name, check in self._checks.items():
            self._found[name] = 1.0 if await _passes(check) else 0.0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("pf_ready", "Whether a check of /readyz finds nothing wrong.", labels=["check"])
        for name, value in self._found.items():
            family.add_metric([name], value)
        yield family


async def _passes(check: Check) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            return not await check()
    except (TimeoutError, PaddleFlowError):
        return False
