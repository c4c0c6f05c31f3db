"""May this job be submitted? Pure: a document and what is known of the world go in, a `NewJob` or every fault comes out.

The world (queues, flavours, storages, nodes) is looked up by `submission` in the same transaction that writes the rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources, total
from paddleflow.errors import Forbidden, OverQuota
from paddleflow.frameworks.catalogue import FRAMEWORKS, find
from paddleflow.frameworks.framework import Framework, PlacedMember
from paddleflow.jobs.model import Member, NewJob
from paddleflow.jobs.resolving import Size, flavour_of, limit_of, size_of, storages_of
from paddleflow.jobs.templates import members_of_template, spec_of_pod
from paddleflow.jobs.world import Faults, QueueFacts, World
from paddleflow.spec.job import (
    PRIORITIES,
    DistributedJob,
    JobSpec,
    MemberDocument,
    Named,
    SingleJob,
    WorkflowJob,
)

DEFAULT_QUEUE = "default-queue"
DEFAULT_FLAVOUR = Resources.of(1000, 2**30)
LOCAL = "Local"  #: the type of cluster that this server runs jobs on
TTL_ANNOTATION = "paddleflow/job-ttl-seconds"
SHELL = "/bin/sh"  #: by its path: to look it up in every folder of PATH costs each job a dozen system calls
NOTHING_TO_RUN = "is empty: there is nothing to run"
COMMAND_HINT = 'for example "command": "python train.py"'


def admit(document: SingleJob | DistributedJob | WorkflowJob, world: World) -> NewJob:
    """The job that this document asks for; `Invalid` and its kin list everything that is wrong with it."""
    faults = Faults()
    queue = _queue(document, world, faults)
    match document:
        case SingleJob():
            kind, framework = "single", "standalone"
            members = _single(document, world, faults)
        case DistributedJob():
            kind, framework = "distributed", document.framework.lower()
            members = _distributed(document, world, faults)
        case WorkflowJob():
            kind, framework, members = "workflow", "workflow", ()
            _refuse_workflow(document, faults)
    request = total(m.request * (m.replicas if m.least is None else m.least) for m in members)
    if queue is not None:
        _sizes(members, request, queue, world, faults, kind == "distributed")
    ttl = _ttl(document, faults)
    faults.check()
    return NewJob(
        id=document.id,
        name=document.name,
        user=world.user,
        queue=queue.name if queue else "",
        cluster=queue.cluster if queue else "",
        kind=kind,
        framework=framework,
        priority=_priority(document),
        members=members,
        labels=document.labels,
        annotations=document.annotations,
        template=getattr(document, "extension_template", None),
        request=request,
        ttl=ttl,
    )


def _priority(document: Named) -> str:
    """The job's own; else the highest that a member names, since they start together."""
    members = document.members if isinstance(document, DistributedJob) else ()
    named = [member.scheduling_policy.priority for member in members if member.scheduling_policy.priority]
    return document.scheduling_policy.priority or max(named, key=PRIORITIES.__getitem__, default="NORMAL")


def _queue(document: Named, world: World, faults: Faults) -> QueueFacts | None:
    names = {document.scheduling_policy.queue} if document.scheduling_policy.queue else set()
    if isinstance(document, DistributedJob):
        names |= {m.scheduling_policy.queue for m in document.members if m.scheduling_policy.queue}
    if len(names) > 1:
        faults.add("schedulingPolicy.queue", f"all members must name the same queue, found {', '.join(sorted(names))}")
        return None
    name = names.pop() if names else DEFAULT_QUEUE
    queue = world.queue(name)
    where = "schedulingPolicy.queue"
    if queue is None:
        hint = nearest(name[:80], world.known_queues())
        faults.add(where, f"queue[{name[:80]}] does not exist", hint, "QueueNameNotFound")
    elif not queue.usable:
        hint = f"ask root for it: paddleflow queue grant {world.user} {name}"
        faults.add(where, f"user[{world.user}] may not use queue[{name}]", hint, "AccessDenied", Forbidden)
    elif queue.cluster_type != LOCAL:
        message = f"queue[{name}] belongs to a cluster of type {queue.cluster_type}, where this server runs nothing yet"
        faults.add(where, message, "use a queue of default-cluster")
    elif not queue.open:
        faults.add(where, f"queue[{name}] is not open", "it takes no new jobs", "InvalidState")
    return queue


