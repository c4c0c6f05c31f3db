"""Operators that work on the same jobs find each other, and only those."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import EVENTS, LEASES, NAMESPACES
from paddleflow.operator.scope import Scope, overlap
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon


class Operators:
    """Several on one API server."""

    def __init__(self) -> None:
        self.server = MemoryApiServer()
        self.client = Client(self.server)
        self.recorder = Recorder(self.client, "test", ManualClock())

    async def make(self, installation: str, namespace: str = "", **options: Any) -> Scope:
        home = installation.partition("/")[0]
        for name in filter(None, (home, namespace)):
            if not any(each["metadata"]["name"] == name for each in (await self.client.list(NAMESPACES)).items):
                await self.client.create(NAMESPACES, NAMESPACES.object(name))
        clock = ManualClock()
        options = {"leads": lambda: True, "interval": 0.01, **options}
        self.clocks = [*getattr(self, "clocks", []), clock]
        return Scope(
            self.client, self.recorder, clock, installation=installation, namespace=namespace, home=home, **options
        )

    async def rounds(self, *scopes: Scope) -> None:
        for _ in range(3):  # seen, changed since, and once more for whoever came later
            for clock in self.clocks:
                clock.advance(30.0)
            for scope in scopes:
                await scope.check()


@pytest.mark.parametrize(
    ("one", "other", "found"), [("", "", True), ("a", "", True), ("", "a", True), ("a", "a", True), ("a", "b", False)]
)
def test_scopes_overlap_in_a_namespace(one: str, other: str, found: bool) -> None:
    assert overlap(one, other) is found


async def test_two_operators_of_all_namespaces_warn_each_other() -> None:
    operators = Operators()
    one, other = await operators.make("a/operator"), await operators.make("b/operator")
    await operators.rounds(one, other)
    assert (one.overlaps, other.overlaps) == (["b/operator"], ["a/operator"])
    writing = asyncio.create_task(operators.recorder.run())
    await soon(lambda: sum("/events" in write.path for write in operators.server.writes) >= 4, "events of both leases")
    writing.cancel()
    events = (await operators.client.list(EVENTS)).items
    assert {each["reason"] for each in events} == {"ScopesOverlap"}
    assert {each["involvedObject"]["namespace"] for each in events} == {"a", "b"}


async def test_the_operator_of_all_namespaces_sees_that_of_one() -> None:
    operators = Operators()
    every, single = await operators.make("a/operator"), await operators.make("b/operator", "team")
    await operators.rounds(every, single)
    assert every.overlaps == ["b/operator"]


async def test_operators_of_different_namespaces_go_side_by_side() -> None:
    operators = Operators()
    one, other = await operators.make("a/operator", "team"), await operators.make("b/operator", "research")
    await operators.rounds(one, other)
    assert one.overlaps == other.overlaps == []


async def test_one_that_is_gone_does_not_count() -> None:
    operators = Operators()
    one, gone = await operators.make("a/operator"), await operators.make("b/operator")
    await gone.check()
    await operators.rounds(one)
    assert one.overlaps == []


async def test_replicas_of_one_operator_are_one_and_followers_are_silent() -> None:
    operators = Operators()
    leader = await operators.make("a/operator")
    follower = await operators.make("a/operator", leads=lambda: False)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(leader.run()), group.create_task(follower.run())]
        await soon(lambda: sum(write.method == "PUT" for write in operators.server.writes) > 3, "some rounds")
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert len((await operators.client.list(LEASES)).items) == 1, "a follower withdraws nothing"
        tasks[0].cancel()
    assert leader.overlaps == []
    assert (await operators.client.list(LEASES)).items == [], "who leaves withdraws what it announced"
