"""What isolated jobs may not ask of the kernel: a filter of system calls, which a thread installs for good and its children inherit.

Refused are set-user-ID and set-group-ID bits on files, and raising the limit on processes. The bits, because the files of a
storage belong to its owner on the disk: a program with such a bit would run with the owner's rights for everybody who finds it
there. The limit, because a server without CAP_SYS_RESOURCE can only set the soft one. Calls whose arguments a filter cannot
see (openat2, io_uring) do not exist for such jobs, and neither do the 32-bit calls of a 64-bit machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

BITS = 0o6000  #: set-user-ID, set-group-ID
_MAKES = 0o100 | 0o20000000  #: O_CREAT, O_TMPFILE: only with these is there a mode
_PROCESSES = 6  #: RLIMIT_NPROC
_SET_FILTER, _NO_NEW_PRIVILEGES = 1, 38
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FOREIGN = 0x40000000  #: of x86-64's second set of calls

Test = tuple[int, int, int]  #: which word of the arguments, how it is compared, with what
Instruction = tuple[int, int, int, int]


class Machine(NamedTuple):
    """Numbers of the calls on one architecture."""

    audit: int
    seccomp: int
    setgroups: int
    setresgid: int
    setresuid: int
    keyctl: int
    modes: dict[int, int]  #: calls that set a mode, and which argument it is
    opens: dict[int, tuple[int, int]]  #: calls that may make a file: which arguments are flags and mode
    setrlimit: int
    prlimit: int


MACHINES = {
    "x86_64": Machine(
        audit=0xC000003E, seccomp=317, setgroups=116, setresgid=119, setresuid=117, keyctl=250,
        modes={90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2}, opens={2: (1, 2), 257: (2, 3)},
        setrlimit=160, prlimit=302,
    ),
    "aarch64": Machine(
        audit=0xC00000B7, seccomp=277, setgroups=159, setresgid=149, setresuid=147, keyctl=219,
        modes={52: 1, 53: 2, 452: 2, 33: 2}, opens={56: (2, 3)}, setrlimit=164, prlimit=261,
    ),
}  # fmt: skip
_UNSEEN = (437, 425)  #: openat2, io_uring_setup


def machine() -> Machine:
    """This one; OSError when nobody has written its numbers down."""
    name = os.uname().machine
    if name not in MACHINES:
        raise OSError(errno.ENOSYS, f"the system calls of {name} are not known")
    return MACHINES[name]


def program(numbers: Machine, *, contained: bool = False) -> list[Instruction]:
    """The filter; for containers without the limit on processes, which their engine sets."""
    refused = _REFUSE | errno.EPERM
    unknown = _REFUSE | errno.ENOSYS
    found: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, numbers.audit),
        (_RETURN, 0, 0, unknown),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _FOREIGN),
        (_RETURN, 0, 0, unknown),
    ]
    for call in _UNSEEN:
        found += _rule(call, [], unknown)
    for call, mode in numbers.modes.items():
        found += _rule(call, [(2 * mode, _ANY_BIT, BITS)], refused)
    for call, (flags, mode) in numbers.opens.items():
        found += _rule(call, [(2 * flags, _ANY_BIT, _MAKES), (2 * mode, _ANY_BIT, BITS)], refused)
    if not contained:
        found += _rule(numbers.setrlimit, [(0, _EQUAL, _PROCESSES)], refused)
    for half in () if contained else (4, 5):  # a pointer that is not null
        found += _rule(numbers.prlimit, [(2, _EQUAL, _PROCESSES), (half, _ANY_BIT, 0xFFFFFFFF)], refused)
    return [*found, (_RETURN, 0, 0, _ALLOW)]


def _rule(call: int, tests: list[Test], answer: int) -> list[Instruction]:
    """When it is this call and every test holds, this is the answer; otherwise the next rule is asked."""
    inner: list[Instruction] = []
    for count, (word, compare, value) in enumerate(reversed(tests)):
        inner = [(_LOAD, 0, 0, _ARGUMENTS + 4 * word), (compare, 0, 2 * count + 1, value), *inner]
    return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, len(inner) + 1, call), *inner, (_RETURN, 0, 0, answer)]


def install(libc: ctypes.CDLL, *, contained: bool = False) -> None:
    """For the calling thread and all that it starts, for good: the filter, and but for engines of containers, no new privileges."""
    numbers = machine()
    if not contained and libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"no new privileges: {os.strerror(ctypes.get_errno())}")
    instructions = program(numbers, contained=contained)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    if libc.syscall(numbers.seccomp, _SET_FILTER, 0, filter_):
        raise OSError(ctypes.get_errno(), f"filter of system calls: {os.strerror(ctypes.get_errno())}")
