"""The job documents: single, distributed, workflow, and the changes to a job that exists.

Field names and defaults are those of existing clients, who send ``schedulingPolicy: {queue: null}`` in members that name
no queue, flavours as ``{name, cpu: "", mem: ""}``, and empty objects and lists; all mean "not given". A command or its arguments may be a string
(read by the shell) or a list (run as it is).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from paddleflow.base import names
from paddleflow.spec.document import Document, LooseText
from paddleflow.spec.fields import Scalars

PRIORITIES = {"VERY_LOW": 10, "LOW": 20, "NORMAL": 30, "HIGH": 40, "VERY_HIGH": 50}
MOST_REPLICAS = 10_000
MOST_JOBS = 100_000  #: in one batch
MOST_REQUIREMENTS = 64 * 2**10  #: bytes of the lines of a requirements file
MOST_SECRETS = 50  #: that one member is given
MOST_NAME = 512  #: characters of a name
MOST_AFTER = 1000  #: jobs that one job waits for
SUCCEEDED, ANY, FAILED = "succeeded", "any", "failed"  #: how a job must have ended for the one after it to start
ENDINGS = (SUCCEEDED, ANY, FAILED)
RESTART, IN_PLACE = "restart", "inPlace"  #: how a job is given more or fewer members
MOST_DEPTH = 100  #: of the objects and lists in a template; answers cannot be nested much deeper


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _template(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what could be kept but never be shown again."""
    level: list[Any] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(f"is nested more than {MOST_DEPTH} deep")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"holds the number {item}, which JSON does not know")
        level = below
    return value


def _not_given(value: object) -> object:
    """Clients send empty objects and lists for what they leave out, an empty list for an object too."""
    return None if value == {} or value == [] else value


def _table(value: object) -> object:
    return {} if value == [] else value


Priority = Annotated[str, BeforeValidator(_upper)]
Words = str | list[LooseText]
Template = Annotated[Annotated[dict[str, Any], AfterValidator(_template)] | None, BeforeValidator(_not_given)]
Texts = Annotated[dict[str, LooseText], BeforeValidator(_table)]


def _checked_map(values: dict[str, str], rule: names.NameRule, value_rule: names.NameRule | None) -> dict[str, str]:
    faults = [fault for key in values if (fault := rule.fault(key))]
    if value_rule:
        faults += [fault for value in values.values() if (fault := value_rule.fault(value))]
    if faults:
        raise ValueError("; ".join(faults))
    return values


class SchedulingPolicy(Document):
    """Which queue, and how urgent."""

    queue: str = Field(default="", description="name of the queue; default-queue if it is left out")
    priority: Priority = Field(default="", description="VERY_LOW, LOW, NORMAL (the default), HIGH or VERY_HIGH")

    @field_validator("priority")
    @classmethod
    def _known(cls, value: str) -> str:
        if value and value not in PRIORITIES:
            raise ValueError(f"priority[{value[:40]}] is not one of {', '.join(PRIORITIES)}")
        return value


class FlavourChoice(Document):
    """A flavour by name, or resources written out."""

    name: str = Field(default="", description="a flavour; the other fields are then left out")
    cpu: LooseText = Field(default="", description="cores, such as 4 or 500m")
    mem: LooseText = Field(default="", description="memory, such as 20Gi")
    memory: LooseText = Field(default="", description="the same as mem")
    scalar_resources: Scalars = Field(default={}, description="further resources, such as nvidia.com/gpu: 1")


