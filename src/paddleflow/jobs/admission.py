"""May this job be submitted? Pure: a document and what is known of the world go in, a `NewJob` or every fault comes out.

The world (queues, flavours, storages, nodes) is looked up by `submission` in the same transaction that writes the rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from posixpath import normpath
from typing import Any

from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources, parse_milli, parse_quantity, total
from paddleflow.base.values import dataclass
from paddleflow.errors import Fault, Forbidden, Invalid, NotFound, OverQuota
from paddleflow.frameworks.catalogue import FRAMEWORKS, find
from paddleflow.frameworks.framework import Framework, PlacedMember, Role
from paddleflow.frameworks.workflow import ROLE, WORKFLOW
from paddleflow.jobs.model import Dependency, JobStatus, Member, MountedStorage, NewJob
from paddleflow.jobs.neighbour_rules import near_text, pod_labels
from paddleflow.jobs.node_rules import rules_of_template
from paddleflow.jobs.templates import KINDS as TEMPLATE_KINDS
from paddleflow.jobs.templates import members_of_template, spec_of_pod
from paddleflow.queues.model import DEFAULT_CLUSTER, DEFAULT_QUEUE, LOCAL
from paddleflow.spec.job import (
    IN_PLACE,
    PRIORITIES,
    RESTART,
    DistributedJob,
    FlavourChoice,
    JobSpec,
    MemberDocument,
    Named,
    SingleJob,
    WorkflowJob,
    after_of,
)
from paddleflow.spec.operator_kinds import kind_of, kinds_of
from paddleflow.storage.model import NONE_YET

DEFAULT_FLAVOUR = Resources.of(1000, 2**30)
TTL_ANNOTATION = "paddleflow/job-ttl-seconds"
SHELL = "/bin/sh"  #: by its path: to look it up in every folder of PATH costs each job a dozen system calls
NOTHING_TO_RUN = "is empty: there is nothing to run"
COMMAND_HINT = 'for example "command": "python train.py"'
LIMIT_VARIABLE = "PF_JOB_LIMIT_FLAVOUR"
MAX_ENVIRONMENT = 256 * 2**10  #: bytes of the variables of one member, unless the settings say otherwise
MAX_VARIABLE = 128 * 2**10 - 1  #: bytes of one of them with its name: no Linux starts a process with a longer one
MOUNT_ROOT = "/home/paddleflow/storage/mnt"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What admission must know of a queue."""

    name: str
    open: bool
    usable: bool  #: by the one who submits
    most: Resources | None
    cluster_type: str = LOCAL
    above: tuple[tuple[str, Resources], ...] = ()  #: name and ceiling of each queue above it that has one
    cluster: str = DEFAULT_CLUSTER
    other_clusters: tuple[str, ...] = ()
    namespace: str = ""  #: of its pods


@dataclass(frozen=True, slots=True)
class StorageFacts:
    id: str
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """A job that another one is to run after."""

    status: JobStatus
    message: str


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """What is known at this moment. Look-ups answer None for what is not there."""

    user: str
    queue: Callable[[str], QueueFacts | None]
    flavour: Callable[[str], Resources | None]
    storage: Callable[[str], StorageFacts | None]
    why_no_node: Callable[
        [str, Resources], str
    ]  #: empty when a node of that cluster could hold so much, else why none can
    earlier_job: Callable[[str], EarlierJob | None] = lambda id: None  #: that the one who submits may see
    known_secrets: Callable[[], frozenset[str]] = frozenset  #: of the one who submits
    known_queues: Callable[[], Sequence[str]] = tuple
    known_flavours: Callable[[], Sequence[str]] = tuple
    known_storages: Callable[[], Sequence[str]] = tuple
    skip_queue_maximum: bool = False
    max_environment: int = MAX_ENVIRONMENT


@dataclass(slots=True)
class JobFaults:
    """Collects what is wrong with a job; the code of the first fault becomes the answer's."""

    found: list[Fault] = field(default_factory=list)
    code: str = ""
    kind: type[Invalid | NotFound | Forbidden | OverQuota] = Invalid

    def add(self, where: str, message: str, hint: str = "", code: str = "JobInvalidField", kind: Any = Invalid) -> None:
        if not self.found:
            self.code, self.kind = code, kind
        self.found.append(Fault(where, message, hint))

    def check(self) -> None:
        if self.found:
            text = "; ".join(str(fault) for fault in self.found)
            hint = next((fault.hint for fault in self.found if fault.hint), "")
            raise self.kind(text, code=self.code, hint=hint, details=self.found)


