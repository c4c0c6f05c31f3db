"""One scenario per rule and per reason of the scheduler; the machine beside it covers their mixtures."""

from __future__ import annotations

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core, decide
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    MemberSet,
    Node,
    Queue,
    Reason,
    Request,
    Snapshot,
    Start,
    Wait,
)
from paddleflow.scheduling.reasons import impossible

GI = 2**30
GPU = "nvidia.com/gpu"


def resources(cpu: float, memory: int = 1, gpu: float = 0) -> Resources:
    return Resources.of(int(cpu * 1000), memory * GI, {GPU: int(gpu * 1000)})


def node(name: str = "n1", cpu: float = 8, memory: int = 32, gpu: float = 0, **labels: str) -> Node:
    return Node(name, resources(cpu, memory, gpu), labels)


QUEUE = Queue("default-queue", resources(20, 64, 16))
_orders = iter(range(1, 1_000_000))


def request(
    job: str,
    cpu: float = 1,
    count: int = 1,
    *,
    gpu: float = 0,
    memory: int = 1,
    queue: str = "default-queue",
    at: float = 0.0,
    priority: int = 0,
    labels: tuple[tuple[str, str], ...] = (),
) -> Request:
    member_sets = (MemberSet("worker", count, resources(cpu, memory, gpu)),)
    return Request(job, queue, member_sets, at, next(_orders), priority, node_labels=labels)


def core_of(*nodes: Node, queues: tuple[Queue, ...] = (QUEUE,)) -> Core:
    return Core.of(Snapshot(0.0, nodes, queues, (), ()))


def starts(core: Core, now: float = 0.0, limit: int | None = None) -> list[str]:
    return [d.job for d in core.decide(now, limit) if isinstance(d, Start)]


def put(core: Core, *requests: Request) -> None:
    assert core.submit_many(requests) == len(requests)


# --- order ---------------------------------------------------------------------------------------------------------


def test_priority_goes_before_age_and_age_before_order_of_arrival() -> None:
    core = core_of(node(cpu=8))
    put(core, request("late", at=2.0), request("early", at=1.0), request("urgent", at=3.0, priority=5))
    assert starts(core, 3.0) == ["urgent", "early", "late"]


def test_a_changed_priority_counts_in_the_next_cycle() -> None:
    core = core_of(node(cpu=1))
    put(core, request("a"), request("b"), request("c"))
    assert core.reprioritise("c", 1)
    assert starts(core) == ["c"]
    assert not core.reprioritise("c", 2), "it runs already"


def test_a_small_job_goes_past_a_large_one_that_waits() -> None:
    core = core_of(node(cpu=4))
    put(core, request("first", 2), request("large", 4), request("small", 2))
    assert starts(core) == ["first", "small"]


def test_nothing_goes_past_a_job_that_has_waited_longer_than_the_patience() -> None:
    core = core_of(node("n1", cpu=4), node("n2", cpu=2), queues=(QUEUE, Queue("other", None)))
    put(core, request("first", 3), request("second", 2), request("large", 4))
    assert starts(core) == ["first", "second"]
    put(core, request("small", 1, at=299.0), request("elsewhere", 1, at=299.0, queue="other"))
    core.release("second")
    assert starts(core, 300.0) == ["elsewhere", "small"], "n2 is of no use to the aged job"
    assert {core.allocations[job].assignments[0].node for job in ("elsewhere", "small")} == {"n2"}
    put(core, request("next", 1, at=300.0), request("more", 1, at=300.0, queue="other"))
    assert starts(core, 301.0) == [], "n1 is kept for it, whatever the queue"
    assert core.why("next") == Reason("order", "nodes are kept for large, which has waited longer than 300 s")
    core.release("first")
    assert starts(core, 302.0) == ["large"]
    core.release("large")
    assert set(starts(core, 303.0)) == {"next", "more"}


def test_an_aged_job_that_waits_for_devices_leaves_the_cpu_to_others() -> None:
    core = core_of(node("n1", cpu=8, gpu=2))
    put(core, request("first", 1, gpu=1), request("pair", 2, gpu=2))
    assert starts(core) == ["first"]
    put(core, *[request(f"cpu{i}", 1, at=300.0) for i in range(9)], request("gpu", 1, gpu=1, at=300.0))
    assert starts(core, 300.0) == [f"cpu{i}" for i in range(5)], "two of the seven are kept"
    core.release("first")
    assert starts(core, 301.0)[0] == "pair"


