"""Ray: the master is the head of the cluster and runs the entry point; workers join it.

Ray means one node per machine (two that start at once take each other's sockets): a worker on the head's machine is a
passive slot, and the head offers its cores and devices. The entry point is ``RAY_JOB_ENTRY_POINT`` (shell text) or else the master's command; the job ends with it. With neither,
the head serves until the job is stopped. ``RAY_JOB_HEADER_START_PARAMS_<NAME>`` and ``RAY_JOB_WORKER_START_PARAMS_<NAME>``
become options of ``ray start``. Autoscaling needs a cluster that can grow: its variables mean nothing on one machine.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

from paddleflow.frameworks.environment import endpoint, layered, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import WORKER_ALIASES, checker

_ROLES = (
    Role("master", least=1, most=1, ports=5),
    Role("worker", least=1, aliases=WORKER_ALIASES, completes=False),
)
#: The head's ports; fixed numbers otherwise, which the heads of two jobs on one machine would fight for.
_PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "metrics-export-port")
_FLAGS = {"block", "head", "no-monitor"}  #: options of ``ray start`` that take no value

#: Starts the head, and ends with it; with an entry point ("$@"), waits until the head answers and ends with that. A Ray without
#: its client, as `pip install ray` gives it, does not accept the client's port. `ray start` writes down where its cluster is,
#: for every `ray.init()` on the machine, and nobody takes that back but `ray stop`, which would end other jobs' clusters too.
_HEAD = """\
client=
python3 -c 'import grpc' 2>/dev/null && client=--ray-client-server-port={client}
known=${{RAY_TMPDIR:-${{TMPDIR:-/tmp}}}}/ray/ray_current_cluster
trap 'grep -qs ":{port}\\$" "$known" && rm -f "$known"' EXIT
trap 'exit 143' TERM
{start} $client &
head=$!
[ $# -gt 0 ] || {{ wait "$head"; exit; }}
until ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
    kill -0 "$head" 2>/dev/null || {{ echo "the ray head did not start" >&2; exit 1; }}
    sleep 0.2
done
"$@"
code=$?
kill "$head"
wait "$head"
exit "$code"
"""


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    head = of_roles(members, "master")[0]
    identity = {**mode(members), "RAY_ADDRESS": endpoint(head)}
    beside_head = [member for member in members if member.host == head.host]
    return [
        _head(member, beside_head, identity) if member is head else _worker(member, head, identity)
        for member in members
    ]


def _head(member: PlacedMember, beside_head: Sequence[PlacedMember], identity: Mapping[str, str]) -> LaunchPlan:
    *ports, client = member.ports
    fixed = {"head": "", **{name: str(port) for name, port in zip(_PORTS, ports, strict=True)}}
    start = _start(member, beside_head, "RAY_JOB_HEADER_START_PARAMS_", fixed)
    text = member.env.get("RAY_JOB_ENTRY_POINT", "")
    entry = ("sh", "-c", text) if text else member.argv
    script = _HEAD.format(start=shlex.join(start), port=ports[0], client=client)
    env = layered(member, identity=identity, tuning=_runtime_env(member.env))
    return LaunchPlan(("sh", "-c", script, "ray-head", *entry), env, ready_port=ports[0])


def _worker(member: PlacedMember, head: PlacedMember, identity: Mapping[str, str]) -> LaunchPlan:
    start = _start(member, [member], "RAY_JOB_WORKER_START_PARAMS_", {"address": endpoint(head)})
    return LaunchPlan(start, layered(member, identity=identity), passive=member.host == head.host)


def _start(
    member: PlacedMember, offered: Sequence[PlacedMember], prefix: str, fixed: Mapping[str, str]
) -> tuple[str, ...]:
    """``ray start`` in the foreground: the sizes of `offered`, the user's parameters over them, our addresses over those."""
    options = {
        "num-cpus": str(max(1, sum(one.cpu for one in offered) // 1000)),
        "num-gpus": str(sum(len(one.devices) for one in offered)),
        "min-worker-port": "0",  # any free port: the default range is the same for every job on the machine
        "max-worker-port": "0",
        "disable-usage-stats": "",
        **_given(member.env, prefix),
        "node-ip-address": member.host,
        **fixed,
        "block": "",
    }
    words = [f"--{name}={value}" if value and name not in _FLAGS else f"--{name}" for name, value in options.items()]
    return ("ray", "start", *words)


def _given(env: Mapping[str, str], prefix: str) -> dict[str, str]:
    """``<PREFIX>NUM_CPUS=4`` → ``num-cpus: 4``."""
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in env.items()
        if name.startswith(prefix) and name != prefix
    }


def _runtime_env(env: Mapping[str, str]) -> dict[str, str]:
    """``RAY_JOB_RUNTIME_ENV`` (JSON) in the form that a driver reads when it connects."""
    text = env.get("RAY_JOB_RUNTIME_ENV", "")
    try:
        return {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": json.loads(text)})} if text else {}
    except ValueError:
        return {}


RAY = Framework(
    name="ray",
    roles=_ROLES,
    stages=(("master",), ("worker",)),
    plan=_plan,
    check=checker("ray", _ROLES, required=("master", "worker")),
)
