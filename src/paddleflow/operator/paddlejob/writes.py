"""What a reconcile wants written. Values only; `operator.executor` writes them, in the order of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.operator.paddlejob.job import Object


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person should see beside the job."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """An object of ours to be deleted, by its uid: one that has come back under the same name is another one."""

    obj: Object
    force: bool = False  #: its node does not answer: do not wait for it


@dataclass(frozen=True, slots=True)
class Patch:
    """A few fields of an object of ours."""

    obj: Object
    body: Mapping[str, Any]


@dataclass(slots=True)
class Writes:
    """Everything that is missing."""

    status: dict[str, Any] | None = None  #: None: as it is
    urgent: bool = False  #: the status must be seen at once; otherwise it may be held back a little
    first: bool = False  #: the status must be written before anything else
    np: int | None = None  #: number of workers, to be set in the elastic trainers' etcd
    deletes: list[Delete] = field(default_factory=list)
    creates: list[Object] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    finalizers: list[str] | None = None  #: what is left of the job's when the original operator's is taken off
    expired: str = ""  #: why the job itself is to be deleted
    events: list[Event] = field(default_factory=list)
    again: float | None = None  #: seconds after which to reconcile again, whatever happens

    def requeue_after(self, after: float) -> None:
        after = max(0.0, after)
        self.again = after if self.again is None else min(self.again, after)

    @property
    def quiet(self) -> bool:
        return self.status is None and not (
            self.deletes or self.creates or self.patches or self.events or self.np or self.finalizers is not None
        )


@dataclass(frozen=True, slots=True)
class Children:
    """The objects that belong to a job, by its uid; nobody else's are among them."""

    pods: Sequence[Object] = ()
    config_maps: Sequence[Object] = ()
    services: Sequence[Object] = ()
    pod_groups: Sequence[Object] = ()
    unowned_pod_group: Object | None = None  #: made by a person, with the job's name
