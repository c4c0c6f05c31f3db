"""The jobs of steps, admitted: what was found out about one step holds for all that are alike, until the world changes.

Steps of a loop or of a wide pipeline differ in command, variables and name; queue, flavour, image and storages are the same.
So the first of them takes the whole way (`runs.documents`, `jobs.admission`), and the others are copies of its job. Called by
`run_engine`, inside a read of the database.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import field, replace

from paddleflow.access.callers import is_root
from paddleflow.base import names
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota
from paddleflow.jobs.admission import LIMIT_VARIABLE, AdmissionContext, admit, command_line
from paddleflow.jobs.model import NewJob
from paddleflow.jobs.submission import (
    AdmissionCache,
    Nodes,
    QueueCache,
    Submitter,
    admission_context,
    admission_version,
)
from paddleflow.runs.documents import CONTROLS, command_of, document_of, identity_of
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered
from paddleflow.spec.pipeline.model import Step
from paddleflow.store.database import Tx

REFUSALS = (Invalid, NotFound, Forbidden, Conflict, OverQuota)  #: of a job; anything else is no answer
_CONTROLS = (*CONTROLS, LIMIT_VARIABLE)

Asked = tuple[RunState, Instance, Rendered]


@dataclass(slots=True)
class Admission:
    """What admitting the jobs of steps needs to know of this server, and what it has found out."""

    nodes: Nodes
    skip_queue_maximum: bool
    queues: QueueCache = field(default_factory=QueueCache)
    known: AdmissionCache[NewJob] = field(default_factory=AdmissionCache)

    def admit(self, tx: Tx, asked: Sequence[Asked]) -> list[NewJob | Exception]:
        """For each its job, or why it cannot be; an error of the database is raised instead."""
        self.known.validate(admission_version(tx), self.nodes)
        contexts: dict[str, AdmissionContext] = {}
        return [self._one(tx, each, contexts) for each in asked]

    def _one(self, tx: Tx, asked: Asked, contexts: dict[str, AdmissionContext]) -> NewJob | Exception:
        run, user = asked[0], asked[0].user
        kind = kind_of(*asked)
        known = None if kind is None else self.known.get(kind)
        if known is not None:
            return like(known, *asked)
        try:
            document = document_of(*asked)
        except Exception as error:  # of what a person wrote, or a fault of ours: nothing here asks the database
            return error
        if user not in contexts:
            who = Submitter(user, is_root(user), self.nodes, self.skip_queue_maximum, self.queues)
            contexts[user] = admission_context(tx, who)
        try:
            job = admit(document, contexts[run.user])
        except REFUSALS as error:
            return error
        if kind is not None:
            self.known.put(kind, job)
        return job


def kind_of(run: RunState, item: Instance, rendered: Rendered) -> Hashable | None:
    """Equal for steps whose jobs differ in id, name, command and values of variables only; None: it is like no other."""
    env, step = rendered.env, item.step
    if rendered.job is not None or not rendered.command.strip() or "\0" in rendered.command:
        return None
    if names.JOB_ID.fault(identity_of(run, item)[0]) or any("\0" in value for value in env.values()):
        return None
    controls = tuple(env.get(name) for name in _CONTROLS)
    extras = json.dumps([step.code, step.requirements, step.secrets]) if _has_extras(step) else ""
    return run.user, run.pipeline.main_fs, tuple(step.extra_fs), step.docker_env, controls, tuple(env), extras


def _has_extras(step: Step) -> bool:
    return bool(step.code or step.requirements or step.secrets)


def like(known: NewJob, run: RunState, item: Instance, rendered: Rendered) -> NewJob:
    """The job of a step of the same kind."""
    command = command_of(run, item, rendered)
    member = known.members[0]
    document = {**member.document, "command": command}
    member = replace(member, argv=command_line(command, ()), env=rendered.env, document=document)
    id, name = identity_of(run, item)
    return replace(known, id=id, name=name, members=(member,))
