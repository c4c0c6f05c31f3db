"""The parts of a run as the server shows them: steps and DAGs, each with a list of its repetitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from paddleflow.sdk.records import Record, items, table, wire


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
