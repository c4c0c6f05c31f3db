"""An executor for training jobs: progress from measured step times and statistical efficiency, with a restart cost.

A `Training` is told where it runs from now on and how many seconds pass; it says when it is done. It decides nothing but
the size of its batch, which belongs to the training and not to the scheduler: fixed as its owner asked, or the one with
most progress a second for where it stands (`adaptive`).
"""

from __future__ import annotations

from functools import partial

from paddleflow.scheduling.rounds.model import RoundJob, Spread, gpus
from paddleflow.simulator.applications import Application, Batch, packed
from paddleflow.simulator.traces import TrainingJob

RESTART = 30.0  #: seconds lost when a job starts or is moved


class Training:
    """One job from submission to its last epoch."""

    def __init__(self, job: TrainingJob, application: Application, adaptive: bool, fixed_gpus: bool) -> None:
        self.job = job
        self.application = application
        self.held: Spread = ()
        self.finished_at: float | None = None
        self.started_at: float | None = None
        self.served = 0.0  #: GPU seconds
        self.restarts = -1  #: the first start is none
        self._adaptive = adaptive and application.scalable
        self._fixed_gpus = fixed_gpus
        self._batch = Batch(0, 0)
        self._epoch = 0
        self._progress = 0.0
        self._delay = 0.0

    @property
    def most(self) -> int:
        """GPUs it may have."""
        if self._fixed_gpus:
            return self.job.gpus
        if not self.application.scalable:
            return 1
        size = self.application.largest_batch if self._adaptive else self.job.batch_size
        return size // self.application.smallest_local

    def move(self, spread: Spread, now: float) -> None:
        """It runs there from now on; nowhere, if empty."""
        self.held = spread
        if spread:
            self._delay = RESTART
            self.restarts += 1
            self.started_at = now if self.started_at is None else self.started_at
            self._choose_batch()

    def advance(self, now: float, seconds: float) -> None:
        """Time passes from `now` on."""
        if not self.held or self.finished_at is not None:
            return
        workers = gpus(self.held)
        delay = min(self._delay, seconds)
        self._delay -= delay
        passed = delay
        placement = tuple(count for _, count in self.held)
        while passed < seconds:
            size = self._batch.size(workers)
            rate = self.application.gain(size, self._epoch) / self.application.step_time(placement, self._batch)
            target = self.application.progress_after[self._epoch + 1]
            if self._progress + rate * (seconds - passed) < target:
                self._progress += rate * (seconds - passed)
                passed = seconds
                break
            passed += round((target - self._progress) / rate)  # whole seconds, as the published simulator counts
            self._progress = target
            self._epoch += 1
            if self._epoch >= self.application.epochs:
                self.finished_at = now + passed
                break
            self._choose_batch()
        self.served += passed * workers

    def _choose_batch(self) -> None:
        workers = gpus(self.held)
        if self._adaptive:
            self._batch = self.application.best_batch(len(self.held), workers, self._epoch)[0]
        else:
            self._batch = self.application.fixed_batch(self.job.batch_size, workers)

    def view(self) -> RoundJob:
        """What a policy is shown of it."""
        return RoundJob(
            self.job.job, self.job.submitted_at, self.most, self.held, self.served, max(0, self.restarts),
            self._remaining(), partial(_step_time, self.application, self.job.batch_size),
            partial(_rate, self.application, self._epoch) if self._adaptive else _no_rate,
        )  # fmt: skip

    def _remaining(self) -> float:
        last, size = self.application.epochs - 1, self.job.batch_size
        if last <= self._epoch:
            return 1.0
        return self.application.iteration(size, last) - self.application.iteration(size, self._epoch)


def _step_time(application: Application, batch_size: int, count: int) -> float:
    batch = application.fixed_batch(batch_size, count)
    if count == 1 and batch.extra_passes == 0:  # one GPU passes twice, so that its gradient noise can be known
        batch = Batch(-(-batch_size // 2), 1)
    return application.step_time(packed(count), batch)


def _rate(application: Application, epoch: int, nodes: int, count: int) -> float:
    return application.best_batch(nodes, count, epoch)[1]


def _no_rate(nodes: int, count: int) -> float:
    return float(count)