def admit(document: SingleJob | DistributedJob | WorkflowJob, context: AdmissionContext) -> NewJob:
    """The job that this document asks for; `Invalid` and its kin list everything that is wrong with it."""
    faults = JobFaults()
    queue = _queue(document, context, faults)
    match document:
        case SingleJob():
            kind, framework = "single", "standalone"
            members = _single(document, context, faults)
        case DistributedJob() if _runs_as_object(document, queue):
            kind, framework = "distributed", WORKFLOW.name
            members = _object(document.extension_template, document.framework.lower(), queue, context, faults)
        case DistributedJob():
            kind, framework = "distributed", document.framework.lower()
            members = _distributed(document, context, faults)
        case WorkflowJob():
            kind, framework = "workflow", WORKFLOW.name
            members = _object(document.extension_template, WORKFLOW.name, queue, context, faults)
    if queue is not None and queue.cluster_type != LOCAL:
        _refuse_folders(document, queue, faults)
        members = _with_node_rules(members, document, framework, queue)
    request = total(m.request * (m.replicas if m.least is None else m.least) for m in members)
    if queue is not None:
        _sizes(members, request, queue, context, faults, kind == "distributed")
    ttl = _ttl(document, faults)
    waits_for = _waits_for(document.after, context, faults) if document.after else ()
    faults.check()
    return NewJob(
        id=document.id,
        name=document.name,
        user=context.user,
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
        after=tuple(document.after),
        waits_for=waits_for,
        array=document.array if isinstance(document, SingleJob) else "",
    )


def _with_node_rules(
    members: tuple[Member, ...], document: Named, framework: str, queue: QueueFacts
) -> tuple[Member, ...]:
    """On a cluster with pods, what the scheduler must know of those of its members. Of objects of operators the cluster takes care."""
    if framework == WORKFLOW.name:
        return members
    shared = getattr(document, "extension_template", None)
    found = []
    for member in members:
        template = member.document.get("extensionTemplate") or shared
        labels = pod_labels(document.labels, "", framework, queue.name, member.role)
        near = near_text(template, queue.namespace, labels)
        found.append(replace(member, nodes=replace(rules_of_template(template), near=near)))
    return tuple(found)


def _waits_for(after: Sequence[str], context: AdmissionContext, faults: JobFaults) -> tuple[Dependency, ...]:
    """Those of the earlier jobs that have not ended yet; one that ended otherwise than it must is a fault."""
    waits_for = []
    for number, text in enumerate(after):
        ending, id = after_of(text)
        dependency = Dependency(id, ending)
        earlier = context.earlier_job(id)
        where = f"after[{number}]"
        if earlier is None:
            hint = "paddleflow job list shows all"
            faults.add(where, f"job[{id}] does not exist", hint, "JobNotFound", NotFound)
        elif not earlier.status.final:
            waits_for.append(dependency)
        elif not dependency.is_met(earlier.status):
            reason = f": {earlier.message}" if earlier.message else ""
            faults.add(
                where, f"job[{id}] has {ended_words(earlier.status)}{reason}", "a job after it would never start"
            )
    return tuple(waits_for)


def ended_words(status: JobStatus) -> str:
    """How a sentence about an ended job goes on after ``has``."""
    return status.value if status in {JobStatus.FAILED, JobStatus.SUCCEEDED} else f"been {status.value}"


def _refuse_folders(document: Named, queue: QueueFacts, faults: JobFaults) -> None:
    """A folder of the caller's machine cannot be seen from another."""
    members = document.members if isinstance(document, DistributedJob) else ()
    for where, source in (
        ("code", getattr(document, "source", None)),
        *((f"members[{number}].code", member.source) for number, member in enumerate(members)),
    ):
        if source is not None and source.path:
            message = f"names a folder of this machine, and queue[{queue.name}] is of cluster[{queue.cluster}]"
            faults.add(f"{where}.path", message, "send a snapshot of it, as paddleflow job run does")


