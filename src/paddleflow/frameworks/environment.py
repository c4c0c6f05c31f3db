"""What the plans of all frameworks share: endpoints, and the one rule of whose variables win.

The rule has three layers, later ones win: *tuning* (defaults of ours that only make things better), *the user's* own
variables, *identity* (who the member is and where the others are). So a user may change how a framework works, and can
not make two members believe that they are the same one. Called by the framework modules only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.frameworks.framework import PlacedMember


def endpoint(member: PlacedMember, port: int = 0) -> str:
    """``host:port`` of one of the member's ports."""
    return f"{member.host}:{member.ports[port]}"


def of_roles(members: Sequence[PlacedMember], *roles: str) -> list[PlacedMember]:
    """The members of these roles, role by role, each in the order given: the position in it is the rank."""
    return [member for role in roles for member in members if member.role == role]


def beside(member: PlacedMember, name: str) -> str:
    """Path of a helper file in the job's folder; the name must be the member's alone, unless all write the same."""
    return f"{member.folder.rstrip('/')}/{name}" if member.folder else name


def layered(
    member: PlacedMember, *, identity: Mapping[str, str] | None = None, tuning: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The member's whole environment."""
    # Without PYTHONUNBUFFERED a Python program's output reaches the log only when its buffer is full.
    return {"PYTHONUNBUFFERED": "1", **(tuning or {}), **member.env, **(identity or {})}


def mode(members: Sequence[PlacedMember]) -> dict[str, str]:
    """``PF_JOB_MODE``, which programs of existing users read."""
    return {"PF_JOB_MODE": "PS" if any(member.role == "pserver" for member in members) else "Collective"}


def local_network(member: PlacedMember) -> dict[str, str]:
    """On one machine, keep gloo and NCCL on loopback: they would otherwise look the host's name up, and listen outside."""
    if not member.host.startswith("127."):
        return {}
    return {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
