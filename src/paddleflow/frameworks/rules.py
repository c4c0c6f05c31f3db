"""The replica rules of a framework as one function made from its table of roles.

All faults are reported at once, in the words that existing users' scripts look for. Called by the framework modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from paddleflow.base.names import nearest
from paddleflow.errors import Fault
from paddleflow.frameworks.framework import Role

#: The name that older clients use for a worker, whatever the framework.
WORKER_ALIASES = ("pworker",)

Check = Callable[[Mapping[str, int]], Sequence[Fault]]


def checker(
    framework: str,
    roles: Sequence[Role],
    *,
    required: Sequence[str] = (),
    one_of: Sequence[str] = (),
    further: Callable[[Mapping[str, int]], Sequence[Fault]] | None = None,
) -> Check:
    """A check for `Framework.check`.

    Each role in `required` must be there, and at least one of `one_of`; `further` sees the replicas by true role name
    when nothing else is wrong.
    """

    def check(replicas: Mapping[str, int]) -> Sequence[Fault]:
        counted: dict[str, int] = {}
        faults = []
        for name, amount in replicas.items():
            role = next((role for role in roles if name == role.name or name in role.aliases), None)
            if role is None:
                message = f"the role[{name}] for framework {framework} is not supported"
                faults.append(Fault("members", message, nearest(name, [role.name for role in roles])))
            else:
                counted[role.name] = counted.get(role.name, 0) + amount
        for role in roles:
            found = counted.get(role.name, 0)
            least = max(role.least, 1) if role.name in required else role.least if role.name in counted else 0
            if found < least:
                message = f"framework {framework} needs at least {least} {role.name}, found {found}"
                faults.append(Fault("members", message))
            if role.most is not None and found > role.most:
                message = f"framework {framework} takes at most {role.most} {role.name}, found {found}"
                faults.append(Fault("members", message))
        if one_of and not any(counted.get(name) for name in one_of):
            faults.append(
                Fault("members", f"framework {framework} needs at least one {' or '.join(one_of)}, found none")
            )
        return faults or (list(further(counted)) if further else [])

    return check
