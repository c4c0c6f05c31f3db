"""What admission knows of the world, and what it has found wrong so far. Values only; `submission` looks the world up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.errors import Fault, Forbidden, Invalid, NotFound, OverQuota
from paddleflow.queues.model import DEFAULT_CLUSTER, LOCAL


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What admission must know of a queue."""

    name: str
    open: bool
    usable: bool  #: by the one who submits
    most: Resources | None
    cluster: str = DEFAULT_CLUSTER
    cluster_type: str = LOCAL
    above: tuple[tuple[str, Resources], ...] = ()  #: name and ceiling of each queue above it that has one


@dataclass(frozen=True, slots=True)
class StorageFacts:
    id: str
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class World:
    """What is known at this moment. Look-ups answer None for what is not there."""

    user: str
    queue: Callable[[str], QueueFacts | None]
    flavour: Callable[[str], Resources | None]
    storage: Callable[[str], StorageFacts | None]
    why_no_node: Callable[[str, Resources], str]  #: empty when some node of a cluster could hold that much, else why none can
    known_queues: Callable[[], Sequence[str]] = tuple
    known_flavours: Callable[[], Sequence[str]] = tuple
    known_storages: Callable[[], Sequence[str]] = tuple
    skip_queue_maximum: bool = False


@dataclass(slots=True)
class Faults:
    """Collects what is wrong with a job; the code of the first fault becomes the answer's."""

    found: list[Fault] = field(default_factory=list)
    code: str = ""
    kind: type[Invalid | NotFound | Forbidden | OverQuota] = Invalid

    def add(self, where: str, message: str, hint: str = "", code: str = "JobInvalidField", kind: Any = Invalid) -> None:
        if not self.found:
            self.code, self.kind = code, kind
        self.found.append(Fault(where, message, hint))

    def check(self) -> None:
        if self.found:
            text = "; ".join(str(fault) for fault in self.found)
            hint = next((fault.hint for fault in self.found if fault.hint), "")
            raise self.kind(text, code=self.code, hint=hint, details=self.found)
