"""From a placed job to what the runtime starts. Pure: the same job and places always give the same launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from paddleflow.base.ids import AttemptId, attempt_id, task_id
from paddleflow.base.quantity import total
from paddleflow.frameworks.catalogue import find
from paddleflow.frameworks.framework import PlacedMember, Plan
from paddleflow.jobs.facts import Key
from paddleflow.jobs.model import Member
from paddleflow.runtimes.prefetch import PrefetchRequest
from paddleflow.runtimes.runtime import Launch, Mount

GPU = "nvidia.com/gpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """Where one member of a job is, and what was given to it alone."""

    role: str
    index: int
    node: str
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        return self.role, self.index


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job with its places: all that launching needs."""

    id: str
    name: str
    user: str
    queue: str
    framework: str
    attempt: int
    members: tuple[Member, ...]
    places: tuple[MemberPlacement, ...]


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch, and whether it is carried out."""

    launch: Launch
    passive: bool  #: holds resources and runs no process


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What launching needs to know of the cluster."""

    job_folder: Callable[[str], str]  #: as the runtime has it
    base_env: Mapping[str, str]
    addresses: Mapping[str, str]  #: node → address
    restart_limit: int


def prepare(job: PlacedJob, context: LaunchContext, slot_class: str = "") -> dict[Key, PreparedLaunch]:
    """The launch of every member; with a slot class, others may take its slot."""
    folder = context.job_folder(job.id)
    roles = {member.role: member for member in job.members}
    placed = [_placed(roles[place.role], place, folder, context.addresses) for place in job.places]
    plans = find(job.framework).plan(job.id, placed)
    prepared = {
        place.key: _prepared(job, roles[place.role], place, plan, context.base_env, slot_class)
        for place, plan in zip(job.places, plans, strict=True)
    }
    passive = [place for place in job.places if prepared[place.key].passive]
    return _with_slots(prepared, job.places, passive) if passive else prepared


def _with_slots(
    prepared: dict[Key, PreparedLaunch], places: Sequence[MemberPlacement], passive: Sequence[MemberPlacement]
) -> dict[Key, PreparedLaunch]:
    """Members without a process hold resources for the one that runs in their place: it gets their limits and devices."""
    key = next(place.key for place in places if not prepared[place.key].passive)
    runner = prepared[key].launch
    slots = [prepared[place.key].launch for place in passive]
    limits = [launch.limit for launch in (runner, *slots)]
    limit = None if None in limits else total(amount for amount in limits if amount is not None)
    devices: dict[str, tuple[int, ...]] = {}
    for place in (place for place in places if place.key == key or place in passive):
        for name, numbers in place.devices:
            devices[name] = tuple(sorted({*devices.get(name, ()), *numbers}))
    env = {**runner.env, **_devices(tuple(devices.items()))}
    launch = replace(runner, request=total(part.request for part in (runner, *slots)), limit=limit, env=env)
    return {**prepared, key: replace(prepared[key], launch=launch)}


def _placed(member: Member, place: MemberPlacement, folder: str, addresses: Mapping[str, str]) -> PlacedMember:
    return PlacedMember(
        role=place.role,
        index=place.index,
        host=addresses.get(place.node, place.node),
        ports=place.ports,
        argv=member.argv,
        env=member.env,
        cpu=member.request.cpu,
        devices=tuple(str(n) for name, numbers in place.devices if name == GPU for n in numbers),
        folder=folder,
    )


def _prepared(
    job: PlacedJob, member: Member, place: MemberPlacement, plan: Plan, base_env: Mapping[str, str], slot_class: str
) -> PreparedLaunch:
    mounts = tuple(Mount(s.id, s.mount_path, s.source, s.sub_path, s.read_only) for s in member.storages)
    # Who it is and which devices it has is not the user's to say: the next member may have been given the others.
    given = {key: base_env[key] for key in (VISIBLE,) if key in base_env} | _devices(place.devices)
    working_dir, code = mounts[0].target if mounts else "", ""
    if member.code is not None:
        found = member.code
        working_dir = f"{found.path}/{found.workdir}" if found.path and found.workdir else found.path or found.workdir
        code = found.snapshot
    launch = Launch(
        attempt=attempt_id(task_id(job.id, place.role, place.index), job.attempt),
        command=plan.argv,
        env={**base_env, **plan.env, **_identity(job, place), **given},
        user=job.user,
        image=member.document.get("image", ""),
        node=place.node,
        labels={"paddleflow/job": job.id, "paddleflow/queue": job.queue, "paddleflow/role": place.role},
        request=member.request,
        limit=member.limit,
        mounts=mounts,
        working_dir=working_dir,
        code=code,
        files=plan.files,
        ports=place.ports,
        ready_port=plan.ready_port,
        prefetch=PrefetchRequest(slot_class) if slot_class else None,
    )
    return PreparedLaunch(launch, plan.passive)


def _identity(job: PlacedJob, place: MemberPlacement) -> dict[str, str]:
    return {
        "PF_JOB_ID": job.id,
        "PF_JOB_NAME": job.name,
        "PF_JOB_QUEUE_NAME": job.queue,
        "PF_JOB_FRAMEWORK": job.framework,
        "PF_JOB_ATTEMPT": str(job.attempt),
        "PF_USER_NAME": job.user,
        "PF_ROLE": place.role,
        "PF_ROLE_INDEX": str(place.index),
    }


def _devices(devices: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, str]:
    """Device numbers: the usual variable for GPUs, and one variable per resource."""
    env = {}
    for name, numbers in devices:
        listed = ",".join(map(str, numbers))
        env[f"PF_DEVICES_{re.sub('[^A-Z0-9]', '_', name.upper())}"] = listed
        if name == GPU:
            env[VISIBLE] = listed
    return env


def attempt_of(job: PlacedJob, key: Key) -> AttemptId:
    return attempt_id(task_id(job.id, *key), job.attempt)


def port_counts(framework: str, keys: Sequence[Key]) -> list[int]:
    """How many ports each member needs."""
    table = find(framework)
    needed = {role.name: role.ports for role in table.roles}
    return [needed.get(role, 0) for role, _ in keys]
