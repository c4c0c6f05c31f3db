"""Spark: the driver runs ``spark-submit``; executors are the cores that it may use.

On one machine an executor is a passive slot: Spark's local mode runs its tasks in threads of the driver, as many as all
executors have cores. The command is built from ``PF_JOB_SPARK_MAIN_FILE``, ``_MAIN_CLASS`` and ``_ARGUMENTS``, or is
the user's own; ``spark-submit`` and ``python`` both find the master in the environment.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from paddleflow.frameworks.environment import layered, mode, of_roles
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember, Role
from paddleflow.frameworks.rules import checker

_ROLES = (
    Role("driver", least=1, most=1, ports=1),
    Role("executor", least=1, completes=False),
)


def _plan(job_id: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    executors = of_roles(members, "executor")
    cores = sum(max(1, member.cpu // 1000) for member in executors or of_roles(members, "driver"))
    master = f"local[{cores}]"
    return [
        _driver(job_id, member, members, master)
        if member.role == "driver"
        else LaunchPlan(member.argv, layered(member, identity=mode(members)), passive=True)
        for member in members
    ]


def _driver(job_id: str, member: PlacedMember, members: Sequence[PlacedMember], master: str) -> LaunchPlan:
    settings = f"--master {master} --name {job_id} --conf spark.ui.port={member.ports[0]}"
    tuning = {
        "MASTER": master,  # read by spark-submit
        "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",  # read by `python app.py`
        "SPARK_LOCAL_IP": member.host,
    }
    env = layered(member, identity=mode(members), tuning=tuning)
    return LaunchPlan(_command(member.env, settings) or member.argv, env)


def _command(env: Mapping[str, str], settings: str) -> tuple[str, ...]:
    """The ``spark-submit`` that the variables ask for; empty when they name no file."""
    file = env.get("PF_JOB_SPARK_MAIN_FILE", "")
    if not file:
        return ()
    main_class = env.get("PF_JOB_SPARK_MAIN_CLASS", "")
    named = ("--class", main_class) if main_class else ()
    return ("spark-submit", *settings.split(), *named, file, *shlex.split(env.get("PF_JOB_SPARK_ARGUMENTS", "")))


SPARK = Framework(
    name="spark",
    roles=_ROLES,
    stages=(("executor",), ("driver",)),
    plan=_plan,
    check=checker("spark", _ROLES, required=("driver",)),
)
