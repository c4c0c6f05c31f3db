"""What a pipeline asks of the platform by name: storages, queues, flavours, frameworks and their roles.

Asked before a run is made, so that what is missing is reported at once and for all steps, not step by step during the run.
A name that a template stands in for is known only then; the step's job is refused then. Disabled components ask for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from paddleflow.access.callers import is_root
from paddleflow.base.names import nearest
from paddleflow.frameworks.catalogue import FRAMEWORKS, find
from paddleflow.queues import flavours, queues
from paddleflow.runs.model import NewRun
from paddleflow.spec.faults import Faults
from paddleflow.spec.pipeline.model import ENTRY_POINTS, POST_PROCESS, Component, Dag, FsMount, Pipeline, Step
from paddleflow.spec.pipeline.positions import Places
from paddleflow.spec.pipeline.templates import references
from paddleflow.storage import storages
from paddleflow.storage.model import NONE_YET, Storage
from paddleflow.store.database import Tx

#: variables of a step that name something, and what
NAMING = {
    "PF_JOB_QUEUE_NAME": "queue",
    "PF_JOB_FLAVOUR": "flavour",
    "PF_JOB_LIMIT_FLAVOUR": "flavour",
    "RAY_JOB_HEADER_FLAVOUR": "flavour",
    "RAY_JOB_WORKER_FLAVOUR": "flavour",
}
_FLAVOURS = ("flavour", "limitFlavour")  #: keys of a job document that hold a flavour
_NO_FLAVOUR = frozenset({"customflavour", "none"})  #: words in place of a flavour's name


Refusal = tuple[str, str]  #: message and hint


class Demand(NamedTuple):
    """One name that a step gives."""

    where: str
    kind: str  #: queue, flavour, framework or role
    name: str
    framework: str = ""  #: of a role


def require_storages(tx: Tx, pipeline: Pipeline, user: str, root: bool, places: Places) -> dict[str, Storage]:
    """The storages that a document names; `Invalid` lists those that the user does not have and may not use."""
    faults = Faults("FileSystemNotExist")
    found = _storages(tx, pipeline, user, root, faults, places)
    faults.check()
    return found


def require_all(tx: Tx, new: NewRun, places: Places) -> NewRun:
    """A run with its main storage found; everything that its user does not have is reported at once, with its place."""
    storages.require_user(tx, new.user)
    root = is_root(new.user)
    faults = Faults("InvalidPipeline")
    found = _storages(tx, new.pipeline, new.user, root, faults, places)
    why_not = _answers(tx, new.user, root)
    for demand in demands(new.pipeline):
        wrong = why_not(demand._replace(where=""))
        if wrong is not None:
            faults.add(places.where(demand.where), *wrong)
    faults.check()
    main = new.pipeline.main_fs
    return new if main is None else replace(new, fs_id=found[main.name].id, fs_name=main.name)


def _storages(tx: Tx, pipeline: Pipeline, user: str, root: bool, faults: Faults, places: Places) -> dict[str, Storage]:
    found: dict[str, Storage] = {}
    missing: set[str] = set()
    for where, mount in _mounts(pipeline):
        name = mount.name
        if name in found or name in missing:
            continue
        storage = storages.usable_storage(tx, user, root, name)
        if storage is not None:
            found[name] = storage
            continue
        missing.add(name)
        hint = nearest(name, storages.storage_names(tx, user, root), NONE_YET)
        message = f"fs[{name[:80]}] of user[{user}] does not exist"
        faults.add(places.where(where), message, hint, "FileSystemNotExist")
    return found


def _mounts(pipeline: Pipeline) -> Iterator[tuple[str, FsMount]]:
    """All storages that a pipeline and its steps mount, the main one first."""
    if pipeline.main_fs is not None:
        yield "fs_options.main_fs.name", pipeline.main_fs
    for number, mount in enumerate(pipeline.extra_fs):
        yield f"fs_options.extra_fs[{number}].name", mount
    for path, step in _steps(pipeline, frozenset()):
        for number, mount in enumerate(step.extra_fs):
            yield f"{path}.extra_fs[{number}].name", mount


def _answers(tx: Tx, user: str, root: bool) -> Callable[[Demand], Refusal | None]:
    """Answers for each name, cached: None, or message and hint of the refusal."""

    def queue(demand: Demand) -> Refusal | None:
        if queues.find_queue(tx, demand.name) is None:
            hint = nearest(demand.name[:80], queues.usable_queues(tx, user, root))
            return f"queue[{demand.name[:80]}] does not exist", hint
        if not queues.may_use_queue(tx, user, root, demand.name):
            hint = f"ask root for it: paddleflow queue grant {user} {demand.name}"
            return f"user[{user}] may not use queue[{demand.name}]", hint
        return None

    def flavour(demand: Demand) -> Refusal | None:
        if demand.name.lower() in _NO_FLAVOUR or flavours.find_flavour(tx, demand.name) is not None:
            return None
        hint = nearest(demand.name[:80], flavours.flavour_names(tx))
        return f"flavour[{demand.name[:80]}] does not exist", hint

    asked = {"queue": queue, "flavour": flavour, "framework": _framework, "role": _role}
    return cache(lambda demand: asked[demand.kind](demand))


def _framework(demand: Demand) -> Refusal | None:
    if demand.name.lower() in FRAMEWORKS:
        return None
    return f"framework[{demand.name[:40]}] is not supported", nearest(demand.name.lower(), FRAMEWORKS)


def _role(demand: Demand) -> Refusal | None:
    if demand.framework not in FRAMEWORKS:
        return None  # the framework is reported already
    framework = find(demand.framework)
    if framework.role(demand.name.lower()) is not None:
        return None
    message = f"the role[{demand.name[:40]}] for framework {demand.framework} is not supported"
    return message, nearest(demand.name, [role.name for role in framework.roles])


def demands(pipeline: Pipeline) -> Iterator[Demand]:
    """Every name that a step gives as it is, in the document's order."""
    for path, step in _steps(pipeline, pipeline.disabled):
        for variable, kind in NAMING.items():
            yield from _named(f"{path}.env.{variable}", kind, step.env.get(variable))
        if step.job is not None:
            yield from _of_job(f"{path}.job", step.job)