def test_an_aged_job_over_quota_leaves_to_others_what_it_does_not_need() -> None:
    core = core_of(node("n1", cpu=64, gpu=8), queues=(Queue("default-queue", resources(8, 64, 2)),))
    put(core, request("first", 1, gpu=1), request("pair", 2, gpu=2))
    assert starts(core) == ["first"]
    put(core, *[request(f"cpu{i}", 1, at=300.0) for i in range(9)], request("gpu", 1, gpu=1, at=300.0))
    assert starts(core, 300.0) == [f"cpu{i}" for i in range(5)]
    assert core.why("gpu") == Reason("order", "pair has waited 300 s and goes first in queue default-queue")
    core.release("first")
    assert starts(core, 301.0)[0] == "pair"


def test_a_stream_of_small_jobs_does_not_starve_a_large_gang() -> None:
    core, running, now = core_of(node(cpu=4)), list[str](), 0.0
    put(core, request("s0", 1), request("gang", 1, 4))
    while now < 1000:
        put(core, *[request(f"s{now}-{i}", 1, at=now) for i in range(2)])
        running += starts(core, now)
        if "gang" in running:
            break
        now += 10.0
        core.release(running.pop(0))
    assert now < 400


def test_a_job_that_can_never_start_holds_nobody_up() -> None:
    core = core_of(node(cpu=4))
    put(core, request("giant", 5), request("over", 21), request("small", 1))
    assert starts(core, 1000.0) == ["small"]


def test_a_clock_that_jumps_back_stops_nothing() -> None:
    core = core_of(node(cpu=4))
    put(core, request("first", 3, at=1000.0), request("large", 4, at=1000.0), request("small", 1, at=1000.0))
    assert starts(core, 1400.0, limit=1) == ["first"]
    assert starts(core, 1400.0) == []
    assert starts(core, 900.0) == [], "what is kept stays kept"
    core.release("first")
    assert starts(core, 901.0) == ["large"]
    core.release("large")
    assert starts(core, 800.0) == ["small"]


# --- quota, gangs, places ---------------------------------------------------------------------------------------------


def test_the_maximum_of_a_queue_bounds_what_runs() -> None:
    core = core_of(node(cpu=64), queues=(Queue("default-queue", resources(3, 64)),))
    put(core, *[request(f"j{i}") for i in range(5)])
    assert starts(core) == ["j0", "j1", "j2"]
    assert core.usage("default-queue") == resources(3, 3)
    core.release("j1")
    assert starts(core) == ["j3"]


def test_a_scalar_that_the_maximum_does_not_name_is_not_allowed() -> None:
    core = core_of(node(gpu=8), queues=(Queue("default-queue", resources(8, 64)),))
    put(core, request("g", gpu=1))
    assert starts(core) == []
    assert core.why("g").code == "quota"


def test_a_gang_starts_whole_or_not_at_all() -> None:
    core = core_of(node("n1", cpu=2), node("n2", cpu=1))
    put(core, request("four", 1, 4), request("three", 1, 3))
    (start, wait) = core.decide(0.0)
    assert isinstance(start, Start)
    assert isinstance(wait, Wait)
    assert (start.job, wait.job) == ("three", "four")
    assert sorted(a.node for a in start.assignments) == ["n1", "n1", "n2"]
    assert [a.index for a in start.assignments] == [0, 1, 2]


