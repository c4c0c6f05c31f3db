"""PyTorch: the master is rank 0, the workers follow; without a master the first worker is rank 0.

``python train.py`` reads the plain variables (`torch.distributed.init_process_group` with ``env://``), ``torchrun
train.py`` reads the same from ``PET_*`` and makes one process per device. No order of start is needed: who comes first
waits for rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.frameworks.environment import layered, local_network, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ROLES = (
    Role("master", least=1, most=1, ports=1),
    Role("worker", least=1, ports=1, aliases=WORKER_ALIASES, in_place=True),
)


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    ranked = of_roles(members, "master", "worker")
    first, size = ranked[0], str(len(ranked))
    plans = []
    for member in members:
        rank = str(ranked.index(member))
        identity = {
            **mode(members),
            "MASTER_ADDR": first.host,
            "MASTER_PORT": str(first.ports[0]),
            "WORLD_SIZE": size,
            "RANK": rank,
            "LOCAL_RANK": "0",  # each member is a node of its own, as a pod would be
            "LOCAL_WORLD_SIZE": "1",
            "PET_MASTER_ADDR": first.host,
            "PET_MASTER_PORT": str(first.ports[0]),
            "PET_NNODES": size,
            "PET_NODE_RANK": rank,
        }
        tuning = {**local_network(member), "PET_NPROC_PER_NODE": str(max(1, len(member.devices)))}
        plans.append(LaunchPlan(member.argv, layered(member, identity=identity, tuning=tuning)))
    return plans


PYTORCH = Framework(
    name="pytorch",
    roles=_ROLES,
    stages=(("master", "worker"),),
    plan=_plan,
    check=checker("pytorch", _ROLES, one_of=("master", "worker")),
)
