"""The job documents: single, distributed, workflow, and the changes to a job that exists.

Field names and defaults are those of existing clients, who send ``schedulingPolicy: {queue: null}`` in members that name
no queue, flavours as ``{name, cpu: "", mem: ""}``, and empty objects and lists; all mean "not given". A command or its arguments may be a string
(read by the shell) or a list (run as it is).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from paddleflow.base import names
from paddleflow.spec.document import Document, LooseText
from paddleflow.spec.fields import Scalars

PRIORITIES = {"VERY_LOW": 10, "LOW": 20, "NORMAL": 30, "HIGH": 40, "VERY_HIGH": 50}
MOST_REPLICAS = 10_000
MOST_JOBS = 100_000  #: in one batch
MOST_NAME = 512  #: characters of a name
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

    queue: str = ""
    priority: Priority = ""

    @field_validator("priority")
    @classmethod
    def _known(cls, value: str) -> str:
        if value and value not in PRIORITIES:
            raise ValueError(f"priority[{value[:40]}] is not one of {', '.join(PRIORITIES)}")
        return value


class FlavourChoice(Document):
    """A flavour by name, or resources written out."""

    name: str = ""
    cpu: LooseText = ""
    mem: LooseText = ""
    memory: LooseText = ""
    scalar_resources: Scalars = {}


class StorageMount(Document):
    """A storage (fs) that the job sees at a path."""

    id: str = ""
    name: str = Field(min_length=1)
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False

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

    commit: str = Field(default="", max_length=64, pattern=r"^[0-9a-f]*$")
    branch: str = Field(default="", max_length=250)
    dirty: bool = False  #: files differed from the commit


class CodeReference(Document):
    """The code that a job runs with, as its working directory: a snapshot, or a folder of the server's own machine."""

    snapshot: str = Field(default="", max_length=64, pattern=r"^([0-9a-f]{64})?$")
    path: str = ""  #: absolute; only where client and server share their files
    workdir: str = ""  #: below the code
    files: int = 0  #: how many, and
    size: int = 0  #: how many bytes, for people
    git: GitState | None = None

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


#: Shared by all who name none: documents are frozen, and a default that pydantic has to copy costs every submission.
_NO_POLICY = SchedulingPolicy()
_NO_FLAVOUR = FlavourChoice()


class Named(Document):
    """What jobs and members share."""

    code: ClassVar[str] = "JobInvalidField"

    id: str = ""
    name: str = ""
    labels: Texts = Field(default_factory=dict)
    annotations: Texts = Field(default_factory=dict)
    scheduling_policy: SchedulingPolicy = Field(default_factory=lambda: _NO_POLICY)

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

    flavour: FlavourChoice = Field(default_factory=lambda: _NO_FLAVOUR)
    limit_flavour: FlavourChoice = Field(default_factory=lambda: _NO_FLAVOUR)
    fs: Annotated[StorageMount | None, BeforeValidator(_not_given)] = None
    extra_fs: list[StorageMount] = Field(default_factory=list, alias="extraFS")
    image: str = ""
    env: Texts = Field(default_factory=dict)
    command: Words = ""
    args: Words = Field(default_factory=list)
    port: int = 0
    source: CodeReference | None = Field(default=None, alias="code")  #: `code` is the code of a refusal here
    extension_template: Template = None

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


class MemberDocument(JobSpec):
    """One role of a distributed job."""

    role: str
    replicas: int = 1
    min_replicas: int | None = None  #: the job starts with so many; with or without `max_replicas`
    max_replicas: int | None = None  #: and gets up to so many while nobody else needs the room
    resize: str = ""  #: how members come and go: `restart` (all start anew at the new size) or `inPlace`

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

    framework: str = Field(min_length=1)
    members: list[MemberDocument] = Field(default_factory=list)
    source: CodeReference | None = Field(default=None, alias="code")  #: of the members that have none
    extension_template: Template = None


class WorkflowJob(Named):
    """POST /job/workflow"""

    extension_template: Template = None

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
