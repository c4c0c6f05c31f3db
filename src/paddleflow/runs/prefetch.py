"""Prefetch: jobs of steps that are made before their time has come, so that short steps need no turn of the engine in between.

The run machine works without it: `Prefetch` does nothing, and a reader of `machine` needs no more than its method names.
`ShortSteps` is the optimisation. While the steps of a run are short, the next ones are submitted early: those that wait for a
slot, and those that wait for a running step. Their jobs are *held back*. A runtime may begin one the moment that its
predecessor has ended well; otherwise its turn comes as always (`ReleaseJob`). Each has one predecessor and each predecessor
one successor, so no more steps of a run are running than its `parallelism` says, whichever way they begin.

Only plain steps take part: no loop, condition or cache to ask, no files to make or to measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddleflow.runs.facts import ReleaseJob, WithdrawJob
from paddleflow.runs.model import GOOD, ComponentStatus
from paddleflow.runs.state import POST, Frame, Instance, LoopGroup, Phase, RunState
from paddleflow.spec.pipeline.model import Component, Step

if TYPE_CHECKING:
    from paddleflow.runs.machine import Machine

SHORT = 0.5  #: seconds; a run whose last step took longer prefetches nothing
FURTHER = 4  #: steps that a run prefetches further with each step that was short
FURTHEST = 64  #: and no further; the more, the fewer turns of the engine
_RUNNING = frozenset({Phase.RUNNING, Phase.PREFETCHED})


class Prefetch:
    """No prefetch at all: what the machine asks, answered by doing nothing."""

    __slots__ = ("machine", "run")

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.run: RunState = machine.run

    def submitted(self, item: Instance) -> None:
        """The job of a step was submitted; its successors may be prefetched."""

    def job_succeeded(self, seconds: float | None) -> None:
        """A try took so long; None: it is not known."""

    def fetch_one(self) -> bool:
        """Prefetch one more step; False: there is none."""
        return False

    def next_ready(self) -> Instance | None:
        """The first prefetched step that waits for nothing but a slot."""
        return None

    def promote(self, item: Instance) -> None:
        """A prefetched step takes a slot and runs, as others do."""

    def withdraw(self, item: Instance) -> None:
        """A prefetched step begins at its time, as if it had not been prefetched; so do its successors."""

    def withdraw_successors(self, item: Instance) -> None:
        """The steps that were prefetched to follow this one are not to."""

    def withdraw_paused(self) -> None:
        """Breakpoints have changed: a prefetched step before which the run pauses has not begun after all."""

    def drop(self, number: int) -> None:
        """A component ends without having begun."""

    def ended(self, item: Instance) -> None:
        """A component has ended: nothing follows it any more."""


class ShortSteps(Prefetch):
    """Prefetch while the steps of the run are short."""

    __slots__ = ()

    def submitted(self, item: Instance) -> None:
        if self._plain(item.component):
            self.run.predecessors[item.number] = item
            self._fetch_successor(item)

    def job_succeeded(self, seconds: float | None) -> None:
        self.run.short_steps = self.run.short_steps + 1 if seconds is not None and seconds < SHORT else 0

    def fetch_one(self) -> bool:
        run = self.run
        if run.halting or self._full():
            return False
        if not run.queue:
            return any(self._fetch_successor(item) for item in list(run.predecessors.values()))
        item, predecessor = run.queue[0], self._free_predecessor()
        if predecessor is None or item.phase is not Phase.QUEUED or not self._plain(item.component):
            return False
        run.queue.popleft()
        self._fetch(item, predecessor)
        return True

    def next_ready(self) -> Instance | None:
        waiting = self.run.prefetched
        return next((item for item in waiting.values() if not item.frame.waits[item.child]), None) if waiting else None

    def promote(self, item: Instance) -> None:
        run = self.run
        del run.prefetched[item.number]
        item.phase, item.slot = Phase.RUNNING, True
        run.running += 1
        self.machine.commands.append(ReleaseJob(item.number))

    def withdraw(self, item: Instance) -> None:
        run = self.run
        self.withdraw_successors(item)
        del run.prefetched[item.number]
        run.predecessors.pop(item.number, None)
        run.changed.pop(item.number, None)
        run.withdrawn.append(item.number)
        self.machine.commands.append(WithdrawJob(item.number, item.job))
        if item.frame.waits[item.child]:
            del run.instances[item.number], item.frame.groups[item.child]
            return
        item.tries -= 1
        item.phase, item.job, item.predecessor = Phase.QUEUED, "", 0
        run.queue.appendleft(item)

    def withdraw_successors(self, item: Instance) -> None:
        for after in item.frame.plan.successors[item.child]:
            group = item.frame.groups.get(after)
            found = self.run.prefetched.get(group.number) if group is not None else None
            if found is not None:
                self.withdraw(found)

    def withdraw_paused(self) -> None:
        run = self.run
        for item in list(run.prefetched.values()):
            paused = item.frame.plan.path + item.name in run.breakpoints
            if item.frame.waits[item.child] and paused and item.number in run.prefetched:
                self.withdraw(item)

    def drop(self, number: int) -> None:
        if (item := self.run.prefetched.pop(number, None)) is not None:
            self.machine.commands.append(WithdrawJob(number, item.job))

    def ended(self, item: Instance) -> None:
        self.run.predecessors.pop(item.number, None)

    def _full(self) -> bool:
        run = self.run
        return not run.prefetch or len(run.prefetched) >= min(run.short_steps * FURTHER, FURTHEST)

    def _fetch_successor(self, item: Instance) -> bool:
        """Whether a component that waits for this step follows it now."""
        frame = item.frame
        return any(self._fetch_child(item, frame, after) for after in frame.plan.successors[item.child])

    def _fetch_child(self, predecessor: Instance, frame: Frame, child: int) -> bool:
        """Prefetch a component that waits for running steps only, if nothing else follows this one."""
        run, component = self.run, frame.plan.components[child]
        plain = frame.plan.path + frame.plan.names[child]
        if (
            predecessor.number not in run.predecessors
            or predecessor.phase not in _RUNNING
            or self._full()
            or frame.waits[child] > run.running + len(run.prefetched)  # seen at once, where many wait for many
            or frame.statuses[child] is not ComponentStatus.INIT
            or child in frame.groups
            or not self._plain(component)
            or plain in run.pipeline.disabled
            or plain in run.breakpoints
            or run.halting
            or frame.number == POST
            or not all(self._leads(frame, before) for before in dependencies_of(frame, child))
        ):
            return False
        group = frame.groups[child] = LoopGroup(run.take_number(), left=1, begun=True)
        item = run.instances[group.number] = Instance(group.number, frame, child)
        self._fetch(item, predecessor)
        return True

    def _fetch(self, item: Instance, predecessor: Instance) -> None:
        item.predecessor = predecessor.number
        self.run.predecessors.pop(predecessor.number, None)
        self.run.prefetched[item.number] = item
        self.machine.submit(item, Phase.PREFETCHED)

    def _free_predecessor(self) -> Instance | None:
        """The first running step without a successor; those that do not run any more are forgotten."""
        run = self.run
        for number, item in list(run.predecessors.items()):
            if item.phase in _RUNNING:
                return item
            del run.predecessors[number]
        return None

    def _leads(self, frame: Frame, child: int) -> bool:
        """Whether a component has ended well, or is a plain step that runs."""
        if frame.statuses[child] in GOOD:
            return True
        group = frame.groups.get(child)
        item = self.run.instances.get(group.number) if group is not None else None
        return item is not None and item.phase in _RUNNING and self._plain(item.component)

    def _plain(self, component: Component) -> bool:
        main = self.run.pipeline.main_fs
        return (
            isinstance(component, Step)
            and component.loop_argument is None
            and not component.condition
            and not component.cache.enable
            and not component.outputs
            and not (main is not None and main.sub_path)
        )


def dependencies_of(frame: Frame, child: int) -> list[int]:
    """The components that one waits for."""
    plan = frame.plan
    return [plan.index[name] for name in dict.fromkeys(plan.components[child].deps)]


def awaited(run: RunState, item: Instance) -> list[Instance]:
    """The running steps whose end a prefetched one waits for; empty: nothing that it could follow."""
    groups = [item.frame.groups.get(child) for child in dependencies_of(item.frame, item.child)]
    numbers = [item.predecessor, *(group.number for group in groups if group is not None)]
    return [found for number in dict.fromkeys(numbers) if (found := run.instances.get(number)) is not None]