class StorageMount(Document):
    """A storage (fs) that the job sees at a path."""

    id: str = Field(default="", description="left out: the storage is looked up by its name")
    name: str = Field(min_length=1, description="name of the storage")
    mount_path: str = Field(
        default="", description="where the job sees it; /home/paddleflow/storage/mnt/ID if left out"
    )
    sub_path: str = Field(default="", description="only this folder of it")
    read_only: bool = Field(default=False, description="the job may not write to it")

    @field_validator("mount_path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and (not value.startswith("/") or "\0" in value or ".." in value.split("/") or value.strip("/") == ""):
            raise ValueError(f"mountPath[{value[:80]}] must be an absolute path below /, without ..")
        return value

    @field_validator("sub_path")
    @classmethod
    def _below(cls, value: str) -> str:
        if value.startswith("/") or "\0" in value or ".." in value.split("/"):
            raise ValueError(f"subPath[{value[:80]}] must stay below the storage: no leading / and no ..")
        return value


class GitState(Document):
    """What git said of the folder when its code was taken."""

    commit: str = Field(default="", max_length=64, pattern=r"^[0-9a-f]*$", description="hash of the commit")
    branch: str = Field(default="", max_length=250, description="name of the branch")
    dirty: bool = Field(default=False, description="whether files differed from the commit")


class CodeReference(Document):
    """The code that a job runs with, as its working directory: a snapshot, or a folder of the server's own machine."""

    snapshot: str = Field(default="", max_length=64, pattern=r"^([0-9a-f]{64})?$", description="id of a snapshot")
    path: str = Field(default="", description="absolute path of a folder, where client and server share their files")
    workdir: str = Field(default="", description="working directory below the code")
    files: int = Field(default=0, description="number of files, for people")
    size: int = Field(default=0, description="number of bytes, for people")
    git: GitState | None = Field(default=None, description="the commit that the code is of")

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and (not value.startswith("/") or "\0" in value or len(value) > 4096):
            raise ValueError(f"path[{value[:80]}] must be absolute; the client sends a folder of its own as a snapshot")
        return value

    @field_validator("workdir")
    @classmethod
    def _below(cls, value: str) -> str:
        if value.startswith("/") or "\0" in value or ".." in value.split("/") or len(value) > 1000:
            raise ValueError(f"workdir[{value[:80]}] must stay below the code: no leading / and no ..")
        return value

    @model_validator(mode="after")
    def _one(self) -> CodeReference:
        if bool(self.snapshot) == bool(self.path):
            raise ValueError("code has either a snapshot or a path")
        return self


class SecretUse(Document):
    """A secret of the user that the job is given: as a variable, or as a file. ``NAME`` and ``NAME=VARIABLE`` are short forms."""

    name: str = Field(description="name of the secret")
    env: str = Field(default="", description="variable that holds the value; the secret's name if file is left out too")
    file: str = Field(default="", description="file that holds the value, in the folder $PF_SECRETS_DIR")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        name, _, variable = data.partition("=")
        return {"name": name, "env": variable}

    @field_validator("name")
    @classmethod
    def _named(cls, value: str) -> str:
        if fault := names.SECRET.fault(value):
            raise ValueError(fault)
        return value

    @field_validator("file")
    @classmethod
    def _plain(cls, value: str) -> str:
        if value and (fault := names.SECRET_FILE.fault(value)):
            raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _placed(self) -> SecretUse:
        if self.env and (fault := names.ENV_NAME.fault(self.env)):
            raise ValueError(fault)
        if not self.env and not self.file:
            if not (self.name.isidentifier() and self.name.isascii()):
                raise ValueError(f"secret[{self.name}] cannot be the name of a variable: write {self.name}=VARIABLE")
            object.__setattr__(self, "env", self.name)
        return self


def _each_once(uses: list[SecretUse]) -> list[SecretUse]:
    for what, taken in (("variable", [use.env for use in uses]), ("file", [use.file for use in uses])):
        twice = sorted({name for name in taken if name and taken.count(name) > 1})
        if twice:
            raise ValueError(f"{what}[{twice[0]}] is given twice")
    return uses


def _joined(value: object) -> object:
    """The lines of a requirements file may be a list."""
    return "\n".join(map(str, value)) if isinstance(value, list) else value


def _installable(value: str) -> str:
    if len(value.encode()) > MOST_REQUIREMENTS:
        raise ValueError(f"has {len(value.encode())} bytes, at most {MOST_REQUIREMENTS} are allowed")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    for line in value.splitlines():
        word = line.split("#")[0].split("=")[0].split()[:1]
        if word and word[0] in _OF_FILES:
            raise ValueError(f"{line.strip()[:80]!r} names a file of your machine: write out the packages instead")
    return value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) and value else value


def after_of(text: str) -> tuple[str, str]:
    """An entry of `after` as how the earlier job must have ended, and its id."""
    ending, colon, id = text.rpartition(":")
    return (ending, id) if colon else (SUCCEEDED, text)


def _dependencies(entries: list[str]) -> list[str]:
    seen: dict[str, str] = {}
    for entry in entries:
        ending, id = after_of(entry)
        if ending not in ENDINGS:
            raise ValueError(f"{entry[:80]} is not of the form JOBID, {ANY}:JOBID or {FAILED}:JOBID")
        if names.JOB_ID.fault(id):
            raise ValueError(f"job[{id[:80]}] is not the id of a job")
        if seen.setdefault(id, ending) != ending:
            raise ValueError(f"job[{id}] is named twice, with {seen[id]} and with {ending}")
    return [id if ending == SUCCEEDED else f"{ending}:{id}" for id, ending in seen.items()]


