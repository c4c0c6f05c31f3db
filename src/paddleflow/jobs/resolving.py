"""What a job's document names (flavours, limits, storages), resolved against the world. Pure; called by `admission`."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import normpath

from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources, parse_milli, parse_quantity
from paddleflow.errors import Invalid, NotFound
from paddleflow.frameworks.framework import Role
from paddleflow.jobs.model import MountedStorage
from paddleflow.jobs.world import Faults, World
from paddleflow.spec.job import IN_PLACE, RESTART, FlavourChoice, JobSpec, MemberDocument
from paddleflow.storage.model import NONE_YET

LIMIT_VARIABLE = "PF_JOB_LIMIT_FLAVOUR"
MOUNT_ROOT = "/home/paddleflow/storage/mnt"


def flavour_of(choice: FlavourChoice, where: str, world: World, faults: Faults) -> Resources | None:
    """The resources behind a choice; None when nothing was chosen."""
    if choice.name and choice.name != "customFlavour":
        found = world.flavour(choice.name)
        if found is None:
            hint = nearest(choice.name[:80], world.known_flavours())
            faults.add(where, f"flavour[{choice.name[:80]}] does not exist", hint, "FlavourNotFound", NotFound)
        return found
    memory = choice.mem or choice.memory
    if choice.memory and choice.memory != memory:
        faults.add(
            f"{where}.memory", f"mem {memory[:40]} and memory {choice.memory[:40]} name the same thing but differ"
        )
    if not (choice.cpu or memory or choice.scalar_resources):
        return None
    amounts = {"cpu": 0, "mem": 0}
    for key, text, parse in (("cpu", choice.cpu, parse_milli), ("mem", memory, parse_quantity)):
        try:
            amounts[key] = parse(text) if text else 0
        except ValueError as error:
            faults.add(f"{where}.{key}", str(error))
            continue
        if amounts[key] <= 0:
            faults.add(f"{where}.{key}", f"{key} must be more than 0, found {text or 'nothing'}")
    scalars = {}
    for name, text in choice.scalar_resources.items():
        try:
            scalars[name] = parse_milli(text or "0")
        except ValueError as error:
            faults.add(f"{where}.scalarResources.{name}", str(error))
    return Resources.of(amounts["cpu"], amounts["mem"], scalars)


def limit_of(spec: JobSpec, request: Resources, where: str, world: World, faults: Faults) -> Resources | None:
    """Limits are the requests, unless another flavour or NONE is named."""
    named, place = spec.env.get(LIMIT_VARIABLE, ""), f"{where}env.{LIMIT_VARIABLE}"
    if not named:
        named, place = spec.limit_flavour.name, f"{where}limitFlavour"
    if named.upper() == "NONE":
        return None
    choice = FlavourChoice(name=named) if named and named != "customFlavour" else spec.limit_flavour
    limit = flavour_of(choice, place, world, faults)
    if limit is None:
        return request
    over = request.beyond(limit)
    if over:
        text = ", ".join(f"{d} {request.text(d)} over {limit.text(d)}" for d in over)
        faults.add(place, f"the request is larger than the limit: {text}")
    return limit


@dataclass(frozen=True, slots=True)
class Size:
    """How many members a role has."""

    count: int  #: at the most
    least: int | None = None  #: the job starts with so many; None: all or none
    in_place: bool = False


def size_of(member: MemberDocument, role: Role, framework: str, where: str, faults: Faults) -> Size:
    """What `replicas`, `minReplicas`, `maxReplicas` and `resize` say together."""
    if member.min_replicas is None and member.max_replicas is None:
        if member.resize:
            text = f"resize[{member.resize}] says how members come and go, but role {role.name} always has {member.replicas}"
            faults.add(f"{where}resize", text, "name minReplicas or maxReplicas too, or leave resize out")
        return Size(member.replicas)
    least = member.replicas if member.min_replicas is None else member.min_replicas
    given = "replicas" in member.model_fields_set
    most = (max(least, member.replicas) if given else least) if member.max_replicas is None else member.max_replicas
    if not least <= most or (given and not least <= member.replicas <= most):
        text = f"replicas must lie between minReplicas and maxReplicas, found {least} <= {member.replicas} <= {most}"
        faults.add(f"{where}minReplicas", text)
    in_place = member.resize == IN_PLACE
    if in_place and not role.in_place:
        text = f"members of role {role.name} of framework {framework} cannot come and go while the others run"
        faults.add(f"{where}resize", text, f"use {RESTART}: all members start anew at the new size")
    return Size(most, least, in_place)


def storages_of(spec: JobSpec, where: str, world: World, faults: Faults) -> tuple[MountedStorage, ...]:
    found: list[MountedStorage] = []
    mounts = ([("fs", spec.fs)] if spec.fs else []) + [(f"extraFS[{n}]", m) for n, m in enumerate(spec.extra_fs)]
    for field_name, mount in mounts:
        try:
            facts = world.storage(mount.name)
        except Invalid as error:  # several owners granted one of this name
            faults.add(f"{where}{field_name}.name", error.message, error.hint)
            continue
        if facts is None:
            hint = nearest(mount.name[:80], world.known_storages(), NONE_YET)
            message = f"fs[{mount.name[:80]}] does not exist for user[{world.user}]"
            faults.add(f"{where}{field_name}.name", message, hint)
            continue
        path = "/" + normpath(mount.mount_path or f"{MOUNT_ROOT}/{facts.id}").lstrip("/")
        if any(path == other.mount_path for other in found):
            faults.add(f"{where}{field_name}.mountPath", f"mountPath[{path}] is used twice")
        found.append(MountedStorage(facts.id, facts.name, facts.source, path, mount.sub_path, mount.read_only))
    return tuple(found)
