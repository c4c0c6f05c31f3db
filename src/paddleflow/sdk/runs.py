"""Runs of pipelines: start, look, follow, stop, try again, compare."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack

from paddleflow.errors import Conflict, NotFound
from paddleflow.sdk.area import PAGE, Area, known, narrowed_by
from paddleflow.sdk.artifacts import Artifact, Artifacts
from paddleflow.sdk.handles import Handle
from paddleflow.sdk.records import Page, Record, table, wire
from paddleflow.sdk.run_logs import run_lines
from paddleflow.sdk.run_views import StepView, View, steps, view, views

FINAL = frozenset({"succeeded", "failed", "terminated", "skipped"})


def _list_of_names(value: object) -> tuple[str, ...]:
    """Names in a list, or joined by commas."""
    found = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(name).strip() for name in found if str(name).strip())


@dataclass(frozen=True)
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
    cached_ids: Sequence[str] = wire((), key="runCachedIDs", read=_list_of_names)
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

    def another(self) -> Run:
        """A handle of its own, for another thread."""
        return Run(self._transport, self.id)

    def logs(self, step: str | None = None, follow: bool = False) -> Iterator[str]:
        """The lines that its steps wrote, with their line ends; those of one step, or of a DAG's, by dotted name.

        Where there are several, each line begins with its step: ``[train] ``. With `follow` to the end of the run, or
        of the step.
        """
        return run_lines(self._transport, self, step, follow=follow)

    def stop(self, force: bool = False) -> None:
        """Ends it. The step that comes after all still runs, unless forced."""
        self._act("stop", {"stopForce": force}, settled=Conflict)

    def retry(self, from_step: str | None = None) -> Run:
        """A new run that takes over what succeeded; `from_step` and all that come after it run again."""
        answer = self._act("retry", {"fromStep": from_step} if from_step else None)
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
    ) -> Run:
        """Starts a run of a document, of a registered pipeline (the newest version unless named), or of a file on `fs`."""
        body = {
            "fsName": fs,
            "username": user,
            "name": name,
            "desc": desc,
            "parameters": parameters,
            "dockerEnv": docker_env,
            "disabled": disabled if isinstance(disabled, str) else ",".join(disabled),
            "failureOptions": {"strategy": strategy} if strategy else None,
            "runYamlRaw": encoded(yaml),
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


def encoded(yaml: bytes | str | None) -> str | None:
    """A document as the wire has it."""
    if yaml is None:
        return None
    return base64.b64encode(yaml.encode() if isinstance(yaml, str) else yaml).decode()
