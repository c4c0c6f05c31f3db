"""One leader: never two at once by any clock, one again soon after the other is gone."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.clock import Clock, ManualClock, SystemClock
from paddleflow.errors import Temporary
from paddleflow.kube.client import Client
from paddleflow.kube.lease import Election, Lease, LeaseLost, LeaseTiming, claim
from paddleflow.kube.resources import LEASES, Object
from paddleflow.kube.transport import Request, Response
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon

TIMING = LeaseTiming(duration=30, renew_within=20.0, every=0.05)  # reads often, and is patient with a slow machine


def test_terms_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_within < duration"):
        LeaseTiming(duration=10, renew_within=10.0)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 4.0), st.sampled_from(["try", "late", "lose"])), max_size=40)
)
def test_two_never_believe_that_they_lead(steps: list[tuple[int, float, str]]) -> None:
    """Three candidates on one record, each seeing it whenever it reads; answers may be late or lost."""
    terms = LeaseTiming(duration=5, renew_within=3.0, every=1.0)
    elections = [Election(f"c{number}", terms) for number in range(3)]
    record: Object | None = None
    count, now = 0, 0.0
    for who, pause, what in steps:
        now += pause
        election = elections[who]
        election.observe(record, now)
        if election.may_take(now):
            sent_at = now
            record = claim(record, "l", "n", election, "t")
            count += 1
            record["metadata"] = {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": str(count)}
            if what == "late":
                now += 2.0
            if what != "lose":
                election.observe(record, now)
                election.renewed(sent_at)
        assert sum(each.leads(now) for each in elections) <= 1


def test_a_record_that_changes_is_not_taken_and_one_that_stands_still_is() -> None:
    election = Election("me", LeaseTiming(duration=5, renew_within=3.0, every=1.0))

    def record(number: int, holder: str) -> Object:
        found = LEASES.object("l", "n", spec={"holderIdentity": holder, "leaseDurationSeconds": 5})
        found["metadata"].update(uid="u", resourceVersion=str(number))
        return found

    for number in range(10):
        election.observe(record(number, "other"), number * 4.0)
        assert not election.may_take(number * 4.0)
    election.observe(record(9, "other"), 40.9)
    assert not election.may_take(40.9)
    assert election.may_take(41.0)
    election.observe(record(10, ""), 41.0)
    assert election.may_take(41.0)


class Candidate:
    """A process that wants to lead, with a fenced client."""

    def __init__(self, server: MemoryApiServer, name: str, clock: Clock | None = None) -> None:
        self.lease = Lease(Client(server), "boss", "default", name, clock or SystemClock(), TIMING)
        self.fenced = Client(server, fence=self.lease.check)
        self.working = asyncio.Event()
        self.stop = asyncio.Event()
        self.lost = False

    async def run(self) -> None:
        try:
            await self.lease.lead(self.work)
        except LeaseLost:
            self.lost = True

    async def work(self) -> None:
        self.working.set()
        try:
            await self.stop.wait()
        finally:
            self.working.clear()


async def test_one_leads_and_gives_it_back_in_the_end() -> None:
    server = MemoryApiServer()
    one, two = Candidate(server, "one"), Candidate(server, "two")
    with pytest.raises(LeaseLost, match="one does not hold the lease default/boss"):
        await one.fenced.create(LEASES, LEASES.object("x", "default"))
    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        group.create_task(one.run())
        await one.working.wait()
        group.create_task(two.run())
        await one.fenced.create(LEASES, LEASES.object("x", "default"))
        for _ in range(5):  # it is renewed, and the other waits
            before = (await one.fenced.get(LEASES, "boss", "default"))["spec"]["renewTime"]
            server.writes.clear()
            await soon(lambda: server.writes, f"a renewal after {before}")
        one.lease.check()
        assert not two.working.is_set()
        one.stop.set()
        await two.working.wait()
        with pytest.raises(LeaseLost):
            one.lease.check()
        found = (await two.fenced.get(LEASES, "boss", "default"))["spec"]
        assert (found["holderIdentity"], found["leaseTransitions"]) == ("two", 1)
        two.stop.set()
    assert not one.lost


async def test_a_leader_that_is_cut_off_stops_before_the_next_begins() -> None:
    server = MemoryApiServer()
    cut = MemoryApiServer()  # what the first one sees: nothing, once it is cut off
    cut._registry = server._registry
    clock = ManualClock()
    one, two = Candidate(cut, "one", clock), Candidate(server, "two", clock)
    both = False

    async def pass_time() -> None:
        nonlocal both
        while True:
            clock.advance(0.1)
            both = both or (one.lease.leads and two.lease.leads)
            await asyncio.sleep(0.001)

    def silent(request: Request) -> Response | None:
        return Response(503, {}, b"")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = group.create_task(one.run())
        await one.working.wait()
        second = group.create_task(two.run())
        cut.refuse = silent
        passing = group.create_task(pass_time())
        await first
        assert one.lost
        with pytest.raises(LeaseLost) as caught:
            one.lease.check()
        assert isinstance(caught.value, Temporary)
        await two.working.wait()
        two.stop.set()
        await second
        passing.cancel()
    assert not both


async def test_a_lease_that_somebody_took_ends_the_work() -> None:
    server = MemoryApiServer()
    one = Candidate(server, "one")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(one.run())
        await one.working.wait()
        thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}}
        await Client(server).patch(LEASES, "boss", "default", body=thief)
    assert one.lost
    found = await Client(server).get(LEASES, "boss", "default")
    assert found["spec"]["holderIdentity"] == "thief"


async def test_work_that_fails_gives_the_lease_back_and_says_why() -> None:
    server = MemoryApiServer()
    lease = Lease(Client(server), "boss", "default", "one", SystemClock(), TIMING)

    async def fail() -> None:
        raise ZeroDivisionError("fault")

    with pytest.raises(ExceptionGroup) as caught:
        await lease.lead(fail)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)
    assert (await Client(server).get(LEASES, "boss", "default"))["spec"]["holderIdentity"] == ""


async def test_the_moment_has_the_form_that_the_api_wants() -> None:
    server = MemoryApiServer(ManualClock())
    lease = Lease(Client(server), "boss", "default", "one", ManualClock(1_700_000_000.5), TIMING)

    async def nothing() -> None:
        return None

    await lease.lead(nothing)
    assert (await Client(server).get(LEASES, "boss", "default"))["spec"]["renewTime"] == "2023-11-14T22:13:20.500000Z"
