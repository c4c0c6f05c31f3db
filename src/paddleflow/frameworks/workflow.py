"""``workflow``: the one member of a job that an operator of the cluster runs, by a custom object. The platform starts no process."""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.frameworks.environment import layered
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import checker

ROLE = "workflow"
_ROLES = (Role(ROLE, least=1, most=1),)


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    return [LaunchPlan(member.argv, layered(member)) for member in members]


WORKFLOW = Framework(
    name="workflow",
    roles=_ROLES,
    stages=((ROLE,),),
    plan=_plan,
    check=checker("workflow", _ROLES, required=(ROLE,)),
)
