"""Jobs of the platform as neighbours of pods: what their templates ask, and where their members will be. Pure.

The board of a server's engine has one. A job is placed by the core as a whole; from then on its members count as the pods that they
will be, until the pods are seen or the job holds nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.jobs.neighbour_rules import TemplateRules
from paddleflow.kube.selectors import PodTerm
from paddleflow.podscheduler.placement import JobConstraint, Scene
from paddleflow.podscheduler.pods import Pod, sample_pod
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Assignment, Constraint

_CONSTRAINTS = 1024  #: remembered at a time


class PlatformJobs:
    """Of one cluster."""

    def __init__(self, scene: Scene, core: Core, avoiders: Callable[[Pod], tuple[PodTerm, ...]]) -> None:
        """`avoiders`: the terms of anti-affinity, of whatever pod, that mean this one."""
        self._scene, self._core, self._avoiders = scene, core, avoiders
        self._constraints: dict[TemplateRules, JobConstraint | None] = {}
        self._expected: dict[str, dict[tuple[str, int], str]] = {}  # members whose pods were not seen yet: uids

    def interpret(self, rules: object) -> Constraint | None:
        """What the templates of a job ask; nothing where they are no documents of the API, for then the API server refuses the pods."""
        if not isinstance(rules, TemplateRules):
            return None
        if rules not in self._constraints:
            if len(self._constraints) >= _CONSTRAINTS:
                self._constraints.clear()
            try:
                self._constraints[rules] = self._read(rules)
            except (AttributeError, KeyError, TypeError, ValueError):
                self._constraints[rules] = None
        return self._constraints[rules]

    def _read(self, rules: TemplateRules) -> JobConstraint:
        samples = {role: sample_pod(text, rules.job) for role, text in rules.parts}
        avoiders = {role: self._avoiders(sample) for role, sample in samples.items()}
        return JobConstraint(self._scene, samples, avoiders, self._expect)

    def _expect(self, job: str, samples: Mapping[str, Pod], assignments: tuple[Assignment, ...]) -> None:
        expected = self._expected.setdefault(job, {})
        for role, index, node, _ in assignments:
            uid = expected[role, index] = f"{job}.{role}-{index}"
            self._scene.neighbours.put_as(uid, samples[role], node)

    def seen(self, attempt: str) -> None:
        """The pod of a member is there."""
        if self._expected:
            with suppress(ValueError):
                job, member, _ = parse_attempt(AttemptId(attempt))
                self._drop(job, member)

    def sweep(self) -> None:
        """Members that hold no place any more will not come."""
        for job, expected in list(self._expected.items()):
            held = self._core.allocations.get(job)
            if held is None:
                self._drop(job)
            elif held.request.elastic:
                there = {(each.role, each.index) for each in held.assignments}
                for member in [each for each in expected if each not in there]:
                    self._drop(job, member)

    def reclassify(self) -> None:
        """Terms of anti-affinity are new, or mean others than before."""
        self._constraints.clear()

    def _drop(self, job: str, member: tuple[str, int] | None = None) -> None:
        expected = self._expected.get(job, {})
        for each in [member] if member is not None else list(expected):
            if each in expected:
                self._scene.neighbours.drop(expected.pop(each))
        if not expected:
            self._expected.pop(job, None)
