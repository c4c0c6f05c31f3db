"""TensorFlow: everything is in ``TF_CONFIG``. Master is TensorFlow's chief, pserver its ps.

With a master the job is over when the master is: the workers of a `ParameterServerStrategy` serve for ever.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from paddleflow.frameworks.environment import endpoint, layered, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ROLES = (
    Role("pserver", least=1, ports=1, completes=False),
    Role("master", least=1, most=1, ports=1, decisive=True),
    Role("worker", least=1, ports=1, aliases=WORKER_ALIASES, in_place=True),
)
_TASKS = {"master": "chief", "worker": "worker", "pserver": "ps"}  # our role → TensorFlow's word


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    groups = {role: of_roles(members, role) for role in _TASKS}
    cluster = {_TASKS[role]: [endpoint(member) for member in group] for role, group in groups.items() if group}
    plans = []
    for member in members:
        task = {"type": _TASKS[member.role], "index": groups[member.role].index(member)}
        config = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        env = layered(member, identity={**mode(members), "TF_CONFIG": config})
        plans.append(LaunchPlan(member.argv, env, ready_port=member.ports[0] if member.role == "pserver" else None))
    return plans


TENSORFLOW = Framework(
    name="tensorflow",
    roles=_ROLES,
    stages=(("pserver",), ("master", "worker")),
    plan=_plan,
    check=checker("tensorflow", _ROLES, one_of=("master", "worker")),
)
