"""MPI: the master runs the user's ``mpirun``; the workers are the slots that its ranks run in.

On one machine a worker is a passive slot: it holds its resources, the ranks are children of the master's ``mpirun``.
Open MPI 4 and 5 both find the host file and the defaults below in the environment, so that a bare ``mpirun program``
starts one rank per worker, and ``mpirun -np N`` as many as asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.frameworks.environment import beside, layered, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

HOST_FILE = "hostfile"
_ROLES = (
    Role("master", least=1, most=1),
    Role("worker", least=1, aliases=WORKER_ALIASES, completes=False),
)

#: Defaults that the user may change, for Open MPI 4 (OMPI_MCA_) and 5 (PRTE_MCA_).
_TUNING = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # More ranks than workers are the user's choice, not an error.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Binding would put the first ranks of every job on the same first cores.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
#: When all ranks are on this machine: no ssh is looked for, and nothing listens outside.
_LOCAL_TUNING = {
    "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    slots: dict[str, int] = {}
    for worker in of_roles(members, "worker"):
        slots[worker.host] = slots.get(worker.host, 0) + 1
    masters = {member.host for member in of_roles(members, "master")}
    return [
        _master(member, members, slots)
        if member.role == "master"
        else LaunchPlan(member.argv, layered(member, identity=mode(members)), passive=member.host in masters)
        for member in members
    ]


def _master(member: PlacedMember, members: Sequence[PlacedMember], slots: Mapping[str, int]) -> LaunchPlan:
    path = beside(member, HOST_FILE)
    identity = {
        **mode(members),
        "OMPI_MCA_orte_default_hostfile": path,
        "PRTE_MCA_prte_default_hostfile": path,
    }
    tuning = {**_TUNING, **(_LOCAL_TUNING if set(slots) == {member.host} else {})}
    text = "".join(f"{host} slots={count}\n" for host, count in slots.items())
    return LaunchPlan(member.argv, layered(member, identity=identity, tuning=tuning), files={HOST_FILE: text})


MPI = Framework(
    name="mpi",
    roles=_ROLES,
    stages=(("worker",), ("master",)),
    plan=_plan,
    check=checker("mpi", _ROLES, required=("master", "worker")),
)
