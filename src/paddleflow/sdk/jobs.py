"""Jobs: submit, look, follow, stop.

A submitted job carries an id made here, so that a submit whose answer was lost can be sent again without running twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paddleflow.base.ids import new_job_id
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.sdk import follow as following
from paddleflow.sdk.area import PAGE, Area, given
from paddleflow.sdk.handles import Handle
from paddleflow.sdk.records import Page, Record, items, many, number, record, table, wire

if TYPE_CHECKING:
    from paddleflow.sdk.job_exec import JobExec

FINAL = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped", "preempted"})
KINDS = ("single", "distributed", "workflow")

Document = Mapping[str, object]
Words = str | Sequence[str]  #: read by the shell, or run as it is


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _words(value: object) -> Words:
    return value if isinstance(value, str) else tuple(str(item) for item in items(value))


@record
class Task(Record):
    """One process group of a job: a role and its number."""

    id: str = wire()
    name: str = wire()
    namespace: str = wire()
    status: str = wire()
    node: str = wire(key="nodeName")
    role: str = wire()
    index: int = wire(0)
    devices: str = wire(key="acceleratorCards")
    exit_code: int | None = wire(None, read=number)

    @property
    def label(self) -> str:
        """What `Job.logs` takes as its `task`: ``worker-0``."""
        return f"{self.role}-{self.index}"


@record
class Member(Record):
    """One role of a job, as it was asked for."""

    role: str = wire()
    replicas: int = wire(1)
    flavour: Mapping[str, Any] = wire({})
    image: str = wire()
    env: Mapping[str, str] = wire({})
    command: str | Sequence[str] = wire("", read=_words)
    args: str | Sequence[str] = wire((), read=_words)


@record
class JobRecord(Record):
    """A job as it was when it was asked for. Times are the server's local time as text, empty for "not yet"."""

    id: str = wire()
    name: str = wire()
    user: str = wire(key="UserName")
    queue: str = ""
    priority: str = ""
    labels: Mapping[str, str] = wire({})
    annotations: Mapping[str, str] = wire({})
    framework: str = wire()
    flavour: Mapping[str, Any] = wire({})
    image: str = wire()
    env: Mapping[str, str] = wire({})
    command: str | Sequence[str] = wire("", read=_words)
    args: str | Sequence[str] = wire((), read=_words)
    port: int = wire(0)
    fs: Mapping[str, Any] = wire({})
    extra_fs: Sequence[Mapping[str, Any]] = wire((), key="extraFS", read=lambda value: tuple(items(value)))
    members: Sequence[Member] = wire((), read=many(Member))
    status: str = wire()
    message: str = wire()
    after: Sequence[str] = wire((), read=lambda value: tuple(str(item) for item in items(value)))
    array: str = wire()
    run_id: str = wire(key="runID")
    group: Mapping[str, Any] = wire({})  #: with `fold`, of a run or array: id, and how many jobs are in each status
    accept_time: str = wire()
    start_time: str = wire()
    finish_time: str = wire()
    tasks: Sequence[Task] = ()

    @classmethod
    def of(cls, answer: object) -> Self:
        data = table(answer)
        policy = table(data.get("schedulingPolicy"))
        several = items(table(data.get("distributedRuntime")).get("runtimes"))
        return replace(
            super().of(data),
            queue=str(policy.get("queue") or ""),
            priority=str(policy.get("priority") or ""),
            tasks=many(Task)([data["runtime"]] if data.get("runtime") else several),
        )


@record
class Cause(Record):
    """One thing that is in a job's way."""

    code: str = wire()
    text: str = wire()


@record
class Suggestion(Record):
    """A change with which the job would start now: fewer members, another queue, a smaller size, or jobs that end."""

    code: str = wire()
    text: str = wire()
    queue: str = wire()
    members: Sequence[Mapping[str, Any]] = wire((), read=lambda value: tuple(items(value)))
    victims: Sequence[str] = wire(())


@record
class Why(Record):
    """Why a job is where it is: a word, a sentence, and for one that waits all causes and what would start it."""

    id: str = wire()
    status: str = wire()
    queue: str = wire()
    code: str = wire()
    text: str = wire()
    causes: Sequence[Cause] = wire((), read=many(Cause))
    suggestions: Sequence[Suggestion] = wire((), read=many(Suggestion))


