"""MXNet's parameter server (ps-lite): the master is its scheduler, where servers and workers meet.

All members run the same program; importing MXNet turns a scheduler or server into one. They wait for the scheduler by
themselves, so the order of start is only for the reader of the logs.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.frameworks.environment import layered, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ROLES = (
    Role("master", least=1, most=1, ports=1, completes=False),
    Role("pserver", least=1, completes=False),
    Role("worker", least=1, aliases=WORKER_ALIASES, in_place=True),
)
_DMLC_ROLES = {"master": "scheduler", "pserver": "server", "worker": "worker"}


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    groups = {role: of_roles(members, role) for role in _DMLC_ROLES}
    scheduler = groups["master"][0]
    plans = []
    for member in members:
        rank = groups[member.role].index(member)
        identity = {
            **mode(members),
            "DMLC_ROLE": _DMLC_ROLES[member.role],
            "DMLC_PS_ROOT_URI": scheduler.host,
            "DMLC_PS_ROOT_PORT": str(scheduler.ports[0]),
            "DMLC_NODE_HOST": member.host,
            "DMLC_NUM_SERVER": str(len(groups["pserver"])),
            "DMLC_NUM_WORKER": str(len(groups["worker"])),
        }
        if member.role == "worker":
            identity["DMLC_WORKER_ID"] = str(rank)
        if member.role == "pserver":
            identity["DMLC_SERVER_ID"] = str(rank)
        plans.append(LaunchPlan(member.argv, layered(member, identity=identity)))
    return plans


MXNET = Framework(
    name="mxnet",
    roles=_ROLES,
    stages=(("master",), ("pserver",), ("worker",)),
    plan=_plan,
    check=checker("mxnet", _ROLES, required=("master", "pserver", "worker")),
)
