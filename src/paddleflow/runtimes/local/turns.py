"""Turns of threads on the processors: of the keeper, and of the server's event loop."""

from __future__ import annotations

import ctypes
import os
import struct

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  #: the number of sched_setattr, which the C library has no name for
_RESET_ON_FORK = 1
_SHORT = 100_000  #: nanoseconds, the least that the kernel takes; others have 1 to 3 milliseconds


def take_short_turns() -> None:
    """Run as soon as there is something to do, also where others use all cores: who has short turns goes first.

    The keeper never has much to do, and others wait for it. Without this it comes to its turn again when the child that it
    has spawned has had its own: 0.6 ms instead of 0.12. Children have turns as everybody. Linux before 6.12 knows nothing
    of it, and then it is as it was.
    """
    number = _SET_ATTRIBUTES.get(os.uname().machine)
    if number is None:
        return
    # size, policy, flags, nice, priority, runtime, deadline, period
    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, _RESET_ON_FORK, os.nice(0), 0, _SHORT, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, wanted, 0)