def _priority(document: Named) -> str:
    """The job's own; else the highest that a member names, since they start together."""
    members = document.members if isinstance(document, DistributedJob) else ()
    named = [member.scheduling_policy.priority for member in members if member.scheduling_policy.priority]
    return document.scheduling_policy.priority or max(named, key=PRIORITIES.__getitem__, default="NORMAL")


def _queue(document: Named, context: AdmissionContext, faults: JobFaults) -> QueueFacts | None:
    names = {document.scheduling_policy.queue} if document.scheduling_policy.queue else set()
    if isinstance(document, DistributedJob):
        names |= {m.scheduling_policy.queue for m in document.members if m.scheduling_policy.queue}
    if len(names) > 1:
        faults.add("schedulingPolicy.queue", f"all members must name the same queue, found {', '.join(sorted(names))}")
        return None
    name = names.pop() if names else DEFAULT_QUEUE
    queue = context.queue(name)
    where = "schedulingPolicy.queue"
    if queue is None:
        hint = nearest(name[:80], context.known_queues())
        faults.add(where, f"queue[{name[:80]}] does not exist", hint, "QueueNameNotFound")
    elif not queue.usable:
        hint = f"ask root for it: paddleflow queue grant {context.user} {name}"
        faults.add(where, f"user[{context.user}] may not use queue[{name}]", hint, "AccessDenied", Forbidden)
    elif not queue.open:
        faults.add(where, f"queue[{name}] is not open", "it takes no new jobs", "InvalidState")
    return queue


def _single(document: SingleJob, context: AdmissionContext, faults: JobFaults) -> tuple[Member, ...]:
    spec: JobSpec = document
    if document.extension_template is not None:
        spec = spec_of_pod(document, document.extension_template, faults.add)
    member = _member("worker", 1, spec, "", context, faults)
    if not member.argv:
        faults.add("command", NOTHING_TO_RUN, COMMAND_HINT)
    return (member,)


def _distributed(document: DistributedJob, context: AdmissionContext, faults: JobFaults) -> tuple[Member, ...]:
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
            faults.add(f"{where}role", f"the role[{role.name}] is listed twice")
            continue
        size = size_of(item, role, name, where, faults)
        counts[role.name], most[role.name] = size.count if size.least is None else size.least, size.count
        if item.source is None and document.source is not None:
            item = item.model_copy(update={"source": document.source})
        for shared in ("secrets", "requirements"):
            if getattr(document, shared) and not getattr(item, shared):
                item = item.model_copy(update={shared: getattr(document, shared)})
        if item.extension_template is not None:
            item = spec_of_pod(item, item.extension_template, faults.add)
        members.append(_member(role.name, item.replicas, item, where, context, faults, size))
    if len(members) == len(documents):  # every role is known, so what the framework says of them is worth hearing
        found = framework.check(counts) or framework.check(most)
        for fault in found:
            faults.add(fault.where or "members", fault.message, fault.hint)
        if not found:
            _commands(framework, members, faults)
    return tuple(members)


def _commands(framework: Framework, members: Sequence[Member], faults: JobFaults) -> None:
    """Every process needs something to run; the framework says which members have one, and may bring its own command."""
    placed = [
        PlacedMember(member.role, 0, "127.0.0.1", (1,) * role.ports, member.argv, member.env, member.request.cpu)
        for member in members
        if (role := framework.role(member.role)) is not None
    ]
    for number, plan in enumerate(framework.plan("", placed)):
        if not plan.passive and not plan.argv:
            faults.add(f"members[{number}].command", NOTHING_TO_RUN, COMMAND_HINT)


def _runs_as_object(document: Named, queue: QueueFacts | None) -> bool:
    """Whether an operator of the cluster runs the job: it is described by nothing but a template of another kind than Pod."""
    if not isinstance(document, DistributedJob) or queue is None or queue.cluster_type == LOCAL:
        return False
    template = document.extension_template
    return not document.members and template is not None and kind_of(template) is not None


