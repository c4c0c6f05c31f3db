"""Drives a round-based policy over training jobs, with the core's ledger as the judge of every allocation.

Each round: time passes for those who run, the policy says who has what from now on, and whatever changed is released
and held again in the `Core`; then everything is checked. A job that ends inside a round keeps its GPUs until the round
is over, as the published simulator has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Node, Queue, Request
from paddleflow.scheduling.rounds.model import Policy, Spread, gpus
from paddleflow.simulator.applications import Application
from paddleflow.simulator.checks import check
from paddleflow.simulator.traces import TrainingJob
from paddleflow.simulator.training import Training

GPU = "gpu"
_QUEUE = "training"
_ONE = Resources.of(0, 0, {GPU: 1000})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job."""

    job: str
    submitted_at: float
    started_at: float
    finished_at: float
    restarts: int
    served: float  #: GPU seconds

    @property
    def completion(self) -> float:
        return self.finished_at - self.submitted_at


def nodes_of(count: int, gpus_each: int) -> list[Node]:
    return [Node(f"node-{i:02}", Resources.of(0, 0, {GPU: gpus_each * 1000})) for i in range(count)]


def simulate(
    policy: Policy,
    jobs: Sequence[TrainingJob],
    applications: Mapping[str, Application],
    nodes: Sequence[Node],
    adaptive: bool = False,
    fixed_gpus: bool = False,
    seconds: float = 60.0,
) -> list[Outcome]:
    """Run all jobs to their end. `adaptive`: they choose their batch; `fixed_gpus`: they take the GPUs asked for."""
    core = Core()
    core.set_nodes(nodes)
    core.set_queues([Queue(_QUEUE, None)])
    room = {node.name: node.capacity.scalar(GPU) // 1000 for node in nodes}
    todo = [Training(job, applications[job.application], adaptive, fixed_gpus) for job in jobs]
    active: dict[str, Training] = {}
    ended: dict[str, Training] = {}
    now, coming = 0.0, iter(sorted(todo, key=lambda training: training.job.submitted_at))
    next_one = next(coming, None)
    while len(ended) < len(todo):
        for training in active.values():
            training.advance(now, seconds)
        now += seconds
        for name in [name for name, training in active.items() if training.finished_at is not None]:
            ended[name] = active.pop(name)
            core.release(name)
        while next_one is not None and next_one.job.submitted_at <= now:
            active[next_one.job.job] = next_one
            next_one = next(coming, None)
        if active:
            spreads = policy.allot(now, [training.view() for training in active.values()], room)
            apply(core, active, spreads, now)
        running = [name for name, training in active.items() if training.held]
        check(core, [name for name, training in active.items() if not training.held], running, ended, now)
    return [_outcome(ended[training.job.job]) for training in todo]


def apply(core: Core, active: Mapping[str, Training], spreads: Mapping[str, Spread], now: float) -> None:
    """Make the ledger and the jobs follow the policy; releases first, so that nothing is counted twice."""
    moved = {name: spreads.get(name, ()) for name, job in active.items() if spreads.get(name, ()) != job.held}
    for name in moved:
        core.release(name)
    for name, spread in moved.items():
        training = active[name]
        if spread:
            core.allocate(_allocation(training.job, spread, now))
        training.move(spread, now)


def _allocation(job: TrainingJob, spread: Spread, now: float) -> Allocation:
    request = Request(job.job, _QUEUE, (MemberSet("worker", gpus(spread), _ONE),), job.submitted_at, 0)
    places = [node for node, count in spread for _ in range(count)]
    return Allocation(request, tuple(Assignment("worker", i, node) for i, node in enumerate(places)), now)


def _outcome(training: Training) -> Outcome:
    assert training.started_at is not None
    assert training.finished_at is not None
    job = training.job
    return Outcome(
        job.job, job.submitted_at, training.started_at, training.finished_at, training.restarts, training.served
    )


def mean_completion(outcomes: Iterable[Outcome]) -> float:
    times = [outcome.completion for outcome in outcomes]
    return sum(times) / len(times)
