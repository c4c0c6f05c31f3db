"""Where members go: taints, spreading, keeping a gang together, and waiting a while for nodes that hold the data."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling import rules
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Snapshot, Start

PLAIN = Queue("q", None)
SPREAD = Queue("q", None, placement="spread")


def cpus(cpu: int) -> Resources:
    return Resources.of(cpu * 1000, cpu)


def request(job: str = "j", count: int = 1, cpu: int = 1, **more: object) -> Request:
    return Request(job, "q", (MemberSet("w", count, cpus(cpu)),), 0.0, 0, **more)  # type: ignore[arg-type]


def core_of(*nodes: Node, queue: Queue = PLAIN) -> Core:
    return Core.of(Snapshot(0.0, nodes, (queue,), (), ()))


def places(core: Core, now: float = 0.0) -> dict[str, list[str]]:
    return {d.job: [a.node for a in d.assignments] for d in core.decide(now) if isinstance(d, Start)}


def test_a_tainted_node_takes_only_jobs_that_tolerate_it() -> None:
    core = core_of(Node("bad", cpus(9), taints=("maintenance",)), Node("good", cpus(1)))
    core.submit_many([request("a"), request("b"), request("c", tolerates=("maintenance", "other"))])
    assert places(core) == {"a": ["good"], "c": ["bad"]}
    assert core.why("b").code == "busy"
    core = core_of(Node("bad", cpus(9), taints=("maintenance",)))
    core.submit_many([request("a")])
    core.decide(0.0)
    assert core.why("a").text == "all 1 nodes have taints that the job does not tolerate: maintenance"


def test_a_queue_spreads_or_packs() -> None:
    nodes = [Node(f"n{i}", cpus(4)) for i in range(3)]
    core = core_of(*nodes, queue=SPREAD)
    core.submit_many([request("gang", 3), request("more", 3)])
    assert all(sorted(names) == ["n0", "n1", "n2"] for names in places(core).values())
    core = core_of(*nodes)
    core.submit_many([request("gang", 3), request("one")])
    assert len({name for names in places(core).values() for name in names}) == 1
    core.set_queues([SPREAD])
    core.submit_many([request("next")])
    assert places(core)["next"][0] != core.allocations["one"].assignments[0].node


def test_a_gang_stays_in_one_rack_if_it_can() -> None:
    nodes = [Node(f"n{i}", cpus(2), {"rack": str(i // 2)}) for i in range(6)]
    core = core_of(*nodes)
    core.submit_many([request("one"), request("gang", 4, together="rack"), request("large", 6, together="rack")])
    found = places(core)
    assert len({int(name[1]) // 2 for name in found["gang"]}) == 1
    assert len(found["large"]) == 6, "one that is too large for a rack starts all the same"


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_together_is_kept_whenever_some_rack_has_room(random: Random) -> None:
    nodes = [Node(f"n{i}", cpus(random.randint(1, 4)), {"rack": random.choice("abc")}) for i in range(6)]
    core = core_of(*nodes)
    for number in range(6):
        count = random.randint(1, 6)
        free: dict[str, int] = {}
        for state in core.cluster.states.values():
            rack = state.node.labels["rack"]
            free[rack] = free.get(rack, 0) + state.cpu // 1000
        core.submit_many([request(f"j{number}", count, together="rack")])
        racks = {core.cluster.states[name].node.labels["rack"] for name in places(core).get(f"j{number}", [])}
        if max(free.values()) >= count:
            assert len(racks) == 1
        elif sum(free.values()) >= count:
            assert len(racks) > 1
        else:
            assert not racks
        core.withdraw(f"j{number}")


def test_a_job_waits_a_while_for_its_data_and_not_longer() -> None:
    core = core_of(Node("warm", cpus(2)), Node("cold", cpus(2)))
    data = ("warm",)
    core.submit_many([request("first", 1, 2, data=data), request("second", 1, 2, data=data), request("any")])
    assert places(core) == {"first": ["warm"], "any": ["cold"]}
    core.release("any")
    assert places(core, 1.0) == {}
    assert core.why("second").code == "data"
    assert places(Core.of(core.snapshot(rules.DEFAULTS.data_wait)), rules.DEFAULTS.data_wait) == {"second": ["cold"]}
    core.release("first")
    assert places(core, 2.0) == {"second": ["warm"]}
    core = core_of(Node("cold", cpus(2)))
    core.submit_many([request("j")._replace(data=data)])
    assert places(core) == {"j": ["cold"]}, "nobody holds the data, so there is nothing to wait for"


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_of_nodes_with_room_those_that_hold_most_are_taken(random: Random) -> None:
    room = {f"n{i}": random.randint(0, 4) for i in range(6)}
    rule = replace(rules.DEFAULTS, data_wait=0.0)
    core = Core.of(
        Snapshot(0.0, tuple(Node(name, cpus(free)) for name, free in room.items()), (PLAIN,), (), (), rules=rule)
    )
    data = tuple(random.sample([*room, "gone"], random.randint(1, 5)))
    count = random.randint(1, 6)
    core.submit_many([request("j", count, data=data)])
    found = places(core).get("j", [])
    assert len(found) == (count if sum(room.values()) >= count else 0), "no job waits for its data"
    enough = next((at for at in range(1, len(data) + 1) if sum(room.get(n, 0) for n in data[:at]) >= count), None)
    if enough is not None:
        assert set(found) <= set(data[:enough]), "the fewest of those that hold most"
    assert Core.of(core.snapshot(0.0)).snapshot(0.0) == core.snapshot(0.0)