def _object(
    template: Mapping[str, Any] | None,
    framework: str,
    queue: QueueFacts | None,
    context: AdmissionContext,
    faults: JobFaults,
) -> tuple[Member, ...]:
    """The one member of a job that an operator of the cluster runs. The operator's pods are placed and counted by the cluster, as
    those of others are: the platform itself places nothing, and asks only that the queue could ever hold it."""
    given = template or {}
    kind = kind_of(given)
    if queue is not None and queue.cluster_type == LOCAL:
        hint = "submit its steps as jobs, or to a queue of a Kubernetes cluster with Argo"
        faults.add("extensionTemplate", "an Argo Workflow cannot run on a cluster of type Local", hint)
    elif kind is None or kind.framework != framework:
        found = f"{given.get('apiVersion')} {given.get('kind')}"[:80]
        hint = f"use {' or '.join(kinds_of(framework))}"
        faults.add("extensionTemplate.kind", f"{found} cannot run a job of framework {framework}", hint)
    elif queue is not None and kind.kind in TEMPLATE_KINDS:
        read = DistributedJob(framework=framework, members=members_of_template(framework, given, faults.add))
        described = _distributed(read, context, faults) if read.members else ()
        request = total(member.request * member.replicas for member in described)
        _sizes(described, request, queue, context, faults, True)
    nothing = Resources()
    document = {"role": ROLE, "replicas": 1, "framework": framework, "flavour": {"name": "", **_shown(nothing)}}
    return (Member(ROLE, 1, (), {}, nothing, None, document=document),)


def _member(
    role: str,
    replicas: int,
    spec: JobSpec,
    where: str,
    context: AdmissionContext,
    faults: JobFaults,
    size: Size | None = None,
) -> Member:
    size = size or Size(replicas)
    _check_environment(spec.env, where, context, faults)
    if spec.secrets:
        _check_secrets(spec, where, context, faults)
    request = flavour_of(spec.flavour, f"{where}flavour", context, faults) or DEFAULT_FLAVOUR
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
        limit=limit_of(spec, request, where, context, faults),
        storages=storages_of(spec, where, context, faults),
        least=size.least,
        in_place=size.in_place,
        document=_kept(spec, role, replicas, request),
    )


def _check_environment(env: Mapping[str, str], where: str, context: AdmissionContext, faults: JobFaults) -> None:
    """Refuse at once what no process could be started with, or what would make every list of jobs large."""
    sizes = {name: len(name) + len(value.encode()) + 2 for name, value in env.items()}
    longest = max(sizes, key=sizes.__getitem__, default="")
    hint = "put large values into a file"
    if longest and sizes[longest] > MAX_VARIABLE:
        faults.add(
            f"{where}env.{longest[:80]}", f"has {sizes[longest]} bytes, at most {MAX_VARIABLE} are possible", hint
        )
    if sum(sizes.values()) > context.max_environment:
        found = f"has {sum(sizes.values())} bytes in all, at most {context.max_environment} are allowed"
        faults.add(f"{where}env", found, f"{hint}; the setting jobs.max_environment is the limit")


def _check_secrets(spec: JobSpec, where: str, context: AdmissionContext, faults: JobFaults) -> None:
    """They exist, and no variable is set twice. The values are looked up when the job starts."""
    known = context.known_secrets()
    for number, use in enumerate(spec.secrets):
        at = f"{where}secrets[{number}]"
        if use.name not in known:
            hint = nearest(use.name, known, f"paddleflow secret set {use.name}")
            message = f"secret[{use.name}] does not exist for user[{context.user}]"
            faults.add(f"{at}.name", message, hint, "SecretNotFound", NotFound)
        if use.env in spec.env:
            faults.add(f"{at}.env", f"variable[{use.env}] is set by env as well", "leave one of them out")


def command_line(command: str | list[str], args: str | Sequence[str]) -> tuple[str, ...]:
    """A string is read by the shell, a list is run as it is; arguments are appended, each one word."""
    words = shlex.split(args) if isinstance(args, str) else args
    if isinstance(command, str):
        if not command.strip():
            return tuple(words)
        return SHELL, "-c", " ".join([command, *map(shlex.quote, words)])
    return (*command, *words)