def test_two_roles_start_together() -> None:
    core = core_of(node("n1", cpu=4), node("n2", cpu=4))
    member_sets = (MemberSet("ps", 2, resources(1)), MemberSet("worker", 2, resources(3)))
    put(core, Request("ps-job", "default-queue", member_sets, 0.0, 0))
    (start,) = core.decide(0.0)
    assert isinstance(start, Start)
    assert [(a.role, a.index) for a in start.assignments] == [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    assert {a.node for a in start.assignments if a.role == "worker"} == {"n1", "n2"}


def test_the_tightest_node_is_taken_and_nodes_with_devices_are_spared() -> None:
    core = core_of(node("big", cpu=16), node("devices", cpu=4, gpu=8), node("small", cpu=4))
    put(core, request("a", 2), request("b", 8))
    placed = {d.job: d.assignments[0].node for d in core.decide(0.0) if isinstance(d, Start)}
    assert placed == {"a": "small", "b": "big"}


def test_a_gang_stays_on_few_nodes() -> None:
    core = core_of(node("n1", cpu=1), node("n2", cpu=1), node("n3", cpu=2), node("n4", cpu=6))
    put(core, request("five", 1, 5))
    (start,) = core.decide(0.0)
    assert isinstance(start, Start)
    assert {a.node for a in start.assignments} == {"n4"}


def test_labels_of_the_job_and_of_the_queue_choose_the_nodes() -> None:
    queue = Queue("default-queue", None, node_labels=(("zone", "a"),))
    core = core_of(node("n1", zone="b"), node("n2", zone="a"), node("n3", zone="a", disk="ssd"), queues=(queue,))
    put(core, request("j", labels=(("disk", "ssd"),)), request("nowhere", labels=(("zone", "b"),)))
    decisions = core.decide(0.0)
    assert isinstance(decisions[0], Start)
    assert decisions[0].assignments[0].node == "n3"
    assert core.why("nowhere") == Reason("node_labels", "no node carries zone=a, zone=b")
    core.set_queues([Queue("default-queue", None)])
    assert starts(core) == ["nowhere"]


def test_devices_are_numbered_whole_and_shared() -> None:
    core = core_of(node(cpu=64, gpu=4))
    put(core, request("half", gpu=0.5), request("two", gpu=2), request("third", gpu=0.3), request("two-more", gpu=2))
    devices = {d.job: dict(d.assignments[0].devices)[GPU] for d in core.decide(0.0) if isinstance(d, Start)}
    assert devices == {"half": (0,), "two": (1, 2), "third": (0,)}
    core.release("two")
    put(core, request("share", gpu=0.6))
    assert starts(core) == ["two-more", "share"]
    assert [dict(core.allocations[job].assignments[0].devices)[GPU] for job in ("two-more", "share")] == [(1, 2), (3,)]


def test_a_resource_in_huge_numbers_is_counted_without_device_numbers() -> None:
    core = core_of(Node("n1", Resources.of(8000, 8, {"bandwidth": 10**12})), queues=(Queue("default-queue", None),))
    member_sets = (MemberSet("worker", 1, Resources.of(1000, 1, {"bandwidth": 6 * 10**11 + 1})),)
    put(core, Request("a", "default-queue", member_sets, 0.0, 1), Request("b", "default-queue", member_sets, 0.0, 2))
    assert starts(core) == ["a"]
    assert core.allocations["a"].assignments[0].devices == ()


# --- reasons ---------------------------------------------------------------------------------------------------------


def _full(core: Core) -> Core:
    put(core, request("job-a", 8), request("job-b", 8))
    assert len(starts(core)) == 2
    return core


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        (
            request("j", 6),
            "quota",
            "queue default-queue has cpu 4 of 20 free, the job needs 6; job-b holds 8, job-a holds 8",
        ),
        (request("j", 21), "quota", "the job needs cpu 21, queue default-queue never has more than 20"),
        (
            request("j", 1, gpu=9),
            "capacity",
            "one member needs cpu: 1, mem: 1Gi, nvidia.com/gpu: 9, no node is as large; "
            "the largest, n1, has cpu: 10, mem: 32Gi, nvidia.com/gpu: 8",
        ),
        (request("j", 1, gpu=1.5), "capacity", None),
        (request("j", 1, 3, gpu=8), "quota", None),
        (request("j", 3), "fragmentation", None),
        (
            request("j", 1, memory=60),
            "capacity",
            "one member needs cpu: 1, mem: 60Gi, no node is as large; "
            "the largest, n1, has cpu: 10, mem: 32Gi, nvidia.com/gpu: 8",
        ),
        (request("j", 1, queue="nowhere"), "unknown_queue", "there is no queue nowhere"),
        (request("j", 1, queue="shut"), "closed", "queue shut is closed"),
        (request("j", 1, labels=(("zone", "x"),)), "node_labels", "no node carries zone=x"),
        (
            request("j", 6, queue="free"),
            "busy",
            "2 nodes have cpu 4 free, the job needs 6; job-b holds 8, job-a holds 8",
        ),
        (
            request("j", 2, 3, queue="free"),
            "gang",
            "2 of 3 members that need cpu: 2, mem: 1Gi would fit now; "
            "2 nodes have cpu 4 free, the job needs 6; job-b holds 8, job-a holds 8",
        ),
    ],
)
def test_every_wait_has_its_reason(wanted: Request, code: str, text: str | None) -> None:
    queues = (QUEUE, Queue("shut", None, open=False), Queue("free", None))
    core = _full(core_of(node("n1", cpu=10, gpu=8), node("n2", cpu=10), queues=queues))
    put(core, wanted)
    (wait,) = core.decide(0.0)
    assert isinstance(wait, Wait)
    assert wait.reason.code == code, wait.reason
    assert text is None or wait.reason.text == text
    assert core.why("j") == wait.reason
    assert core.decide(1.0) == [], "told once"


