"""What a decision about pods asks for. The board makes it, the writer carries it out. Pure."""

from __future__ import annotations

from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.podscheduler.pods import Pod
from paddleflow.podscheduler.volumes import Preparation


@dataclass(slots=True)
class PodChangeset:
    """What a decision asks for."""

    binds: list[tuple[Pod, str]] = field(default_factory=list)
    prepared: list[tuple[Pod, str, list[Preparation]]] = field(
        default_factory=list
    )  #: the same, once volumes are there
    refused: list[Pod] = field(default_factory=list)  #: their volumes went to others in the same decision
    waits: list[tuple[Pod, str]] = field(default_factory=list)  #: and why
    evictions: list[tuple[Pod, str]] = field(default_factory=list)  #: and why

    def add(self, other: PodChangeset) -> None:
        """What another decision asks for, too."""
        self.binds += other.binds
        self.prepared += other.prepared
        self.refused += other.refused
        self.waits += other.waits
        self.evictions += other.evictions
