"""The job document of a step: what `jobs.admission` is asked. Pure.

A step without a `job:` block is a single job of its command. The reference's control variables (`PF_JOB_QUEUE_NAME`,
`PF_JOB_FLAVOUR`, …) choose queue, flavour and priority; `PF_JOB_TYPE=distributed` with `PF_JOB_FRAMEWORK=ray` makes a Ray job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddleflow.errors import Invalid
from paddleflow.runs.names import job_id, with_seq
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered
from paddleflow.spec.document import parse
from paddleflow.spec.job import DistributedJob, SingleJob
from paddleflow.spec.pipeline.model import FsMount

NO_MOUNT = "NONE"  #: value of PF_MOUNT_PATH: the command begins in the job's own folder
SINGLE = frozenset({"", "single", "vcjob"})
#: variables that say what kind of job a step is
CONTROLS = ("PF_JOB_QUEUE_NAME", "PF_JOB_PRIORITY", "PF_JOB_FLAVOUR", "PF_JOB_TYPE", "PF_MOUNT_PATH")


def identity_of(run: RunState, item: Instance) -> tuple[str, str]:
    """Id and name of the job of the next try."""
    name = item.step.name
    return job_id(run.id, name, item.seq, item.number, item.tries), f"{run.id}-{with_seq(name, item.seq)}"


def document_of(run: RunState, item: Instance, rendered: Rendered) -> SingleJob | DistributedJob:
    """The job of the next try; `Invalid` lists what is wrong with it."""
    step, env = item.step, rendered.env
    id, name = identity_of(run, item)
    general: dict[str, Any] = {
        "id": id,
        "name": name,
        "schedulingPolicy": {"queue": env.get("PF_JOB_QUEUE_NAME", ""), "priority": env.get("PF_JOB_PRIORITY", "")},
    }
    mounts = {**_mounts(run, item), **_extras(item)}
    kind = env.get("PF_JOB_TYPE", "").lower()
    if rendered.job is not None:
        return _given(run, item, rendered, general, mounts)
    if kind == "distributed":
        return _ray(run, item, rendered, general, mounts)
    if kind not in SINGLE:
        raise Invalid(f"PF_JOB_TYPE[{kind[:40]}] is not known", hint="it is single or distributed")
    command = command_of(run, item, rendered)
    general |= {"image": step.docker_env, "env": env, "command": command, **mounts, **_flavours(env)}
    return parse(SingleJob, general)


def _flavours(env: Mapping[str, str]) -> dict[str, Any]:
    name = env.get("PF_JOB_FLAVOUR", "")
    return {"flavour": {"name": name}} if name else {}


def _extras(item: Instance) -> dict[str, Any]:
    """What a step is given besides storages: code, packages, secrets."""
    step = item.step
    if step.code is not None and "folder" in step.code:
        folder = str(step.code["folder"])[:80]
        raise Invalid(f"code[{folder}] is a folder that was not sent", hint="start the run with paddleflow run create")
    found: dict[str, Any] = {"code": step.code, "requirements": step.requirements, "secrets": list(step.secrets)}
    return {key: value for key, value in found.items() if value}


def command_of(run: RunState, item: Instance, rendered: Rendered) -> str:
    """The shell text that is run: in its code, or in the run's main storage, if it has one of them."""
    if not run.fs_id or item.step.code is not None:
        return rendered.command
    if rendered.env.get("PF_MOUNT_PATH") == NO_MOUNT:
        return f'cd "$PF_WORK_DIR"; {rendered.command}'
    return f"cd {run.mount}; {rendered.command}"


def _mounts(run: RunState, item: Instance) -> dict[str, Any]:
    """The run's main storage, then what the step has beside it."""
    main = run.pipeline.main_fs
    found: dict[str, Any] = {} if main is None else {"fs": _mount(main)}
    if item.step.extra_fs:
        found["extraFS"] = [_mount(mount) for mount in item.step.extra_fs]
    return found


def _mount(mount: FsMount) -> dict[str, Any]:
    return {"name": mount.name, "mountPath": mount.mount_path, "subPath": mount.sub_path, "readOnly": mount.read_only}


def _given(
    run: RunState, item: Instance, rendered: Rendered, general: dict[str, Any], mounts: dict[str, Any]
) -> SingleJob | DistributedJob:
    """A `job:` block, with what every step has added where the block says nothing."""
    job, image = dict(rendered.job or {}), item.step.docker_env
    policy = {key: value for key, value in general["schedulingPolicy"].items() if value}
    policy |= {key: value for key, value in (job.get("schedulingPolicy") or {}).items() if value}
    job |= {"id": general["id"], "name": job.get("name") or general["name"], "schedulingPolicy": policy}
    if "framework" not in job and "members" not in job:
        job.setdefault("command", command_of(run, item, rendered))
        return parse(SingleJob, _member(job, rendered, mounts, image))
    job["members"] = [_member(member, rendered, mounts, image) for member in job.get("members") or ()]
    return parse(DistributedJob, job)


def _member(member: Mapping[str, Any], rendered: Rendered, mounts: dict[str, Any], image: str) -> dict[str, Any]:
    merged = {**mounts, **member}
    merged["env"] = {**rendered.env, **(member.get("env") or {})}
    if not merged.get("image"):
        merged["image"] = image
    if not merged.get("command") and rendered.command:
        merged["command"] = rendered.command
    return merged


def _ray(
    run: RunState, item: Instance, rendered: Rendered, general: dict[str, Any], mounts: dict[str, Any]
) -> DistributedJob:
    env, image = rendered.env, item.step.docker_env
    framework = env.get("PF_JOB_FRAMEWORK", "")
    if framework.lower() != "ray":
        raise Invalid(
            f"PF_JOB_FRAMEWORK[{framework[:40]}] cannot be asked for by variables, only ray can",
            hint="write the step as a job: block",
        )
    head = {"role": "master", "replicas": 1, "env": env, **mounts}
    head["image"] = env.get("RAY_JOB_HEADER_IMAGE") or image
    head["flavour"] = {"name": env.get("RAY_JOB_HEADER_FLAVOUR") or env.get("PF_JOB_FLAVOUR", "")}
    if rendered.command:
        head["command"] = command_of(run, item, rendered)
    worker = {"role": "worker", "replicas": _count(env.get("RAY_JOB_WORKER_REPLICAS", "1")), "env": env, **mounts}
    worker["image"] = env.get("RAY_JOB_WORKER_IMAGE") or image
    worker["flavour"] = {"name": env.get("RAY_JOB_WORKER_FLAVOUR") or env.get("PF_JOB_FLAVOUR", "")}
    return parse(DistributedJob, {**general, "framework": "ray", "members": [head, worker]})


def _count(text: str) -> object:
    return int(text) if text.isdigit() else text
