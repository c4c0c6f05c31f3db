"""Runs of pipelines: start, show, follow, stop, retry, compare; their steps as the server shows them, and their logs."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, TypedDict, Unpack

from paddleflow.errors import Conflict, NotFound, PaddleFlowError
from paddleflow.sdk.area import PAGE, Area, known, narrowed_by
from paddleflow.sdk.artifacts import Artifact, Artifacts
from paddleflow.sdk.follow import Event
from paddleflow.sdk.handles import Handle
from paddleflow.sdk.jobs import Job
from paddleflow.sdk.records import Page, Record, items, record, table, wire
from paddleflow.sdk.transport import Transport

FINAL = frozenset({"succeeded", "failed", "terminated", "skipped"})


def _list_of_names(value: object) -> tuple[str, ...]:
    """Names in a list, or joined by commas."""
    found = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(name).strip() for name in found if str(name).strip())


@record
class StepView(Record):
    """A step of a run, one time. `reused_from` names the run whose result was taken; `cache_miss` what had changed."""

    job_id: str = wire(key="jobID")
    name: str = wire()
    full_name: str = wire()
    step_name: str = wire()
    type: str = wire("step")
    parent_dag_id: str = wire(key="parentDagID")
    command: str = wire()
    parameters: Mapping[str, str] = wire({})
    env: Mapping[str, str] = wire({})
    extra_fs: Sequence[Mapping[str, Any]] = wire((), key="extraFS", read=lambda value: tuple(items(value)))
    start_time: str = wire()
    end_time: str = wire()
    status: str = wire()
    message: str = wire(key="jobMessage")
    deps: str = wire()
    docker_env: str = wire()
    inputs: Mapping[str, str] = wire({}, key="artifacts", read=lambda value: table(table(value).get("input")))
    outputs: Mapping[str, str] = wire({}, key="artifacts", read=lambda value: table(table(value).get("output")))
    cache: Mapping[str, Any] = wire({})
    cache_run_id: str = wire(key="cacheRunID")
    cache_job_id: str = wire(key="cacheJobID")
    reused_from: str = wire()
    cache_miss: Sequence[str] = wire(())
    tries: int = wire(0)
    seconds: float = wire(0.0)  #: that it ran, so far or in all


@record
class DagView(Record):
    """A DAG of a run, one time."""

    id: str = wire()
    name: str = wire()
    full_name: str = wire()
    dag_name: str = wire()
    type: str = wire("dag")
    parent_dag_id: str = wire(key="parentDagID")
    deps: str = wire()
    parameters: Mapping[str, str] = wire({})
    artifacts: Mapping[str, Any] = wire({})
    start_time: str = wire()
    end_time: str = wire()
    status: str = wire()
    message: str = wire()
    seconds: float = wire(0.0)
    entry_points: Mapping[str, Sequence[View]] = wire({}, read=lambda value: views(value))


View: TypeAlias = StepView | DagView
Views: TypeAlias = Mapping[str, Sequence[View]]


def view(answer: object) -> View:
    return DagView.of(answer) if "entryPoints" in table(answer) else StepView.of(answer)


def views(answer: object) -> dict[str, tuple[View, ...]]:
    """Components by name, each with its repetitions."""
    return {name: tuple(view(one) for one in items(several)) for name, several in table(answer).items()}


def steps(found: Views, prefix: str = "") -> Iterator[tuple[str, StepView]]:
    """All steps, the inner ones too: each with the dotted name that the document gives it, whatever its repetition."""
    for name, several in found.items():
        for one in several:
            if isinstance(one, DagView):
                yield from steps(one.entry_points, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", one if one.full_name else replace(one, full_name=f"{prefix}{name}")


def written_name(full_name: str, found: Views) -> str:
    """The name in the document of what is called `full_name` in a run: a repetition has a number behind its name."""
    parts: list[str] = []
    inside: Views = found
    for part in full_name.split("."):
        name = part if part in inside else part.rpartition("-")[0]
        parts.append(name)
        first = next(iter(inside.get(name, ())), None)
        inside = first.entry_points if isinstance(first, DagView) else {}
    return ".".join(parts) if all(parts) else full_name


@record
class RunRecord(Record):
    """A run as it was when it was asked for. A row of a list has neither steps nor document."""

    id: str = wire(key="runID")
    name: str = wire()
    source: str = wire()
    user: str = wire(key="username")
    fs: str = wire(key="fsName")
    fs_options: Mapping[str, Any] = wire({})
    description: str = wire()
    parameters: Mapping[str, Any] = wire({})
    yaml: str = wire(key="runYaml")
    runtime: Mapping[str, Sequence[View]] = wire({}, read=views)
    post_process: Mapping[str, StepView] = wire(
        {}, read=lambda value: {name: view(one) for name, one in table(value).items()}
    )
    failure_options: Mapping[str, Any] = wire({})
    docker_env: str = wire()
    disabled: Sequence[str] = wire((), read=_list_of_names)
    schedule_id: str = wire(key="scheduleID")
    message: str = wire(key="runMsg")
    status: str = wire()
    cached_ids: Sequence[str] = wire((), key="runCachedIDs", read=_list_of_names)  #: runs that its results served
    scheduled_time: str = wire()
    create_time: str = wire()
    activate_time: str = wire()
    update_time: str = wire()
    retry_of: str = wire()  #: the run whose successes it took over
    breakpoints: Sequence[str] = wire(())
    paused: Sequence[str] = wire(())


class Run(Handle[RunRecord]):
    """A run at hand. What it says is as of the last `refresh`; the first question asks the server."""

    kind = "run"
    final = FINAL
    _read = RunRecord.of

    @property
    def steps(self) -> Sequence[StepView]:
        """All steps, inner ones and repetitions too, and the one that comes after all."""
        return [step for _, step in self.named_steps()]

    def named_steps(self) -> Sequence[tuple[str, StepView]]:
        """The same, each with its dotted name in the document; repetitions of one step have the same."""
        return (*steps(self.record.runtime), *self.record.post_process.items())

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """What its steps have left behind so far."""
        return list(Artifacts(self._transport).list(run=self.id, type="output"))

    def logs(self, step: str | None = None, follow: bool = False) -> Iterator[str]:
        """The lines that its steps wrote, with their line ends; those of one step, or of a DAG's, by dotted name.

        Where there are several, each line begins with its step: ``[train] ``. With `follow` to the end of the run, or
        of the step.
        """
        return run_lines(self._transport, self, step, follow=follow)

    def stop(self, force: bool = False) -> None:
        """Ends it. The step that comes after all still runs, unless forced."""
        self._act("stop", {"stopForce": force}, settled=Conflict)

    def retry(
        self, from_step: str | None = None, *, yaml: str | bytes | None = None, folder: str | Path | None = None
    ) -> Run:
        """A new run that takes over what succeeded; `from_step` and all that come after it run again. With `yaml`, a changed
        document, so do the steps that it changes and all that come after them."""
        body = {"fromStep": from_step, "runYamlRaw": encoded(delivered(self._transport, yaml, folder))}
        answer = self._act("retry", {key: value for key, value in body.items() if value} or None)
        return Run(self._transport, str(table(answer).get("runID", "")))

    def pause_before(self, *names: str) -> None:
        """Breakpoints: it will stop before these steps until told to go on."""
        self._act("breakpoint", {"add": list(names), "remove": []})

    def clear_breakpoints(self, *names: str) -> None:
        """Breakpoints that no longer count; all of them unless some are named."""
        self._act("breakpoint", {"add": [], "remove": list(names or self.refresh().record.breakpoints)})

    def resume(self, step: str | None = None) -> None:
        """Goes on behind a breakpoint; behind all of them unless one is named."""
        self._act("resume", {"step": step} if step else None)

    def graph(self, format: str = "mermaid") -> str:
        """Its graph with states: ``mermaid`` or ``svg`` as text, ``json`` as JSON text."""
        with self._transport.stream(f"{self._path}/graph", query={"format": format}) as stream:
            return b"".join(stream.chunks(lambda: self._transport.timeout)).decode()

    def diff(self, other: Run | str) -> Mapping[str, Any]:
        """Parameters, document, fingerprints and durations in which the two differ."""
        with_run = other if isinstance(other, str) else other.id
        return table(self._transport.call("GET", f"{self._path}/diff", query={"with": with_run}))

    def delete(self, check_cache: bool = True) -> None:
        """Only a run that is over; refused if others were served from it, unless told not to look."""
        self._transport.call("DELETE", self._path, body={"checkCache": check_cache}, settled=NotFound)

    def _act(self, action: str, body: object, settled: type[Conflict] | None = None) -> object:
        return self._transport.call("PUT", self._path, query={"action": action}, body=body, settled=settled)


class RunFilters(TypedDict, total=False):
    """What a list of runs is narrowed by: each may be a list with commas."""

    user: str | None
    fs: str | None
    run: str | None
    name: str | None
    status: str | None


class Runs(Area):
    """Runs of this user; of everybody for root."""

    def create(
        self,
        *,
        yaml: bytes | str | None = None,
        path: str | None = None,
        pipeline: str | None = None,
        version: str | None = None,
        name: str | None = None,
        desc: str | None = None,
        fs: str | None = None,
        user: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        disabled: Sequence[str] | str = (),
        docker_env: str | None = None,
        strategy: str | None = None,
        breakpoints: Sequence[str] = (),
        folder: str | Path | None = None,
    ) -> Run:
        """Starts a run of a document, of a registered pipeline (the newest version unless named), or of a file on `fs`.

        Folders that steps name as their `code` are sent first; `folder`, by default the current one, is what they are
        relative to.
        """
        body = {
            "fsName": fs,
            "username": user,
            "name": name,
            "desc": desc,
            "parameters": parameters,
            "dockerEnv": docker_env,
            "disabled": disabled if isinstance(disabled, str) else ",".join(disabled),
            "failureOptions": {"strategy": strategy} if strategy else None,
            "runYamlRaw": encoded(delivered(self._transport, yaml, folder)),
            "pipelineID": pipeline,
            "pipelineVersionID": version,
            "runYamlPath": path,
            "breakpoints": list(breakpoints),
        }
        return self._made("/run", {key: value for key, value in body.items() if value})

    def create_json(self, document: Mapping[str, Any]) -> Run:
        """Starts a run of a whole pipeline as JSON, in camelCase."""
        return self._made("/runjson", document)

    def _made(self, path: str, body: object) -> Run:
        return Run(self._transport, str(table(self._transport.call("POST", path, body=body)).get("runID", "")))

    def get(self, id: str) -> Run:
        """The run as it is now; NotFound if there is none."""
        return Run(self._transport, id).refresh()

    def handle(self, id: str) -> Run:
        """The run at hand without asking the server."""
        return Run(self._transport, id)

    def page(self, *, max_keys: int = PAGE, marker: str | None = None, **filters: Unpack[RunFilters]) -> Page[Run]:
        query = narrowed_by(known(RunFilters, filters), marker, max_keys)
        return self._page("/run", "runList", partial(Run.of, self._transport), query)

    def list(self, **filters: Unpack[RunFilters]) -> Iterator[Run]:
        return self._pages(lambda marker: self.page(marker=marker, **filters))


def delivered(transport: Transport, yaml: bytes | str | None, folder: str | Path | None = None) -> bytes | str | None:
    """The document with a snapshot in the place of each folder that a step names as its code."""
    if yaml is None or b"code" not in (yaml if isinstance(yaml, bytes) else yaml.encode()):
        return yaml
    found: bytes | str = import_module("paddleflow.sdk.pipeline_code").delivered(
        transport, yaml, Path(folder) if folder is not None else Path.cwd()
    )
    return found


def encoded(yaml: bytes | str | None) -> str | None:
    """A document as the wire has it."""
    if yaml is None:
        return None
    return base64.b64encode(yaml.encode() if isinstance(yaml, str) else yaml).decode()


_REPETITION = re.compile(r"\[([0-9]{1,9})\]")
PENDING = frozenset({"init", "pending"})
FOLLOWED = 32  #: steps whose logs are read at a time; a run has at most 20 that run
ENDED = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped"})

_Message = str | PaddleFlowError | int  #: a line, what went wrong, or one more (1) or fewer (-1) who writes


def run_lines(transport: Transport, run: Run, step: str | None, *, follow: bool) -> Iterator[str]:
    """Lines of the step called `step`, of all that are in the DAG of that name, or of all where it is None."""
    if follow:
        return _Following(transport, run, step).lines()
    return _written(transport, _chosen(run.refresh(), step))


def _chosen(run: Run, step: str | None) -> list[StepView]:
    known = run.named_steps()
    found = [view for name, view in known if _meant(step, name, view.full_name)]
    if not found and step is not None:
        names = ", ".join(dict.fromkeys(name for name, _ in known)) or "none"
        raise NotFound(f"run[{run.id}] has no step {step!r}", hint=f"its steps: {names}")
    return sorted((view for view in found if view.job_id), key=lambda view: view.start_time)


def _meant(step: str | None, name: str, full_name: str) -> bool:
    """Whether `step` stands for a step by its name in the document, by its name in the run, or for a DAG around it.

    One repetition of a loop is `train-3`, or `train[3]` as `run show` has it; the first is `train[0]`.
    """
    if step is not None and "[" in step:
        exact = _REPETITION.sub(lambda found: "" if found[1] == "0" else f"-{found[1]}", step)
        return full_name == exact or full_name.startswith(f"{exact}.")
    return step is None or step in (name, full_name) or name.startswith(f"{step}.") or full_name.startswith(f"{step}.")


def _written(transport: Transport, steps: list[StepView]) -> Iterator[str]:
    several = len(steps) > 1
    for one in steps:
        for line in _job_lines(transport, one.job_id, follow=False):
            yield _prefixed(one.full_name or one.step_name, line) if several else line


def _job_lines(transport: Transport, job: str, *, follow: bool) -> Iterator[str]:
    """The log of a step's job. Deleted jobs, also those of other runs that a step was reused from, do not hide the others' logs."""
    try:
        yield from Job(transport, job).logs(follow=follow)
    except NotFound:
        yield f"paddleflow: {job} was deleted, and its log with it\n"


def _prefixed(name: str, line: str) -> str:
    return f"[{name}] {line}" if line.endswith("\n") else f"[{name}] {line}\n"


class _Following:
    """Threads that follow jobs, and one that follows the run to learn of new ones."""

    def __init__(self, transport: Transport, run: Run, step: str | None) -> None:
        self._transport = transport
        self._run = run.another()  # refreshed by another thread
        self._step = step
        self._queue: SimpleQueue[_Message] = SimpleQueue()
        self._known: set[str] = set()
        self._free = threading.Semaphore(FOLLOWED)
        self._left = threading.Event()  #: nobody reads any more

    def lines(self) -> Iterator[str]:
        self._spawn(self._watch)
        writers = 0
        try:
            while True:
                message = self._queue.get()
                if isinstance(message, str):
                    yield message
                elif isinstance(message, int):
                    writers += message
                    if not writers:
                        return
                else:
                    raise message
        finally:
            self._left.set()

    def _spawn(self, work: Callable[[], None]) -> None:
        self._queue.put(1)
        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PaddleFlowError as error:
            self._queue.put(error)
        finally:
            self._queue.put(-1)

    def _watch(self) -> None:
        """Begins to follow each job as it comes; ends with the run, or with all that was asked for."""
        if self._follow_started():
            return
        runtime = self._run.record.runtime
        for event in self._run.events():
            if self._left.is_set():
                return
            if event.type == "step" and _meant(self._step, written_name(event.step, runtime), event.step):
                if event.status not in PENDING:  # one that is pending has written nothing, and there may be thousands
                    self._begin(str(event.raw.get("jobID") or ""), event.step)
                if self._step is not None and self._ended(event):
                    return
        self._follow_started()

    def _ended(self, event: Event) -> bool:
        return event.status in ENDED and self._follow_started()

    def _follow_started(self) -> bool:
        """Begins to follow what is there; whether nothing more can come."""
        self._run.refresh()
        _chosen(self._run, self._step)
        meant = [view for name, view in self._run.named_steps() if _meant(self._step, name, view.full_name)]
        for view in meant:
            if view.status not in PENDING:
                self._begin(view.job_id, view.full_name or view.step_name)
        return self._step is not None and all(view.status in ENDED for view in meant)

    def _begin(self, job: str, name: str) -> None:
        if job and job not in self._known:
            self._known.add(job)
            self._free.acquire()
            self._spawn(partial(self._write, job, name))

    def _write(self, job: str, name: str) -> None:
        try:
            for line in _job_lines(self._transport, job, follow=True):
                self._queue.put(_prefixed(name, line) if self._step is None else line)
                if self._left.is_set():
                    return
        finally:
            self._free.release()
