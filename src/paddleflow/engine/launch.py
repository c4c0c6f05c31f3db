"""From a placed job to what the runtime starts. Pure: the same job and places always give the same launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from paddleflow.base.ids import AttemptId, attempt_id, task_id
from paddleflow.base.quantity import total
from paddleflow.base.values import dataclass
from paddleflow.frameworks.catalogue import find
from paddleflow.frameworks.framework import LaunchPlan, PlacedMember
from paddleflow.jobs.facts import Key
from paddleflow.jobs.model import Member, UsedSecret
from paddleflow.jobs.neighbour_rules import pod_labels
from paddleflow.runtimes.prefetch import PrefetchRequest
from paddleflow.runtimes.runtime import Launch, Mount
from paddleflow.settings import JobSettings

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
    priority: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)  #: of a cluster's object, as the user wrote it


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch, and whether it is carried out."""

    launch: Launch
    passive: bool  #: holds resources and runs no process
    secrets: tuple[UsedSecret, ...] = ()  #: whose values are filled in when it starts


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What launching needs to know of the cluster."""

    job_folder: Callable[[str], str]  #: as the runtime has it
    base_env: Mapping[str, str]
    addresses: Mapping[str, str]  #: node → address
    rules: JobSettings
    member_address: Callable[[str, str, int], str] = lambda job, role, index: ""  #: likewise
    numbers_devices: bool = True  #: likewise
    namespaces: Mapping[str, str] = field(default_factory=dict)  #: queue → namespace
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  #: queue → labels of its nodes


def prepare(
    job: PlacedJob, context: LaunchContext, slot_class: str = "", after: tuple[AttemptId, ...] | None = None
) -> dict[Key, PreparedLaunch]:
    """The launch of every member; with a slot class, others may take its slot, and with `after` it has none yet."""
    prefetch = PrefetchRequest(slot_class, after is not None, after or ()) if slot_class else None
    folder = context.job_folder(job.id)
    roles = {member.role: member for member in job.members}
    places = job.places
    if not context.numbers_devices:
        places = tuple(replace(place, devices=()) for place in places)
    placed = [_placed(job.id, roles[place.role], place, folder, context) for place in places]
    plans = find(job.framework).plan(job.id, placed)
    prepared = {
        place.key: _prepared(job, roles[place.role], place, plan, context, prefetch)
        for place, plan in zip(places, plans, strict=True)
    }
    passive = [place for place in places if prepared[place.key].passive]
    return _with_slots(prepared, places, passive) if passive else prepared


def _with_slots(
    prepared: dict[Key, PreparedLaunch], places: Sequence[MemberPlacement], passive: Sequence[MemberPlacement]
) -> dict[Key, PreparedLaunch]:
    """Members without a process hold resources for the one that runs in their place: it gets their limits and devices."""
    key, node = next((place.key, place.node) for place in places if not prepared[place.key].passive)
    passive = [place for place in passive if place.node == node]  # what lies on other nodes is out of its reach
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


def _placed(job: str, member: Member, place: MemberPlacement, folder: str, context: LaunchContext) -> PlacedMember:
    own = context.member_address(job, place.role, place.index)
    return PlacedMember(
        role=place.role,
        index=place.index,
        host=own or context.addresses.get(place.node, place.node),
        ports=place.ports,
        argv=member.argv,
        env=member.env,
        cpu=member.request.cpu,
        devices=tuple(str(n) for name, numbers in place.devices if name == GPU for n in numbers),
        folder=folder,
    )


def _prepared(
    job: PlacedJob,
    member: Member,
    place: MemberPlacement,
    plan: LaunchPlan,
    context: LaunchContext,
    prefetch: PrefetchRequest | None,
) -> PreparedLaunch:
    mounts = tuple(Mount(s.id, s.mount_path, s.source, s.sub_path, s.read_only) for s in member.storages)
    # Who it is and which devices it has is not the user's to say: the next member may have been given the others.
    base_env = context.base_env
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
        namespace=context.namespaces.get(job.queue, ""),
        queue=job.queue,
        priority=job.priority,
        annotations=job.annotations,
        template=member.document.get("extensionTemplate") or job.template,
        node_selector=context.node_labels.get(job.queue, {}),
        gang=_gang(job, place),
        labels=pod_labels(job.labels, job.id, job.framework, job.queue, place.role),
        request=member.request,
        limit=member.limit,
        mounts=mounts,
        working_dir=working_dir,
        code=code,
        requirements=member.document.get("requirements", ""),
        files=plan.files,
        ports=place.ports,
        address=context.member_address(job.id, place.role, place.index) if len(job.places) > 1 else "",
        ready_port=plan.ready_port,
        prefetch=prefetch,
    )
    return PreparedLaunch(launch, plan.passive, member.secrets)


def _gang(job: PlacedJob, place: MemberPlacement) -> int:
    """How many members start with this one: those of its stage."""
    if len(job.places) == 1:
        return 1
    stage = next((stage for stage in find(job.framework).stages if place.role in stage), (place.role,))
    return sum(other.role in stage for other in job.places)


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
