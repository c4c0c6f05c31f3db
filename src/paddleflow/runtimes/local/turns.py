"""Turns of threads on the processors: of the keeper, and of the server's event loop."""

from __future__ import annotations

import ctypes
import os
import struct

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  #: the number of sched_setattr, which the C library has no name for
_RESET_ON_FORK = 1
_SHORT = 100_000  #: nanoseconds, the least that the kernel takes; others have 1 to 3 milliseconds


def take_short_turns(ahead: int = 0) -> None:
    """Run as soon as there is something to do, also where others use all cores: who has short turns goes first.

    The keeper never has much to do, and others wait for it. Without this it comes to its turn again when the child that it
    has spawned has had its own: 0.6 ms instead of 0.12. Children have turns as everybody. Linux before 6.12 knows nothing
    of it, and then it is as it was. `ahead` is how much nicer everybody else is taken to be, where the account may say so.
    """
    number = _SET_ATTRIBUTES.get(os.uname().machine)
    if number is None:
        return
    own = os.nice(0)
    for nice in (own if own else -ahead, own):  # only below 0 do children have 0 again
        # size, policy, flags, nice, priority, runtime, deadline, period
        wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, _SHORT, 0, 0)
        if ctypes.CDLL(None).syscall(number, 0, wanted, 0) == 0:
            return
