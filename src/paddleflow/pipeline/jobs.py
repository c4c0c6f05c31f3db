"""A step that is any job of the platform: a distributed training of any framework, or a single job with all its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddleflow.pipeline.components import Step
from paddleflow.pipeline.names import is_whole, refuse
from paddleflow.pipeline.options import CacheOptions, ExtraFS, Retry
from paddleflow.pipeline.values import Artifact, Loop

Flavour = str | Mapping[str, Any]


class Member:
    """One role of a distributed job. Texts may hold parameters and artifacts, as a command may."""

    def __init__(
        self,
        role: str,
        replicas: int = 1,
        command: str | Sequence[str] | None = None,
        *,
        flavour: Flavour | None = None,
        image: str | None = None,
        env: Mapping[str, Any] | None = None,
        args: Sequence[str] | None = None,
        port: int | None = None,
        fs: Mapping[str, Any] | None = None,
        extra_fs: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.role = role
        self.replicas = replicas
        self._fields = _fields(
            flavour=flavour, image=image, env=env, command=command, args=args, port=port, fs=fs, extraFS=extra_fs
        )

    def compile(self) -> dict[str, Any]:
        if not self.role or not is_whole(self.replicas) or self.replicas < 1:
            refuse(f"Member[{self.role}]: a role needs a name and 1 or more replicas, found {self.replicas!r}")
        return {"role": self.role, "replicas": self.replicas, **self._fields}


class JobStep(Step):
    """A step that is a job: `framework` and `members` for a distributed one, `command` and the rest for a single one.

    `job` is a document as the job API takes it; what is given by name goes over it.
    """

    needs_image = False

    def __init__(
        self,
        name: str,
        framework: str | None = None,
        members: Sequence[Member | Mapping[str, Any]] | None = None,
        *,
        command: str | None = None,
        queue: str | None = None,
        priority: str | None = None,
        flavour: Flavour | None = None,
        image: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        job: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Artifact] | None = None,
        outputs: Mapping[str, Artifact] | None = None,
        parameters: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        cache_options: CacheOptions | None = None,
        condition: str | None = None,
        loop_argument: Loop | None = None,
        extra_fs: ExtraFS | Sequence[ExtraFS] | None = None,
        retry: Retry | int | None = None,
        timeout: float | None = None,
        code: str | Path | None = None,
        requirements: str | Path | Sequence[str] | None = None,
        secrets: Sequence[str | Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(
            name,
            inputs=inputs,
            outputs=outputs,
            parameters=parameters,
            env=env,
            cache_options=cache_options,
            condition=condition,
            loop_argument=loop_argument,
            extra_fs=extra_fs,
            retry=retry,
            timeout=timeout,
            code=code,
            requirements=requirements,
            secrets=secrets,
        )
        self._members = [_member(member, self.label) for member in members or ()]
        policy = _fields(queue=queue, priority=priority)
        self._job = {
            **(job or {}),
            **_fields(
                framework=framework,
                command=command,
                flavour=flavour,
                image=image,
                labels=labels,
                annotations=annotations,
                schedulingPolicy={**((job or {}).get("schedulingPolicy") or {}), **policy} if policy else None,
            ),
        }
        if (framework or self._members) and command is not None:
            refuse(f"{self.label}: a distributed job has the commands of its members, it cannot have one of its own")

    def job_document(self) -> dict[str, Any]:
        members = [member.compile() if isinstance(member, Member) else dict(member) for member in self._members]
        return {**self._job, **({"members": members} if members else {})}


def _member(given: Member | Mapping[str, Any], where: str) -> Member | Mapping[str, Any]:
    if not isinstance(given, Member | Mapping):
        refuse(f"{where}: a member is {given!r}, it must be Member(…) or a dict")
    return given


def _fields(**given: Any) -> dict[str, Any]:
    """Those that were given, in plain values; a flavour by its name is written as the job API has it."""
    found = {key: _plain(value) for key, value in given.items() if value is not None}
    if isinstance(found.get("flavour"), str):
        found["flavour"] = {"name": found["flavour"]}
    return found


def _plain(value: Any) -> Any:
    """Parameters and artifacts as texts, tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
