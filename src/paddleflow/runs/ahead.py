"""How a fact goes through a run, the part about looking ahead: steps whose jobs are made before their time has come.

While the steps of a run are short, the next ones are submitted early: those that wait for a slot, and those that wait for a step
at work. Their jobs are *held back*. A runtime may begin one the moment that its leader has ended well, without a turn of the
engine in between; otherwise its turn comes as always (`Due`). Each has one leader and each leader one follower, so no more steps
of a run are at work than its `parallelism` says, whichever way they begin.

Only plain steps follow or lead: no loop, condition or cache to ask, no files to make or to measure.
"""

from __future__ import annotations

from paddleflow.runs.beginning import Beginning
from paddleflow.runs.facts import Due, Submit, Withdraw
from paddleflow.runs.model import GOOD, ComponentStatus
from paddleflow.runs.state import POST, Frame, Group, Instance, Phase, RunState
from paddleflow.spec.pipeline.model import Component, Step

BRISK = 0.5  #: seconds; a run whose last step took longer does not look ahead
FURTHER = 4  #: steps that a run looks further ahead with each step that was short
FURTHEST = 64  #: and no further; the more, the fewer turns of the engine
_AT_WORK = frozenset({Phase.WORKING, Phase.FOLLOWING})


class Ahead(Beginning):
    """Who follows whom."""

    __slots__ = ()

    def submit(self, item: Instance, phase: Phase) -> None:
        """Ask for the job of the next try: at work now, or held back."""
        item.phase, item.status, item.message = phase, ComponentStatus.PENDING, ""
        item.tries += 1
        item.not_before = item.try_started_at = None
        item.timed_out = False
        self.run.changed[item.number] = item
        self.commands.append(Submit(item.number))
        if not self._plain(item.component):
            return
        self.run.leaders[item.number] = item
        self._let_children_follow(item)

    def look_ahead(self) -> bool:
        """Let the first step that waits for a slot follow one at work, or else one that waits for that; False when there is
        none to follow, or no room."""
        run = self.run
        if run.halting or not self._room():
            return False
        if not run.queue:
            return any(self._let_children_follow(leader) for leader in list(run.leaders.values()))
        item, leader = run.queue[0], self._leader()
        if leader is None or item.phase is not Phase.QUEUED or not self._plain(item.component):
            return False
        run.queue.popleft()
        self._follow(item, leader)
        return True

    def next_due(self) -> Instance | None:
        """The first of those ahead that waits for nothing but a slot."""
        return next((item for item in self.run.ahead.values() if not item.frame.waits[item.child]), None)

    def promote(self, item: Instance) -> None:
        """Its time has come: it takes a slot, as others do."""
        run = self.run
        del run.ahead[item.number]
        item.phase, item.slot = Phase.WORKING, True
        run.running += 1
        self.commands.append(Due(item.number))

    def unfollow(self, item: Instance) -> None:
        """It begins at its time, as if nobody had looked ahead; so does what follows it."""
        run = self.run
        for after in item.frame.plan.successors[item.child]:
            self.unfollow_child(item.frame, after)
        del run.ahead[item.number]
        run.leaders.pop(item.number, None)
        run.changed.pop(item.number, None)
        run.unbegun.append(item.number)
        self.commands.append(Withdraw(item.number, item.job))
        if item.frame.waits[item.child]:
            del run.instances[item.number], item.frame.groups[item.child]
            return
        item.tries -= 1
        item.phase, item.job, item.leader = Phase.QUEUED, "", 0
        run.queue.appendleft(item)

    def unfollow_child(self, frame: Frame, child: int) -> None:
        group = frame.groups.get(child)
        item = self.run.ahead.get(group.number) if group is not None else None
        if item is not None:
            self.unfollow(item)

    def _room(self) -> bool:
        run = self.run
        return len(run.ahead) < min(run.brisk * FURTHER, FURTHEST)

    def _let_children_follow(self, leader: Instance) -> bool:
        """Whether one that waits for this step follows it now."""
        frame = leader.frame
        return any(self._let_child_follow(leader, frame, after) for after in frame.plan.successors[leader.child])

    def _let_child_follow(self, leader: Instance, frame: Frame, child: int) -> bool:
        """A component that waits for a step at work, if it waits for steps at work only and nobody else follows this one."""
        run, component = self.run, frame.plan.components[child]
        plain = frame.plan.path + frame.plan.names[child]
        if (
            leader.number not in run.leaders
            or leader.phase not in _AT_WORK
            or not self._room()
            or frame.waits[child] > run.running + len(run.ahead)  # seen at once, where many wait for many
            or frame.statuses[child] is not ComponentStatus.INIT
            or child in frame.groups
            or not self._plain(component)
            or plain in run.pipeline.disabled
            or plain in run.breakpoints
            or run.halting
            or frame.number == POST
            or not all(self._leads(frame, before) for before in before_of(frame, child))
        ):
            return False
        group = frame.groups[child] = Group(run.take_number(), left=1, begun=True)
        item = run.instances[group.number] = Instance(group.number, frame, child)
        self._follow(item, leader)
        return True

    def _follow(self, item: Instance, leader: Instance) -> None:
        item.leader = leader.number
        self.run.leaders.pop(leader.number, None)
        self.run.ahead[item.number] = item
        self.submit(item, Phase.FOLLOWING)

    def _leader(self) -> Instance | None:
        """The first at work that nobody follows; those that are not at work any more are forgotten."""
        run = self.run
        for number, item in list(run.leaders.items()):
            if item.phase in _AT_WORK:
                return item
            del run.leaders[number]
        return None

    def _leads(self, frame: Frame, child: int) -> bool:
        """Whether a component has ended well, or is a plain step at work."""
        if frame.statuses[child] in GOOD:
            return True
        group = frame.groups.get(child)
        item = self.run.instances.get(group.number) if group is not None else None
        return item is not None and item.phase in _AT_WORK and self._plain(item.component)

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


def before_of(frame: Frame, child: int) -> list[int]:
    """The components that one waits for."""
    plan = frame.plan
    return [plan.index[name] for name in dict.fromkeys(plan.components[child].deps)]


def awaited(run: RunState, item: Instance) -> list[Instance]:
    """The steps at work whose end one that is ahead waits for; empty: nothing that it could follow."""
    groups = [item.frame.groups.get(child) for child in before_of(item.frame, item.child)]
    numbers = [item.leader, *(group.number for group in groups if group is not None)]
    return [found for number in dict.fromkeys(numbers) if (found := run.instances.get(number)) is not None]