_OF_FILES = ("-r", "--requirement", "-e", "--editable", "-c", "--constraint")
Requirements = Annotated[str, BeforeValidator(_joined), AfterValidator(_installable)]
_AFTER = (
    "jobs that must end first: JOBID must succeed, any:JOBID must end in whatever way, failed:JOBID must end without success;"
    " if one of them ends otherwise, this job is cancelled"
)
After = Annotated[list[str], BeforeValidator(_one_or_more), Field(max_length=MOST_AFTER), AfterValidator(_dependencies)]
Secrets = Annotated[list[SecretUse], Field(max_length=MOST_SECRETS), AfterValidator(_each_once)]


# Shared by all who name none: documents are frozen, and a default that pydantic has to copy costs every submission. Not made before the
# first one is asked for: pydantic builds a document's validator with its first object.


@cache
def _no_policy() -> SchedulingPolicy:
    return SchedulingPolicy()


@cache
def _no_flavour() -> FlavourChoice:
    return FlavourChoice()


class Named(Document):
    """What jobs and members share."""

    code: ClassVar[str] = "JobInvalidField"

    id: str = Field(default="", description="left out: the server makes one; one that is taken is refused")
    name: str = Field(default="", description=f"at most {MOST_NAME} characters; need not be unique")
    labels: Texts = Field(default_factory=dict, description="to list jobs by, as in Kubernetes")
    annotations: Texts = Field(
        default_factory=dict, description="for people and tools; paddleflow/job-ttl-seconds deletes the job"
    )
    scheduling_policy: SchedulingPolicy = Field(
        default_factory=_no_policy, description="queue and priority; of a member: those of the job"
    )

    @field_validator("name")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > MOST_NAME:
            raise ValueError(
                f"length of jobName[{value[:40]}…] must be no more than {MOST_NAME} characters, it has {len(value)}"
            )
        return value

    @field_validator("id")
    @classmethod
    def _label(cls, value: str) -> str:
        if value and names.JOB_ID.fault(value):
            raise ValueError(
                f"ID[{value[:80]}] of Job is invalid, err: a lowercase RFC 1123 label must have 1 to 63 characters of"
                " a-z, 0-9 and '-', and begin and end with a letter or digit"
            )
        return value

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        return _checked_map(value, names.LABEL_KEY, names.LABEL_VALUE)

    @field_validator("annotations")
    @classmethod
    def _annotations(cls, value: dict[str, str]) -> dict[str, str]:
        if sum(len(key) + len(text) for key, text in value.items()) > 2**18:
            raise ValueError("annotations are larger than 256 KiB in all")
        return _checked_map(value, names.LABEL_KEY, None)


class JobSpec(Named):
    """What to run."""

    flavour: FlavourChoice = Field(
        default_factory=_no_flavour, description="what each member asks for; 1 core and 1Gi if left out"
    )
    limit_flavour: FlavourChoice = Field(
        default_factory=_no_flavour, description="what each member may use at most, if that is more"
    )
    fs: Annotated[StorageMount | None, BeforeValidator(_not_given)] = Field(
        default=None, description="a storage to mount"
    )
    extra_fs: list[StorageMount] = Field(default_factory=list, alias="extraFS", description="further storages to mount")
    image: str = Field(default="", description="container image, on clusters that run containers")
    env: Texts = Field(default_factory=dict, description="environment variables")
    command: Words = Field(default="", description="text is read by the shell, a list of words is executed as it is")
    args: Words = Field(default_factory=list, description="further words of the command")
    port: int = Field(default=0, description="a port that the job listens on")
    #: `code` is the code of a refusal here
    source: CodeReference | None = Field(
        default=None,
        alias="code",
        description="the code that the job runs with; clients take a folder too, such as `.`",
    )
    secrets: Secrets = Field(default_factory=list, description="secrets that the job is given")
    requirements: Requirements = Field(default="", description="Python packages, as the lines of a requirements file")
    extension_template: Template = Field(
        default=None, description="a Kubernetes object to start from, as in PaddleFlow 1.4"
    )

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str]) -> dict[str, str]:
        for text in value.values():
            if "\0" in text:
                raise ValueError("an environment value holds a NUL character")
        return _checked_map(value, names.ENV_NAME, None)

    @field_validator("command", "args")
    @classmethod
    def _no_nul(cls, value: Words) -> Words:
        if "\0" in (value if isinstance(value, str) else "".join(value)):
            raise ValueError("a NUL character cannot be part of a command")
        return value

    @field_validator("port")
    @classmethod
    def _port(cls, value: int) -> int:
        if not 0 <= value <= 65534:
            raise ValueError(f"port must be in range [0, 65534], found {value}")
        return value


