"""``standalone``: one process that knows of no other. What a single job runs as."""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.frameworks.environment import layered
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ROLES = (Role("worker", least=1, most=1, aliases=WORKER_ALIASES),)


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    return [LaunchPlan(member.argv, layered(member)) for member in members]


STANDALONE = Framework(
    name="standalone",
    roles=_ROLES,
    stages=(("worker",),),
    plan=_plan,
    check=checker("standalone", _ROLES, required=("worker",)),
)
