"""What this machine gives to jobs, by its own count and by the settings. Pure except for reading the machine's figures."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable

from paddleflow.base.quantity import Resources, parse_milli, parse_quantity
from paddleflow.errors import Fault, Invalid
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.settings import LocalSettings

ADDRESS = "127.0.0.1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  #: Kubernetes' words


def this_machine(settings: LocalSettings) -> NodeInfo:
    """The one node of the local cluster; Invalid names every wrong setting at once."""
    faults: list[Fault] = []
    cpu = _amount("local.cpus", settings.cpus, parse_milli, len(os.sched_getaffinity(0)) * 1000, faults)
    memory = _amount("local.memory", settings.memory, parse_quantity, _memory(), faults)
    scalars = _scalars(settings.scalars, faults)
    if faults:
        raise Invalid.of(faults)
    name = socket.gethostname()
    machine = platform.machine()
    return NodeInfo(
        name=name,
        address=ADDRESS,
        capacity=Resources.of(cpu, memory, scalars),
        labels={
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": _ARCHITECTURES.get(machine, machine),
            "kubernetes.io/os": "linux",
        },
    )


def uid_range(settings: LocalSettings) -> range:
    """The user numbers that may be given to users of the platform."""
    first, dash, last = settings.uids.partition("-")
    if (
        not dash
        or not first.strip().isdecimal()
        or not last.strip().isdecimal()
        or int(first) < 1
        or int(last) < int(first)
    ):
        raise Invalid(f"local.uids must be FIRST-LAST, such as 200000-265535, found {settings.uids!r}")
    return range(int(first), int(last) + 1)


def log_limit(settings: LocalSettings) -> int:
    """Bytes kept of one log; 0 keeps all."""
    faults: list[Fault] = []
    limit = _amount("local.log_limit", settings.log_limit, parse_quantity, 0, faults)
    if faults:
        raise Invalid.of(faults)
    return limit


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _amount(where: str, text: str, parse: Callable[[str], int], default: int, faults: list[Fault]) -> int:
    if not text.strip():
        return default
    try:
        return parse(text)
    except ValueError as error:
        faults.append(Fault(where, str(error)))
        return 0


def _scalars(text: str, faults: list[Fault]) -> dict[str, int]:
    """``nvidia.com/gpu=4,example.com/nic=1`` → thousandths by name."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            faults.append(
                Fault("local.scalars", f"{part!r} is not of the form name=amount", "such as nvidia.com/gpu=4")
            )
            continue
        found[name.strip()] = _amount("local.scalars", amount, parse_milli, 0, faults)
    return found
