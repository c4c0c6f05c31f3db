"""How a fact goes through a run, the part about beginnings: children of a dag, loops, conditions, dags."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from paddleflow.errors import Invalid
from paddleflow.runs import values
from paddleflow.runs.ending import Walk
from paddleflow.runs.facts import FilesRead, LookUp, Read
from paddleflow.runs.model import PAUSED, ComponentStatus, RunStatus
from paddleflow.runs.names import with_seq
from paddleflow.runs.state import POST, Frame, Group, Instance, Phase, frame_of
from paddleflow.spec.pipeline.model import Dag

_FAILED, _CANCELLED, _SKIPPED = ComponentStatus.FAILED, ComponentStatus.CANCELLED, ComponentStatus.SKIPPED
_NO_FILES: Mapping[str, str] = {}


class Beginning(Walk):
    """What begins."""

    __slots__ = ()

    def begin(self) -> None:
        """Everything that may begin and has not. After a restart that is what had not begun before."""
        run = self.run
        if run.status in {RunStatus.INITIATING, RunStatus.PENDING}:
            run.status = RunStatus.RUNNING
            run.moved = True
        if run.activated_at is None:
            run.activated_at = self.at
            run.moved = True
        before = list(run.instances.values())
        for frame in list(run.frames.values()):
            self._begin_children(frame)
        for item in before:
            self._take_up(item)
        if run.halting:
            self.halt()

    def _take_up(self, item: Instance) -> None:
        """A component that had begun before a restart, and what it waited for was only asked for."""
        group = item.frame.groups.get(item.child)
        if item.phase is not Phase.OPENING or group is None or item.number not in self.run.instances:
            return
        if group.begun:
            self.ask_condition(item)
        elif not group.paused:
            self.open(item, group)
        elif item.frame.plan.path + item.name not in self.run.breakpoints:
            self.resume(item)

    def resume(self, item: Instance) -> None:
        """It need not wait at its breakpoint any more."""
        group = item.frame.groups[item.child]
        group.paused = False
        item.message = ""
        self.run.changed[item.number] = item
        self.open(item, group)

    def enqueue(self, item: Instance) -> None:
        """It waits for one of the run's slots."""
        item.phase = Phase.QUEUED
        self.run.queue.append(item)

    def _begin_children(self, frame: Frame) -> None:
        for child, waits in enumerate(frame.waits):
            if not waits and frame.statuses[child] is ComponentStatus.INIT and child not in frame.groups:
                self.begin_child(frame, child)
        if frame.left == 0 and frame.number > 0:
            self.todo.append(partial(self.end_frame, frame))

    def begin_child(self, frame: Frame, child: int) -> None:
        run = self.run
        if frame.statuses[child] is not ComponentStatus.INIT or child in frame.groups:
            return
        if run.halting and frame.number != POST:
            self.drop_child(frame, child, _CANCELLED, run.halting)
            return
        plain = frame.plan.path + frame.plan.names[child]
        if plain in run.pipeline.disabled:
            self.drop_child(frame, child, _SKIPPED, "disabled")
            return
        group = frame.groups[child] = Group(run.take_number())
        item = run.instances[group.number] = Instance(group.number, frame, child)
        if plain in run.breakpoints and frame.number != POST:
            group.paused = True
            item.message = PAUSED
            run.changed[item.number] = item
        else:
            self.open(item, group)

    def open(self, item: Instance, group: Group) -> None:
        """Its loop, if it has one."""
        argument = item.component.loop_argument
        if argument is None:
            group.begun, group.left = True, 1
            self.ask_condition(item)
            return
        needed = values.files_needed(self.run, item, argument)
        if needed and group.contents is None:
            self.commands.append(Read(item.number, needed, values.LOOP_BYTES))
            return
        try:
            items = values.loop_items(self.run, item, group.contents or _NO_FILES)
        except Invalid as error:
            group.begun, group.left = True, 1
            self.end(item, _FAILED, error.message)
            return
        group.contents = None
        self.run.loops.append((item.frame.number, item.name, items))
        self._spread(item, group, items)

    def _spread(self, first: Instance, group: Group, items: Any) -> None:
        """An instance for every element."""
        run, frame, child = self.run, first.frame, first.child
        frame.counts[child] = len(items)
        if not items:
            self.drop_child(frame, child, _SKIPPED, "its loop has no elements")
            return
        group.begun, group.items, group.left = True, items, len(items)
        first.item = items[0]
        self.ask_condition(first)
        for seq in range(1, len(items)):
            number = run.take_number()
            item = run.instances[number] = Instance(number, frame, child, seq, items[seq])
            self.ask_condition(item)

    def ask_condition(self, item: Instance) -> None:
        condition = item.component.condition
        if condition:
            group = item.frame.groups[item.child]
            needed = values.files_needed(self.run, item, condition)
            if needed and group.contents is None:
                item.phase = Phase.READING
                self.commands.append(Read(item.number, needed, values.CONDITION_BYTES))
                return
            try:
                holds = values.condition_holds(self.run, item, group.contents or _NO_FILES)
            except Invalid as error:
                self.end(item, _FAILED, error.message)
                return
            if not holds:
                self.end(item, _SKIPPED, "its condition is false")
                return
        component = item.component
        if isinstance(component, Dag):
            self._begin_dag(item, component)
        elif component.cache.enable and not item.post:
            item.phase = Phase.CACHING
            self.commands.append(LookUp(item.number))
        else:
            self.enqueue(item)

    def _begin_dag(self, item: Instance, dag: Dag) -> None:
        run, outer = self.run, item.frame
        frame = frame_of(item.number, outer.plan.inner(item.child), f"{outer.path}{with_seq(dag.name, item.seq)}.")
        frame.values = values.parameters_of(run, outer, item.child, item.item)
        frame.inputs = values.inputs_of(run, outer, item.child)
        frame.item = item.item
        run.frames[item.number] = frame
        item.phase, item.status, item.started_at = Phase.WORKING, ComponentStatus.RUNNING, self.at
        run.changed[item.number] = item
        self.todo.append(partial(self._begin_children, frame))

    def files_read(self, item: Instance, fact: FilesRead) -> None:
        group = item.frame.groups[item.child]
        if fact.error:
            if not group.begun:
                group.begun, group.left = True, 1
            self.end(item, _FAILED, fact.error)
            return
        group.contents = {**(group.contents or _NO_FILES), **fact.contents}
        if item.phase is Phase.OPENING:
            self.open(item, group)
        else:
            self.ask_condition(item)