def _single(document: SingleJob, world: World, faults: Faults) -> tuple[Member, ...]:
    spec: JobSpec = document
    if document.extension_template is not None:
        spec = spec_of_pod(document, document.extension_template, faults.add)
    member = _member("worker", 1, spec, "", world, faults)
    if not member.argv:
        faults.add("command", NOTHING_TO_RUN, COMMAND_HINT)
    return (member,)


def _distributed(document: DistributedJob, world: World, faults: Faults) -> tuple[Member, ...]:
    name = document.framework.lower()
    if name not in FRAMEWORKS:
        faults.add("framework", f"framework[{document.framework[:40]}] is not supported", nearest(name, FRAMEWORKS))
        return ()
    framework = find(name)
    documents: Sequence[MemberDocument] = document.members
    if not documents and document.extension_template is not None:
        before = len(faults.found)
        documents = members_of_template(name, document.extension_template, faults.add)
        if not documents and len(faults.found) > before:
            return ()
    if not documents:
        faults.add("members", "request.Members is empty", "name at least one member, with role and replicas")
        return ()
    members: list[Member] = []
    counts: dict[str, int] = {}
    most: dict[str, int] = {}
    for number, item in enumerate(documents):
        where = f"members[{number}]."
        role = framework.role(item.role.lower())
        if role is None:
            known = nearest(item.role, [r.name for r in framework.roles])
            faults.add(f"{where}role", f"the role[{item.role[:40]}] for framework {name} is not supported", known)
            continue
        if role.name in counts:
            faults.add(f"{where}role", f"the role[{role.name}] is there twice")
            continue
        size = size_of(item, role, name, where, faults)
        counts[role.name], most[role.name] = size.count if size.least is None else size.least, size.count
        members.append(_member(role.name, item.replicas, item, where, world, faults, size))
    if len(members) == len(documents):  # every role is known, so what the framework says of them is worth hearing
        found = framework.check(counts) or framework.check(most)
        for fault in found:
            faults.add(fault.where or "members", fault.message, fault.hint)
        if not found:
            _commands(framework, members, faults)
    return tuple(members)


def _commands(framework: Framework, members: Sequence[Member], faults: Faults) -> None:
    """Every process needs something to run; the framework says which members have one, and may bring its own command."""
    placed = [
        PlacedMember(member.role, 0, "127.0.0.1", (1,) * role.ports, member.argv, member.env, member.request.cpu)
        for member in members
        if (role := framework.role(member.role)) is not None
    ]
    for number, plan in enumerate(framework.plan("", placed)):
        if not plan.passive and not plan.argv:
            faults.add(f"members[{number}].command", NOTHING_TO_RUN, COMMAND_HINT)


def _refuse_workflow(document: WorkflowJob, faults: Faults) -> None:
    if not document.extension_template:
        faults.add("extensionTemplate", "ExtensionTemplate for workflow job is needed, and now is empty")
    else:
        hint = "submit its steps as jobs, or to a queue of a Kubernetes cluster with Argo"
        faults.add("extensionTemplate", "an Argo Workflow cannot run on a cluster of type Local", hint)


def _member(
    role: str, replicas: int, spec: JobSpec, where: str, world: World, faults: Faults, size: Size | None = None
) -> Member:
    size = size or Size(replicas)
    request = flavour_of(spec.flavour, f"{where}flavour", world, faults) or DEFAULT_FLAVOUR
    try:
        argv = command_line(spec.command, spec.args)
    except ValueError as error:
        faults.add(f"{where}args", f"cannot be read as shell words: {error}", "write it as a list")
        argv = ("false",)
    return Member(
        role=role,
        replicas=size.count,
        argv=argv,
        env=spec.env,
        request=request,
        limit=limit_of(spec, request, where, world, faults),
        storages=storages_of(spec, where, world, faults),
        least=size.least,
        in_place=size.in_place,
        document=_kept(spec, role, replicas, request),
    )