class SingleJob(JobSpec):
    """POST /job/single"""

    after: After = Field(default_factory=list, description=_AFTER)
    array: str = Field(default="", description="id of an array: jobs with the same one are listed together")

    @field_validator("array")
    @classmethod
    def _array_id(cls, value: str) -> str:
        if value and names.JOB_ID.fault(value):
            raise ValueError(f"array[{value[:80]}] must have 1 to 63 characters of a-z, 0-9 and '-'")
        return value


class MemberDocument(JobSpec):
    """One role of a distributed job."""

    role: str = Field(description="what the member does in its framework, such as worker, master or pserver")
    replicas: int = Field(default=1, description=f"how many of them, at most {MOST_REPLICAS:,}")
    min_replicas: int | None = Field(default=None, description="the job starts with so many")
    max_replicas: int | None = Field(
        default=None, description="and gets up to so many while nobody else needs the room"
    )
    resize: str = Field(default="", description="how members come and go: restart (all start again) or inPlace")

    @field_validator("resize")
    @classmethod
    def _way(cls, value: str) -> str:
        if value not in ("", RESTART, IN_PLACE):
            raise ValueError(f"resize[{value[:40]}] is not {RESTART} or {IN_PLACE}")
        return value

    @field_validator("replicas", "min_replicas", "max_replicas")
    @classmethod
    def _some(cls, value: int | None) -> int | None:
        if value is None:
            return None
        if value < 1:
            raise ValueError(f"the repilcas of member is less than 1: {value}")
        if value > MOST_REPLICAS:
            raise ValueError(f"{value} replicas are more than the {MOST_REPLICAS} a member may have")
        return value


class DistributedJob(Named):
    """POST /job/distributed"""

    framework: str = Field(min_length=1, description="paddle, pytorch, tensorflow, mpi, mxnet, ray or spark")
    members: list[MemberDocument] = Field(default_factory=list, description="one entry per role")
    after: After = Field(default_factory=list, description=_AFTER)
    source: CodeReference | None = Field(default=None, alias="code", description="of members that name none")
    secrets: Secrets = Field(default_factory=list, description="of members that name none")
    requirements: Requirements = Field(default="", description="of members that name none")
    extension_template: Template = Field(
        default=None, description="the framework's Kubernetes object, as in PaddleFlow 1.4"
    )


class WorkflowJob(Named):
    """POST /job/workflow"""

    after: After = Field(default_factory=list, description=_AFTER)
    extension_template: Template = Field(default=None, description="an Argo Workflow")

    @model_validator(mode="before")
    @classmethod
    def _looked_at(cls, data: object) -> object:
        """A template that was left out is looked at like an empty one, and named as it is on the wire."""
        return {"extensionTemplate": None, **data} if isinstance(data, dict) else data

    @field_validator("extension_template")
    @classmethod
    def _needed(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            raise ValueError("ExtensionTemplate for workflow job is needed, and now is empty")
        return value


class JobBatch(Document):
    """POST /job/batch: many single jobs, all accepted or none."""

    code: ClassVar[str] = "JobInvalidField"

    jobs: list[SingleJob] = Field(min_length=1, max_length=MOST_JOBS)


class JobChange(Document):
    """PUT /job/{id}?action=modify"""

    code: ClassVar[str] = "JobInvalidField"

    priority: Priority = ""
    labels: Texts = Field(default_factory=dict)
    annotations: Texts = Field(default_factory=dict)

    @field_validator("priority")
    @classmethod
    def _known(cls, value: str) -> str:
        return SchedulingPolicy._known(value)

    @field_validator("labels")
    @classmethod
    def _labels(cls, value: dict[str, str]) -> dict[str, str]:
        return Named._labels(value)

    @field_validator("annotations")
    @classmethod
    def _annotations(cls, value: dict[str, str]) -> dict[str, str]:
        return Named._annotations(value)
