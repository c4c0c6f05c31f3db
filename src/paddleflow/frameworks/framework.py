"""What a framework is: a table of facts, and one pure function that turns placed members into environments.

The rest of the platform asks four questions of a framework and nothing else: are these roles allowed (`check`), in what
order do members start (`stages`), what environment and command does each one get (`plan`), and whose end is the end of
the job (`completing`, `completion`). A failed member fails the gang, whatever the framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from paddleflow.base.values import dataclass
from paddleflow.errors import Fault


class Completion(StrEnum):
    """When a job of this framework has succeeded."""

    ALL = "all"  #: every member of the completing roles ended with 0
    ANY = "any"  #: the first member of the completing roles ended with 0


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """One placed process of a job, before the framework has added anything."""

    role: str
    index: int
    host: str  #: the address at which the others reach it
    ports: tuple[int, ...]  #: as many as the role asked for, allocated to this member alone
    argv: tuple[str, ...]  #: what the user wrote, as the shell or list form says
    env: Mapping[str, str]
    cpu: int = 1000  #: thousandths of a core
    devices: tuple[str, ...] = ()  #: device numbers given to it
    folder: str = ""  #: the job's folder, shared by its members; helper files of the plans lie in it


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one member really gets."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_port: int | None = None  #: the members of later stages start when this port listens
    #: Name in the job's folder → text (host files and the like); must be there before the member starts.
    files: Mapping[str, str] = field(default_factory=dict)
    #: Holds its resources but runs no process of its own (an MPI slot on the same machine): the members that do run use
    #: what it holds, so its limits and devices must be added to theirs.
    passive: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a framework."""

    name: str
    least: int = 0  #: members needed when the role is used at all
    most: int | None = None
    ports: int = 0  #: ports each member needs
    aliases: tuple[str, ...] = ()
    completes: bool = True  #: its end counts for the end of the job; the others are stopped then
    decisive: bool = False  #: when a job has this role, its end alone counts
    #: Members of this role can come and go while the others run, if the program can bear it: each has a process of its
    #: own, and none of them is the meeting point of the others.
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework as a value."""

    name: str
    roles: tuple[Role, ...]
    stages: tuple[tuple[str, ...], ...]  #: role names in start order; a stage starts when the one before is ready
    plan: Callable[[str, Sequence[PlacedMember]], Sequence[LaunchPlan]]  #: (job id, members in order) → one plan each
    check: Callable[[Mapping[str, int]], Sequence[Fault]]  #: replicas by role → what is wrong with them
    completion: Completion = Completion.ALL

    def role(self, name: str) -> Role | None:
        """The role of this name or alias."""
        return next((role for role in self.roles if name == role.name or name in role.aliases), None)

    def completing(self, roles: Iterable[str]) -> frozenset[str]:
        """Of a job with these roles, those whose end is the end of the job."""
        names = set(roles)
        present = [role for role in self.roles if role.name in names]
        decisive = frozenset(role.name for role in present if role.decisive)
        return decisive or frozenset(role.name for role in present if role.completes)
