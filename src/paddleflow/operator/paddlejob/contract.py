"""The environment of each member: its own identity, and where all the others are (docs/internals/paddlejob-contract.md).

What all members share lies in a ConfigMap of their formation, which a container cannot start without. It is made when every
endpoint is known and never changed afterwards, so that no two members of a formation know different endpoints, and none an
old one. What is a member's own stands in its pod.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.operator.paddlejob.job import Job, Object, OperatorOptions
from paddleflow.operator.paddlejob.pods import Pod, pod_name
from paddleflow.spec.paddlejob.model import MOST_REPLICAS, PaddleJobSpec, Role

PORT = 36000  #: of every member whose network is its own
PORTS = 20  #: a member's range: its endpoint, the rendezvous beside it, and what the launcher gives to its processes
_BESIDE = 1  #: offset of the rendezvous port
_LISTS = {
    "ps": "PADDLE_PSERVERS_IP_PORT_LIST",
    "worker": "PADDLE_TRAINER_ENDPOINTS",
    "heter": "PADDLE_HETER_ENDPOINTS",
}
#: Who the members are: a user's variable of such a name would make a member believe in others.
MEMBERSHIP = frozenset(
    (
        *_LISTS.values(),
        "PADDLE_TRAINERS",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_PSERVER_NUMS",
        "PADDLE_MASTER",
        "PADDLE_NNODES",
    )
)
_WORDS = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER_TRAINER"}


@dataclass(frozen=True, slots=True)
class Membership:
    """The endpoints of all members, by role and rank."""

    endpoints: Mapping[str, tuple[str, ...]]

    def count(self, role: str) -> int:
        return len(self.endpoints.get(role, ()))


def members_map(job: Job, role: str, formation: int) -> str:
    """Name of the ConfigMap that a role's containers wait for. Servers have one of their own: they start first."""
    return f"{job.name}-{'servers' if role == 'ps' else 'trainers'}-{formation}"


def own_key(job: Job) -> str:
    """A key that only this job's ConfigMaps have: containers ask for it, so that somebody else's of the name starts none."""
    return "PADDLE_JOB_" + job.uid.replace("-", "_").upper()


def port_of(job: Job, role: str, index: int, options: OperatorOptions, host_port: int) -> int:
    """First port of a member. On the nodes' network every member of a job has its own, so that two may share a node."""
    assert job.spec is not None, "a job with a fault has no members"
    if job.spec.intranet != "Host":
        return PORT
    roles = list(job.spec.roles())
    # Role and index are interleaved: a member's ports stay the same when another role grows.
    offset = host_port - options.low_port + (index * len(roles) + roles.index(role)) * PORTS
    blocks = (options.high_port - options.low_port) // PORTS
    return options.low_port + offset % (blocks * PORTS)