@record
class ElsewhereEta(Record):
    """When a waiting job would start on another cluster of its queue."""

    cluster: str = wire()
    text: str = wire()


@record
class Eta(Record):
    """When a waiting job will probably start: seconds from now, and the bounds of four starts out of five."""

    id: str = wire()
    status: str = wire()
    queue: str = wire()
    text: str = wire()
    seconds: float | None = wire(None, read=_seconds)
    early: float | None = wire(None, read=_seconds)
    late: float | None = wire(None, read=_seconds)
    expected_start: str = wire()
    learnt_from: int = wire(0)
    other_clusters: Sequence[ElsewhereEta] = wire((), read=many(ElsewhereEta))


class Job(Handle[JobRecord]):
    """A job at hand. What it says is as of the last `refresh`; the first question asks the server."""

    kind = "job"
    final = FINAL
    _read = JobRecord.of

    def logs(
        self,
        follow: bool = False,
        *,
        task: str | None = None,
        offset: int = 0,
        attempt: int = 0,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[str]:
        """The log's lines with their line ends. `task` is role-index, such as ``worker-0``, and `offset` bytes of it.

        Without `task`, the lines of a job with several tasks each begin with theirs: ``[worker-0] ``. `attempt` is the
        number of one try, `tail` a number of lines, `since` seconds before now.
        """
        part = following.LogPart(attempt, tail, since)
        return following.log_lines(
            self._transport, self.id, task=task, offset=offset, follow=follow, part=part,
            ended=lambda: self._ended(task) or 0 < attempt < int(self.record.raw.get("attempt") or 0),
        )  # fmt: skip

    def read_file(self, path: str) -> Iterator[bytes]:
        """The pieces of a file that it wrote, relative to the folder that it started in."""
        with self._transport.stream(f"{self._path}/file", query={"path": path}) as stream:
            yield from stream.chunks(lambda: self._transport.timeout)

    def execute(
        self, command: Sequence[str], *, member: str | None = None, tty: bool = False, size: tuple[int, int] = (24, 80)
    ) -> JobExec:
        """Starts a further command inside a running member; `size` is rows and columns of its terminal."""
        found: JobExec = import_module("paddleflow.sdk.job_exec").JobExec(
            self._transport.upgrade(f"{self._path}/exec"), command, member, tty, size
        )
        return found

    def why(self) -> Why:
        """Why it is where it is, as of now; while it waits, what would start it."""
        return Why.of(self._transport.call("GET", f"{self._path}/why"))

    def eta(self) -> Eta:
        """When it will probably start; `seconds` is None for a job that does not wait, or never starts as things are."""
        return Eta.of(self._transport.call("GET", f"{self._path}/eta"))

    def stop(self) -> None:
        self._transport.call("PUT", self._path, query={"action": "stop"}, settled=Conflict)

    def update(
        self,
        *,
        priority: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Priority while it waits; labels and annotations at any time."""
        body = {"priority": priority, "labels": labels, "annotations": annotations}
        self._transport.call("PUT", self._path, query={"action": "modify"}, body=given(body))

    def delete(self) -> None:
        """Only a job that is over."""
        self._transport.call("DELETE", self._path, settled=NotFound)

    def _ended(self, task: str | None) -> bool:
        """Whether nothing more can come of the job, or of one task of it."""
        over = {one.label for one in self.refresh().record.tasks if one.status in FINAL or one.status == "stopped"}
        return self.finished or task in over


class Jobs(Area):
    """Jobs of this user; of everybody for root."""

    def submit(
        self,
        document: Document | None = None,
        *,
        kind: str | None = None,
        id: str | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: str | None = None,
        command: Words | None = None,
        args: Words | None = None,
        env: Mapping[str, str] | None = None,
        flavour: str | Mapping[str, object] | None = None,
        image: str | None = None,
        port: int | None = None,
        fs: str | Mapping[str, object] | None = None,
        extra_fs: Sequence[Mapping[str, object]] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        framework: str | None = None,
        members: Sequence[Document] | None = None,
        extension_template: Mapping[str, object] | None = None,
        code: str | Path | Mapping[str, object] | None = None,
        secrets: Sequence[str | Mapping[str, str]] | None = None,
        requirements: str | Sequence[str] | None = None,
        after: str | Job | Sequence[str | Job] | None = None,
        array: str | None = None,
    ) -> Job:
        """Submits a job: a whole document as the REST API has it, keywords that go over it, or keywords alone.

        With `members` or `framework` it is a distributed job. A command as a string is read by the shell. `code` is a
        folder that the job runs in: itself, where the server shares it, else a snapshot of it. `secrets` are names of secrets:
        ``NAME``, ``NAME=VARIABLE``, or ``{"name": …, "file": …}``; `requirements` lines of a requirements file.
        `after` are jobs that must succeed first: until then it waits in the server, and it is cancelled if one of them does not.
        Jobs with the same `array`, an id that you choose, are listed together.
        """
        fields = {
            "id": id, "name": name, "command": command, "args": args, "env": env, "image": image, "port": port,
            "flavour": {"name": flavour} if isinstance(flavour, str) else flavour,
            "fs": {"name": fs} if isinstance(fs, str) else fs,
            "extraFS": extra_fs, "labels": labels, "annotations": annotations, "framework": framework, "members": members,
            "extensionTemplate": extension_template, "code": code, "secrets": secrets, "requirements": requirements, "array": array,
            "after": None if after is None else [_id(job) for job in ([after] if isinstance(after, str | Job) else after)],
        }  # fmt: skip
        body = {**(document or {}), **given(fields)}
        if queue or priority:
            policy = {"queue": queue, "priority": priority}
            body["schedulingPolicy"] = table(body.get("schedulingPolicy")) | {k: v for k, v in policy.items() if v}
        return self._sent(kind or guess_kind(body), body)

    def _sent(self, kind: str, body: dict[str, object]) -> Job:
        if isinstance(body.get("code"), str | Path):
            delivery = import_module("paddleflow.sdk.code").Code(self._transport)  # few jobs need it
            body["code"] = delivery.reference(Path(str(body["code"])))
        if kind not in KINDS:
            raise Invalid(f"job type[{kind}] is not one of {', '.join(KINDS)}", code="JobInvalidField")
        body.setdefault("id", new_job_id(time.time()))
        self._transport.call("POST", f"/job/{kind}", body=body, settled=Conflict)
        return Job(self._transport, str(body["id"]))

    def submit_many(self, documents: Iterable[Document]) -> Sequence[Job]:
        """Submits single jobs in one request: all are accepted, or none."""
        bodies = [{"id": new_job_id(time.time()), **document} for document in documents]
        if bodies:
            self._transport.call("POST", "/job/batch", body={"jobs": bodies}, settled=Conflict)
        return [Job(self._transport, str(body["id"])) for body in bodies]

    def get(self, id: str) -> Job:
        """The job as it is now; NotFound if there is none."""
        return Job(self._transport, id).refresh()

    def handle(self, id: str) -> Job:
        """The job at hand without asking the server."""
        return Job(self._transport, id)

    def page(
        self,
        *,
        max_keys: int = PAGE,
        marker: str | None = None,
        status: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        timestamp: int | None = None,
        start_time: str | None = None,
        user: str | None = None,
        array: str | None = None,
        run: str | None = None,
        fold: bool = False,
    ) -> Page[Job]:
        """`status` may be a list with commas; `timestamp`: changed since that second of the epoch; `user`: for root; `fold`:
        of the jobs of a run or of an array only the newest, with how many there are."""
        query = {
            "userFilter": user,
            "array": array,
            "runID": run,
            "fold": fold or None,
            "status": status,
            "timestamp": timestamp,
            "startTime": start_time,
            "queue": queue,
            "labels": json.dumps(labels) if labels else None,
            "marker": marker,
            "maxKeys": max_keys,
        }
        return self._page("/job", "jobList", partial(Job.of, self._transport), query)

    def list(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        timestamp: int | None = None,
        start_time: str | None = None,
        user: str | None = None,
        array: str | None = None,
        run: str | None = None,
    ) -> Iterator[Job]:
        return self._pages(
            lambda marker: self.page(
                user=user,
                array=array,
                run=run,
                marker=marker,
                status=status,
                queue=queue,
                labels=labels,
                timestamp=timestamp,
                start_time=start_time,
            )
        )


def _id(job: str | Job) -> str:
    return job if isinstance(job, str) else job.id


def guess_kind(document: Document) -> str:
    """Whether a document is of a single job or of a distributed one."""
    return "distributed" if document.get("members") or document.get("framework") else "single"