def command_line(command: str | list[str], args: str | Sequence[str]) -> tuple[str, ...]:
    """A string is read by the shell, a list is run as it is; arguments are appended, each one word."""
    words = shlex.split(args) if isinstance(args, str) else args
    if isinstance(command, str):
        if not command.strip():
            return tuple(words)
        return SHELL, "-c", " ".join([command, *map(shlex.quote, words)])
    return (*command, *words)


def _sizes(
    members: Sequence[Member], request: Resources, queue: QueueFacts, world: World, faults: Faults, gang: bool
) -> None:
    """Refuse at once what could never start."""
    own = [] if queue.most is None else [(queue.name, queue.most)]
    for name, most in [] if world.skip_queue_maximum else [*own, *queue.above]:
        over = request.beyond(most)
        if over:
            text = "; ".join(f"{d}: {request.text(d)} wanted, {most.text(d)} at most" for d in over)
            message = f"the flavour[{request}] is larger than queue's [{most}] ({text})"
            hint = f"queue {name} never has that much; ask for less or use another queue"
            faults.add("flavour", message, hint, "JobInvalidField", OverQuota)
            return
    for number, member in enumerate(members):
        why = world.why_no_node(queue.cluster, member.request)
        if why:
            where = f"members[{number}].flavour" if gang else "flavour"
            faults.add(where, f"no node can ever hold {member.role}: {why}", "ask for less", kind=OverQuota)


def time_to_live(annotations: Mapping[str, str]) -> float | None:
    """Seconds that a job is kept after its end, if its annotations say so; ValueError with a sentence for a bad one."""
    text = annotations.get(TTL_ANNOTATION, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError(f"must be a number of seconds of at most 9 digits, found {text[:40]!r}")
    return float(text)


def _ttl(document: Named, faults: Faults) -> float | None:
    try:
        return time_to_live(document.annotations)
    except ValueError as error:
        faults.add(f"annotations.{TTL_ANNOTATION}", str(error))
        return None


#: field of a document → its name on the wire; what is empty is left out. The name of a single job is the job's own.
_KEPT = {
    "image": "image", "command": "command", "args": "args", "port": "port", "labels": "labels",
    "annotations": "annotations",
}  # fmt: skip


def _kept(spec: JobSpec, role: str, replicas: int, request: Resources) -> Mapping[str, Any]:
    """The fields as they were sent, with what was resolved; nothing that is empty."""
    kept: dict[str, Any] = {"role": role, "replicas": replicas}
    for field_name, wire in _KEPT.items():
        value = getattr(spec, field_name)
        if value:
            kept[wire] = value
    kept["flavour"] = {"name": spec.flavour.name, **_shown(request)}
    if isinstance(spec, MemberDocument):
        if spec.name:
            kept["name"] = spec.name
        kept |= spec.model_dump(
            by_alias=True, exclude_defaults=True, include={"min_replicas", "max_replicas", "resize"}
        )
    if spec.limit_flavour.name or spec.limit_flavour.cpu:
        kept["limitFlavour"] = spec.limit_flavour.model_dump(by_alias=True, exclude_defaults=True)
    if spec.fs:
        kept["fs"] = spec.fs.model_dump(by_alias=True, exclude_defaults=True)
    if spec.extra_fs:
        kept["extraFS"] = [mount.model_dump(by_alias=True, exclude_defaults=True) for mount in spec.extra_fs]
    return kept


@lru_cache(maxsize=4096)
def _shown(request: Resources) -> Mapping[str, Any]:
    """An amount as flavours are written."""
    scalars = {name: request.text(name) for name, _ in request.scalars}
    return {"cpu": request.text("cpu"), "mem": request.text("memory"), "scalarResources": scalars}