def choose_host_port(uid: str, members: int, low: int, high: int, taken: Iterable[tuple[int, int]]) -> int:
    """First port of a range for so many members that touches none of `taken` (first port, members), if there is one."""
    blocks = max(1, (high - low) // PORTS)
    used = bytearray(blocks)
    for first, count in taken:
        for block in range((first - low) // PORTS, (first - low) // PORTS + count):
            used[block % blocks] = 1
    begin = zlib.crc32(uid.encode()) % blocks
    for step in range(blocks):
        block = (begin + step) % blocks
        if not any(used[(block + offset) % blocks] for offset in range(min(members, blocks))):
            return low + block * PORTS
    return low + begin * PORTS


def domain_name(job: Job, role: str, index: int) -> str:
    """Name of a member in cluster DNS, by the headless Service of the job."""
    return f"{pod_name(job, role, index)}.{job.name}"


def bracketed(address: str) -> str:
    """An address as it is written before a port."""
    return f"[{address}]" if ":" in address else address


def host_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[0]


def expected(job: Job, pods: Iterable[Pod], options: OperatorOptions, host_port: int) -> Membership | None:
    """Who the members are now, or None while an address is missing."""
    assert job.spec is not None, "a job with a fault has no members"
    known = {(pod.role, pod.index): pod.address for pod in pods}
    result: dict[str, tuple[str, ...]] = {}
    for role, entry in job.spec.roles().items():
        hosts = [
            domain_name(job, role, index) if job.spec.intranet == "Service" else bracketed(known.get((role, index), ""))
            for index in range(entry.replicas)
        ]
        if not all(hosts):
            return None
        ports = [port_of(job, role, index, options, host_port) for index in range(entry.replicas)]
        result[role] = tuple(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
    return Membership(result)


def read_membership(config_map: Object) -> Membership:
    """The membership that a ConfigMap of ours holds."""
    data = config_map.get("data") or {}
    return Membership({role: tuple(data[key].split(",")) for role, key in _LISTS.items() if data.get(key)})


def shared(job: Job, membership: Membership) -> dict[str, str]:
    """Data of the ConfigMap: the same for all members of a formation."""
    spec = job.spec
    assert spec is not None, "a job with a fault has no members"
    servers, workers = membership.endpoints.get("ps", ()), membership.endpoints.get("worker", ())
    first = next(iter(membership.endpoints.values()))[0]
    opens, closes = ("[", "]") if first.startswith("[") else ("", "")
    data = {own_key(job): "1", "TRAINER_PORTS_NUM": str(PORTS), "PADDLE_HOST_OPEN": opens, "PADDLE_HOST_CLOSE": closes}
    if workers:
        data |= {
            _LISTS["worker"]: ",".join(workers),
            "PADDLE_TRAINERS": ",".join(host_of(worker) for worker in workers),
            "PADDLE_TRAINERS_NUM": str(len(workers)),
        }
    if servers:
        data |= {_LISTS["ps"]: ",".join(servers), "PADDLE_PSERVER_NUMS": str(len(servers))}
    elif workers:
        data |= _collective(workers)
    if heter := membership.endpoints.get("heter"):
        data |= {
            _LISTS["heter"]: ",".join(heter),
            "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": ",".join(heter),
            "PADDLE_HETER_TRAINER_IP_PORT_LIST": ",".join(heter),
            "STAGE_NUM": "2",
            "PADDLE_STAGE_TRAINERS_NUM": f"[{len(workers)},{len(heter)}]",
        }
    if spec.with_gloo and servers:
        data |= {
            "PADDLE_WITH_GLOO": str(spec.with_gloo),
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": _beside(servers[0]),
        }
    return data


def _beside(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + _BESIDE}"


def _collective(workers: Sequence[str]) -> dict[str, str]:
    size = str(len(workers))
    data = {"PADDLE_MASTER": _beside(workers[0]), "PADDLE_GLOBAL_SIZE": size, "PADDLE_NNODES": size}
    if len({host_of(worker) for worker in workers}) < len(workers):
        # On the nodes' network two members may share an address. The launcher takes the number of *different hosts* in
        # PADDLE_TRAINER_ENDPOINTS for the number of nodes; it reads this variable afterwards, where only names are counted.
        others = [f"node-{n}:{worker.rpartition(':')[2]}" for n, worker in enumerate(workers) if n]
        data["DISTRIBUTED_TRAINER_ENDPOINTS"] = ",".join([_beside(workers[0]), *others])
    return data


def elastic_by_etcd(spec: PaddleJobSpec, options: OperatorOptions) -> bool:
    """Whether the trainers find each other in etcd by themselves: then pods come and go alone."""
    return spec.elastic is not None and bool(options.etcd) and spec.ps is None


def identity(
    job: Job, role: str, index: int, formation: int, port: int, options: OperatorOptions
) -> list[dict[str, Any]]:
    """Variables that are a member's own; no variable of the user's may hide them."""
    spec = job.spec
    assert spec is not None, "a job with a fault has no members"
    named = spec.intranet == "Service"
    by_etcd = elastic_by_etcd(spec, options)
    gate = members_map(job, role, formation)
    env: list[dict[str, Any]] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    if named:
        env = [_plain("POD_IP", domain_name(job, role, index))]
    env += [_plain("PADDLE_PORT", str(port))]
    if not by_etcd:
        env.append(_from(gate, own_key(job)))
    if named or by_etcd:
        env += [_plain("PADDLE_CURRENT_ENDPOINT", "$(POD_IP):$(PADDLE_PORT)")]
    else:  # an IPv6 address needs brackets, and which family the pod gets is known only when it has its address
        env += [_from(gate, "PADDLE_HOST_OPEN"), _from(gate, "PADDLE_HOST_CLOSE")]
        env += [_plain("PADDLE_CURRENT_ENDPOINT", "$(PADDLE_HOST_OPEN)$(POD_IP)$(PADDLE_HOST_CLOSE):$(PADDLE_PORT)")]
    values = {
        "PADDLE_TRAINER_ID": str(index),
        "TRAINING_ROLE": _WORDS[role],
        "PADDLE_TRAINING_ROLE": _WORDS[role],
        "PADDLE_JOB_ID": f"{job.namespace}-{job.name}",
        "PADDLE_FORMATION": str(formation),
        "PF_JOB_MODE": "PS" if spec.ps else "Collective",
    }
    if spec.ps:
        values["PADDLE_ROLE"] = _WORDS[role]
    elif role == "worker" and not by_etcd:
        values |= {"PADDLE_GLOBAL_RANK": str(index), "PADDLE_RANK": str(index), "PADDLE_RANK_IN_NODE": "0"}
        values |= {"PADDLE_LOCAL_RANK": "0", "PADDLE_LOCAL_SIZE": "1"}
    if spec.heter and role == "worker":
        values["STAGE_ID"] = "1"
        env.append(_from(gate, _LISTS["heter"], "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"))
    if role == "heter":
        values["STAGE_ID"] = "2"
        env.append(_from(gate, _LISTS["worker"], "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"))
    if spec.elastic is not None and spec.worker:
        values |= _elastic(job, spec, options)
    return env + [_plain(name, value) for name, value in values.items()]


def _elastic(job: Job, spec: PaddleJobSpec, options: OperatorOptions) -> dict[str, str]:
    worker = spec.worker
    assert worker is not None, "elastic without workers is refused"
    np = f"{worker.requests}:{worker.limits}" if worker.requests and worker.limits else str(worker.replicas)
    values = {
        "PADDLE_ELASTIC_JOB_ID": f"{job.namespace}-{job.name}",
        "PADDLE_ELASTIC_NP": np,
        "PADDLE_ELASTIC_TIMEOUT": "60",
    }
    return values | (_by_etcd(worker, options) if elastic_by_etcd(spec, options) else {})


def _by_etcd(worker: Role, options: OperatorOptions) -> dict[str, str]:
    """Where elastic trainers meet. Launchers since Paddle 2.3 read the second half: they count each other in etcd, within a
    range, and go on with whoever is there. A rank of -1 means any: one that is fixed could not go on without the others."""
    return {
        "PADDLE_ELASTIC_SERVER": ",".join(options.etcd_addresses),
        "PADDLE_MASTER": f"etcd://{options.etcd_addresses[0]}",
        "PADDLE_NNODES": f"{worker.requests or 1}:{worker.limits or MOST_REPLICAS}",
        "PADDLE_RANK": "-1",
        "PADDLE_ELASTIC_LEVEL": "1",
        "PADDLE_MAX_RESTART": "1000",
    }


def tuning(role: str, container: Mapping[str, Any]) -> dict[str, str]:
    """Variables that only make things better; the user's own win."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    card = any("gpu" in name or "xpu" in name or "npu" in name for name in asked)
    values = {"PYTHONUNBUFFERED": "1"}  # without it output reaches the log only when a buffer is full
    if not card:
        values["PADDLE_DISTRI_BACKEND"] = "gloo"  # a GPU build of paddle would insist on NCCL otherwise
    if role == "heter":
        values["HETER_DEVICE_TYPE"] = "gpu" if card else "cpu"
    return values


def _plain(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def _from(config_map: str, key: str, name: str = "") -> dict[str, Any]:
    return {"name": name or key, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}
