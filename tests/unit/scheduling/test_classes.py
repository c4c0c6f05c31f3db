"""Jobs that come in crowds: the scheduler takes equal ones together, and nobody can tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Snapshot, Start
from paddleflow.scheduling.record import Recorded, Submitted

NODE, QUEUE = Node("n1", Resources.of(3000, 3)), Queue("q", None)


def request(order: int, job: str, cpu: int = 1, at: float = 0.0, priority: int = 0) -> Request:
    return Request(job, "q", (MemberSet("worker", 1, Resources.of(cpu * 1000, 1)),), at, order, priority)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 2), st.sampled_from([0.0, 1.0, 2.0]), st.integers(0, 1))))
def test_jobs_that_come_together_wait_as_if_they_had_come_one_by_one(
    jobs: list[tuple[int, int, float, int]],
) -> None:
    requests = [request(order, f"j{name}", cpu, at, priority) for order, (name, cpu, at, priority) in enumerate(jobs)]
    together, singly = (Recorded.of(Snapshot(0.0, (NODE,), (QUEUE,), (), ())) for _ in range(2))
    for core in (together, singly):
        core.begin()
        core.submit(request(-1, "j0", at=1.5))
    half = len(requests) // 2
    new = together.submit_many(requests[:half]) + together.submit_many(requests[half:])
    assert new == sum([singly.submit(each) for each in requests])
    assert [entry for entry in together.take() if isinstance(entry, Submitted)][1:] == [
        entry for entry in singly.take() if isinstance(entry, Submitted)
    ][1:]
    for _ in range(6):
        decisions = together.decide(3.0)
        assert decisions == singly.decide(3.0)
        for decision in decisions:
            if isinstance(decision, Start):
                assert together.release(decision.job)
                assert singly.release(decision.job)
