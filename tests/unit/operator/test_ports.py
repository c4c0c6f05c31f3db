"""Ranges of host ports: jobs are kept apart while there is room, and nobody is refused when there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.operator.paddlejob.contract import PORTS, choose_host_port

LOW = 35000


def blocks_of(first: int, members: int, blocks: int) -> set[int]:
    return {((first - LOW) // PORTS + offset) % blocks for offset in range(members)}


@given(
    st.integers(1, 40),
    st.integers(0, PORTS - 1),
    st.lists(st.tuples(st.text(max_size=8), st.integers(1, 12))),
    st.data(),
)
def test_jobs_share_ports_only_when_no_free_range_is_left(
    blocks: int, rest: int, jobs: list[tuple[str, int]], data: st.DataObject
) -> None:
    high = LOW + blocks * PORTS + rest
    taken: dict[int, tuple[int, int]] = {}
    for number, (uid, members) in enumerate(jobs):
        ends = data.draw(st.booleans(), label="one ends")
        if taken and ends:
            del taken[data.draw(st.sampled_from(sorted(taken)))]
        used = set[int]().union(*(blocks_of(*each, blocks) for each in taken.values()))
        first = choose_host_port(uid, members, LOW, high, taken.values())
        assert (first - LOW) % PORTS == 0
        assert LOW <= first <= high - PORTS
        free = [
            begin for begin in range(blocks) if not blocks_of(LOW + begin * PORTS, min(members, blocks), blocks) & used
        ]
        if free:
            assert not blocks_of(first, members, blocks) & used
        taken[number] = first, members


def test_the_same_job_gets_the_same_ports_and_others_get_others() -> None:
    assert choose_host_port("a", 3, LOW, 65000, []) == choose_host_port("a", 3, LOW, 65000, [])
    firsts = {choose_host_port(f"job-{number}", 1, LOW, 65000, []) for number in range(50)}
    assert len(firsts) > 40, "jobs begin all over the range, so that an operator that knows of none seldom meets one"


def test_a_range_that_reaches_over_the_end_goes_on_at_the_beginning() -> None:
    high = LOW + 4 * PORTS
    first = choose_host_port("a", 2, LOW, high, [(LOW + PORTS, 2)])
    assert first == LOW + 3 * PORTS, "blocks 1 and 2 are taken: what is left is the last and the first"
