"""PaddlePaddle: collective training (workers only) and parameter server (servers and workers); ``aitj`` is the same.

Both ways to start a collective worker find what they read: ``python train.py`` (the environment contract of
`paddle.distributed.init_parallel_env` and `fleet`) and ``python -m paddle.distributed.launch train.py``. In parameter
server mode every member runs the program itself and `fleet` takes its role from the environment.

A role ``master`` means ``pserver`` here: the system that existing jobs were written for counted it as the server side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.errors import Fault
from paddleflow.frameworks.environment import beside, endpoint, layered, local_network, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ENDPOINT, _SECOND = 0, 1  # ports: its own endpoint; the rendezvous that rank 0 of its role may have to offer
_ROLES = (
    Role("pserver", least=1, ports=2, aliases=("master",), completes=False),
    Role("worker", least=1, ports=2, aliases=WORKER_ALIASES, in_place=True),
)


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    servers, workers = of_roles(members, "pserver"), of_roles(members, "worker")
    shared = _shared(job_id, members, workers)
    if not servers:
        return [_collective(member, workers, shared) for member in members]
    return [_parameter_server(member, servers, workers, shared) for member in members]


def _shared(job_id: str, members: Sequence[PlacedMember], workers: Sequence[PlacedMember]) -> dict[str, str]:
    return {
        **mode(members),
        "PADDLE_JOB_ID": job_id,
        "PADDLE_TRAINERS_NUM": str(len(workers)),
        "PADDLE_TRAINERS": ",".join(worker.host for worker in workers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoint(worker) for worker in workers),
    }


def _own(member: PlacedMember, role: str, rank: int) -> dict[str, str]:
    return {
        "POD_IP": member.host,
        "PADDLE_PORT": str(member.ports[_ENDPOINT]),
        "PADDLE_CURRENT_ENDPOINT": endpoint(member),
        "PADDLE_TRAINER_ID": str(rank),
        "TRAINING_ROLE": role,
        "PADDLE_TRAINING_ROLE": role,
    }


def _tuning(member: PlacedMember) -> dict[str, str]:
    tuning = local_network(member)
    if member.devices:
        # Numbers relative to the visible devices, which the engine narrows to the member's own.
        tuning["FLAGS_selected_gpus"] = ",".join(str(n) for n in range(len(member.devices)))
    else:
        tuning["PADDLE_DISTRI_BACKEND"] = "gloo"  # a GPU build of paddle would insist on NCCL otherwise
    return tuning


def _collective(member: PlacedMember, workers: Sequence[PlacedMember], shared: Mapping[str, str]) -> LaunchPlan:
    rank, size = workers.index(member), str(len(workers))
    identity = {
        **shared,
        **_own(member, "TRAINER", rank),
        "PADDLE_MASTER": endpoint(workers[0], _SECOND),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_GLOBAL_SIZE": size,
        "PADDLE_LOCAL_RANK": "0",  # each member is a node of its own, as a pod would be
        "PADDLE_LOCAL_SIZE": "1",
        "PADDLE_RANK_IN_NODE": "0",
        # From here on: read by paddle.distributed.launch alone.
        "PADDLE_NNODES": size,
        "PADDLE_RANK": str(rank),
    }
    if len({worker.host for worker in workers}) < len(workers):
        # The launcher takes the number of *different hosts* in PADDLE_TRAINER_ENDPOINTS for the number of nodes, and
        # would leave members of one machine unconnected. It looks here afterwards: the first entry is the rendezvous,
        # of the others only the names are counted.
        others = [f"node-{n}:{worker.ports[_ENDPOINT]}" for n, worker in enumerate(workers) if n]
        identity["DISTRIBUTED_TRAINER_ENDPOINTS"] = ",".join([endpoint(workers[0], _SECOND), *others])
    tuning = _tuning(member)
    if not any("--log_dir" in word for word in member.argv):
        # The launcher's own default is ./log, where the members of one machine would write over each other.
        tuning["PADDLE_LOG_DIR"] = beside(member, f"{member.role}-{member.index}.launch")
    return LaunchPlan(member.argv, layered(member, identity=identity, tuning=tuning))


def _parameter_server(
    member: PlacedMember, servers: Sequence[PlacedMember], workers: Sequence[PlacedMember], shared: Mapping[str, str]
) -> LaunchPlan:
    serves = member.role == "pserver"
    rank = (servers if serves else workers).index(member)
    tuning = {
        **_tuning(member),
        # Workers need a barrier so that none reads parameters before the first one has written them.
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": endpoint(servers[0], _SECOND),
    }
    identity = {
        **shared,
        **_own(member, "PSERVER" if serves else "TRAINER", rank),
        "PADDLE_ROLE": "PSERVER" if serves else "TRAINER",
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoint(server) for server in servers),
        "PADDLE_PSERVER_NUMS": str(len(servers)),
    }
    env = layered(member, identity=identity, tuning=tuning)
    # With gloo the first server serves its parameters only after the workers have met at its rendezvous: waiting for
    # that port before starting them would wait for ever. Paddle's workers wait for it by themselves.
    waits_for_workers = rank == 0 and env["PADDLE_WITH_GLOO"] not in ("", "0")
    return LaunchPlan(
        member.argv, env, ready_port=member.ports[_ENDPOINT] if serves and not waits_for_workers else None
    )


def _collective_needs_two(replicas: Mapping[str, int]) -> Sequence[Fault]:
    if replicas.get("pserver"):
        if replicas.get("worker"):
            return []
        return [Fault("members", "parameter server mode needs at least 1 worker, found 0")]
    if (found := replicas.get("worker", 0)) < 2:
        message = f"Collective mode needs at least 2 worker, found {found}"
        return [Fault("members", message, "add a worker, or a pserver for parameter server mode, or use a single job")]
    return []


def _framework(name: str) -> Framework:
    return Framework(
        name=name,
        roles=_ROLES,
        stages=(("pserver",), ("worker",)),
        plan=_plan,
        check=checker(name, _ROLES, further=_collective_needs_two),
    )


PADDLE = _framework("paddle")
AITJ = _framework("aitj")