def _sizes(
    members: Sequence[Member],
    request: Resources,
    queue: QueueFacts,
    context: AdmissionContext,
    faults: JobFaults,
    gang: bool,
) -> None:
    """Refuse at once what could never start."""
    own = [] if queue.most is None else [(queue.name, queue.most)]
    for name, most in [] if context.skip_queue_maximum else [*own, *queue.above]:
        over = request.beyond(most)
        if over:
            text = "; ".join(f"{d}: {request.text(d)} wanted, {most.text(d)} at most" for d in over)
            message = f"the flavour[{request}] is larger than queue's [{most}] ({text})"
            hint = f"queue {name} never has that much; ask for less or use another queue"
            faults.add("flavour", message, hint, "JobInvalidField", OverQuota)
            return
    for number, member in enumerate(members):
        reasons = [context.why_no_node(name, member.request) for name in (queue.cluster, *queue.other_clusters)]
        if all(reasons):
            why = reasons[0]
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


def _ttl(document: Named, faults: JobFaults) -> float | None:
    try:
        return time_to_live(document.annotations)
    except ValueError as error:
        faults.add(f"annotations.{TTL_ANNOTATION}", str(error))
        return None


#: field of a document → its name on the wire; what is empty is left out. The name of a single job is the job's own.
_KEPT = {
    "image": "image", "command": "command", "args": "args", "port": "port", "labels": "labels",
    "annotations": "annotations", "requirements": "requirements",
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
        if spec.extension_template:
            kept["extensionTemplate"] = spec.extension_template
        kept |= spec.model_dump(
            by_alias=True, exclude_defaults=True, include={"min_replicas", "max_replicas", "resize"}
        )
    if spec.limit_flavour.name or spec.limit_flavour.cpu:
        kept["limitFlavour"] = spec.limit_flavour.model_dump(by_alias=True, exclude_defaults=True)
    if spec.source:
        kept["code"] = spec.source.model_dump(by_alias=True, exclude_defaults=True)
    if spec.secrets:
        kept["secrets"] = [use.model_dump(by_alias=True, exclude_defaults=True) for use in spec.secrets]
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


# --- what a document names: flavours, limits, sizes, storages ------------------------------------------------------


def flavour_of(choice: FlavourChoice, where: str, context: AdmissionContext, faults: JobFaults) -> Resources | None:
    """The resources behind a choice; None when nothing was chosen."""
    if choice.name and choice.name != "customFlavour":
        found = context.flavour(choice.name)
        if found is None:
            hint = nearest(choice.name[:80], context.known_flavours())
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


def limit_of(
    spec: JobSpec, request: Resources, where: str, context: AdmissionContext, faults: JobFaults
) -> Resources | None:
    """Limits are the requests, unless another flavour or NONE is named."""
    named, place = spec.env.get(LIMIT_VARIABLE, ""), f"{where}env.{LIMIT_VARIABLE}"
    if not named:
        named, place = spec.limit_flavour.name, f"{where}limitFlavour"
    if named.upper() == "NONE":
        return None
    choice = FlavourChoice(name=named) if named and named != "customFlavour" else spec.limit_flavour
    limit = flavour_of(choice, place, context, faults)
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


def size_of(member: MemberDocument, role: Role, framework: str, where: str, faults: JobFaults) -> Size:
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


def storages_of(spec: JobSpec, where: str, context: AdmissionContext, faults: JobFaults) -> tuple[MountedStorage, ...]:
    found: list[MountedStorage] = []
    mounts = ([("fs", spec.fs)] if spec.fs else []) + [(f"extraFS[{n}]", m) for n, m in enumerate(spec.extra_fs)]
    for field_name, mount in mounts:
        try:
            facts = context.storage(mount.name)
        except Invalid as error:  # several owners granted one of this name
            faults.add(f"{where}{field_name}.name", error.message, error.hint)
            continue
        if facts is None:
            hint = nearest(mount.name[:80], context.known_storages(), NONE_YET)
            message = f"fs[{mount.name[:80]}] does not exist for user[{context.user}]"
            faults.add(f"{where}{field_name}.name", message, hint)
            continue
        path = "/" + normpath(mount.mount_path or f"{MOUNT_ROOT}/{facts.id}").lstrip("/")
        if any(path == other.mount_path for other in found):
            faults.add(f"{where}{field_name}.mountPath", f"mountPath[{path}] is used twice")
        found.append(MountedStorage(facts.id, facts.name, facts.source, path, mount.sub_path, mount.read_only))
    return tuple(found)