def test_a_reason_is_fresh_when_asked() -> None:
    core = _full(core_of(node("n1", cpu=16)))
    put(core, request("j", 4))
    core.decide(0.0)
    assert core.why("j").code == "busy"
    core.release("job-a")
    assert core.why("j").code == "next"
    assert core.why("job-b").code == "running"
    assert core.why("never-heard").code == "unknown_job"


def test_what_can_never_start_is_known_at_submission() -> None:
    nodes = [node("n1", cpu=4), node("n2", cpu=8)]
    assert impossible(request("j", 8), nodes, QUEUE) is None
    assert impossible(request("j", 4, 3), nodes, None) is None
    for wanted, code, named in [
        (request("j", 9), "capacity", "n2"),
        (request("j", 8, 2), "capacity", "only 1 of 2 members"),
        (request("j", 1, 21), "quota", "never has more than 20"),
        (request("j", labels=(("zone", "x"),)), "node_labels", "zone=x"),
        (request("j", -1), "invalid", "less than nothing"),
    ]:
        reason = impossible(wanted, nodes, QUEUE)
        assert reason is not None
        assert reason.code == code
        assert named in reason.text
        assert core_of(*nodes).impossible(wanted) == reason
    assert impossible(request("j", 8), [], QUEUE) is None, "no node has reported yet"


# --- bad input ---------------------------------------------------------------------------------------------------------


def test_a_node_that_vanishes_leaves_its_jobs_their_quota() -> None:
    core = core_of(node("n1", cpu=4), queues=(Queue("default-queue", resources(4, 8)),))
    put(core, request("a", 3), request("b", 3))
    assert starts(core) == ["a"]
    core.set_nodes([node("n2", cpu=4)])
    assert starts(core) == []
    assert core.why("b").code == "quota"
    core.set_nodes([node("n1", cpu=4)])
    core.set_queues([Queue("default-queue", None)])
    assert starts(core) == [], "it came back, and the job with it"
    assert core.release("a")
    assert starts(core) == ["b"]


def test_what_runs_at_start_up_is_counted_even_on_nodes_that_shrank() -> None:
    running = Allocation(request("old", 6, gpu=2), (Assignment("worker", 0, "n1", ((GPU, (0, 5)),)),), 0.0)
    lost = Allocation(request("lost", 6), (Assignment("worker", 0, "gone"), Assignment("stray", 0, "n1")), 0.0)
    snapshot = Snapshot(0.0, (node(cpu=4, gpu=4),), (QUEUE,), (request("a", 1, gpu=1),), (running, lost))
    (wait,) = decide(snapshot)
    assert isinstance(wait, Wait)
    assert wait.reason.code == "busy"
    core = Core.of(snapshot)
    assert core.release("old")
    assert not core.release("old")
    assert starts(core) == ["a"]
    assert core.usage("default-queue") == resources(7, 2, 1)


def test_nonsense_neither_raises_nor_starts() -> None:
    twice = (MemberSet("w", 1, resources(1)), MemberSet("w", 1, resources(2)))
    huge = (MemberSet("w", 10**6, Resources.of(10**30, 1)),)
    core = core_of(node(), queues=(Queue("default-queue", None),))
    put(
        core,
        Request("twice", "default-queue", twice, 0.0, 0),
        request("negative", -1),
        Request("huge", "default-queue", huge, 0.0, 0),
        Request("timeless", "default-queue", (MemberSet("w", 1, resources(1)),), float("nan"), 0),
        Request("nothing", "default-queue", (), 0.0, 0),
    )
    assert set(starts(core, 1000.0)) == {"nothing", "timeless"}
    assert core.why("twice") == Reason("invalid", "role w is named twice")
    assert core.why("negative").code == "invalid"
    assert core.why("huge").code == "capacity"


def test_at_most_as_many_as_asked_for_start_and_the_rest_follow() -> None:
    core = core_of(node(cpu=8))
    put(core, *[request(f"j{i}") for i in range(5)])
    assert starts(core, limit=2) == ["j0", "j1"]
    assert core.pending_count == 3
    assert starts(core) == ["j2", "j3", "j4"]