def _of_job(path: str, job: Mapping[str, Any]) -> Iterator[Demand]:
    yield from _of_member(path, job)
    framework = str(job.get("framework") or "")
    yield from _named(f"{path}.framework", "framework", framework)
    for number, member in enumerate(job.get("members") or ()):
        where = f"{path}.members[{number}]"
        yield from _of_member(where, member)
        for demand in _named(f"{where}.role", "role", member.get("role")):
            yield demand._replace(framework=framework.lower())


def _of_member(path: str, member: Mapping[str, Any]) -> Iterator[Demand]:
    policy = member.get("schedulingPolicy") or {}
    yield from _named(f"{path}.schedulingPolicy.queue", "queue", policy.get("queue"))
    for key in _FLAVOURS:
        yield from _named(f"{path}.{key}", "flavour", (member.get(key) or {}).get("name"))


def _named(where: str, kind: str, name: object) -> Iterator[Demand]:
    if isinstance(name, str) and name and not references(name):
        yield Demand(where, kind, name)


def _steps(pipeline: Pipeline, disabled: frozenset[str]) -> Iterator[tuple[str, Step]]:
    """All steps with their places in the document, but not what is disabled."""
    yield from _below(pipeline.entry_points, ENTRY_POINTS, "", disabled)
    if pipeline.post_process is not None:
        yield f"{POST_PROCESS}.{pipeline.post_process.name}", pipeline.post_process


def _below(
    children: Mapping[str, Component], place: str, path: str, disabled: frozenset[str]
) -> Iterator[tuple[str, Step]]:
    for name, child in children.items():
        if path + name in disabled:
            continue
        where = f"{place}.{name}"
        if isinstance(child, Dag):
            yield from _below(child.children, f"{where}.{ENTRY_POINTS}", f"{path}{name}.", disabled)
        else:
            yield where, child
