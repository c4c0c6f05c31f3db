"""What isolated jobs may not ask of the kernel: a filter of system calls, which a thread installs for good and its children inherit.

Refused are set-user-ID and set-group-ID bits on files, and raising the limit on processes. The bits, because the files of a
storage belong to its owner on the disk: a program with such a bit would run with the owner's rights for everybody who finds it
there. The limit, because a server without CAP_SYS_RESOURCE can only set the soft one.

A filter sees no memory, so not the mode that `openat2` is given. It is let through all the same: a file that it makes is empty,
and whatever puts content into a file takes the bits from it (of everybody without CAP_FSETID, which no job has). io_uring does
not exist for such jobs, because what it does passes no filter at all. Of the calls for 32-bit programs, which have other numbers,
the same are refused.
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
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_REFUSED, _UNKNOWN = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FOREIGN = 0x40000000  #: of x86-64's second set of calls

Test = tuple[int, int, int]  #: which word of the arguments, how it is compared, with what
Instruction = tuple[int, int, int, int]


class Syscalls(NamedTuple):
    """Numbers of the calls that the filter looks at, for programs of one kind."""

    audit: int  #: which kind
    modes: dict[int, int]  #: calls that set a mode, and which argument it is
    opens: dict[int, tuple[int, int]]  #: calls that may make a file: which arguments are flags and mode
    setrlimit: int
    prlimit: int


class Architecture(NamedTuple):
    """Numbers of the calls that sandboxes make and filter."""

    seccomp: int
    setgroups: int
    setresgid: int
    setresuid: int
    keyctl: int
    filtered: tuple[Syscalls, Syscalls]  #: of its own programs, and of those for 32 bits


ARCHITECTURES = {
    "x86_64": Architecture(
        seccomp=317, setgroups=116, setresgid=119, setresuid=117, keyctl=250,
        filtered=(
            Syscalls(
                audit=0xC000003E, modes={90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2},
                opens={2: (1, 2), 257: (2, 3)}, setrlimit=160, prlimit=302,
            ),
            Syscalls(
                audit=0x40000003, modes={15: 1, 94: 1, 306: 2, 452: 2, 8: 1, 14: 1, 297: 2},
                opens={5: (1, 2), 295: (2, 3)}, setrlimit=75, prlimit=340,
            ),
        ),
    ),
    "aarch64": Architecture(
        seccomp=277, setgroups=159, setresgid=149, setresuid=147, keyctl=219,
        filtered=(
            Syscalls(
                audit=0xC00000B7, modes={52: 1, 53: 2, 452: 2, 33: 2}, opens={56: (2, 3)}, setrlimit=164, prlimit=261
            ),
            Syscalls(
                audit=0x40000028, modes={15: 1, 94: 1, 333: 2, 452: 2, 8: 1, 14: 1, 324: 2},
                opens={5: (1, 2), 322: (2, 3)}, setrlimit=75, prlimit=369,
            ),
        ),
    ),
}  # fmt: skip
_IO_URING_SETUP = 425  #: everywhere


def architecture() -> Architecture:
    """That of this machine; OSError when nobody has written its numbers down."""
    name = os.uname().machine
    if name not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"the system calls of {name} are not known")
    return ARCHITECTURES[name]


def program(numbers: Architecture, *, contained: bool = False) -> list[Instruction]:
    """The filter; for containers without the limit on processes, which their engine sets."""
    found: list[Instruction] = []
    for calls in numbers.filtered:
        rules = _rules(calls, contained)
        found += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(rules), calls.audit), *rules]
    return [*found, (_RETURN, 0, 0, _UNKNOWN)]


def _rules(calls: Syscalls, contained: bool) -> list[Instruction]:
    found: list[Instruction] = [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _FOREIGN), (_RETURN, 0, 0, _UNKNOWN)]
    found += _rule(_IO_URING_SETUP, [], _UNKNOWN)
    for call, mode in calls.modes.items():
        found += _rule(call, [(2 * mode, _ANY_BIT, BITS)], _REFUSED)
    for call, (flags, mode) in calls.opens.items():
        found += _rule(call, [(2 * flags, _ANY_BIT, _MAKES), (2 * mode, _ANY_BIT, BITS)], _REFUSED)
    if not contained:
        found += _rule(calls.setrlimit, [(0, _EQUAL, _PROCESSES)], _REFUSED)
    for half in () if contained else (4, 5):  # a pointer that is not null
        found += _rule(calls.prlimit, [(2, _EQUAL, _PROCESSES), (half, _ANY_BIT, 0xFFFFFFFF)], _REFUSED)
    return [*found, (_RETURN, 0, 0, _ALLOW)]


def _rule(call: int, tests: list[Test], answer: int) -> list[Instruction]:
    """When it is this call and every test holds, this is the answer; otherwise the next rule is asked."""
    inner: list[Instruction] = []
    for count, (word, compare, value) in enumerate(reversed(tests)):
        inner = [(_LOAD, 0, 0, _ARGUMENTS + 4 * word), (compare, 0, 2 * count + 1, value), *inner]
    return [(_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, len(inner) + 1, call), *inner, (_RETURN, 0, 0, answer)]


def install(libc: ctypes.CDLL, *, contained: bool = False) -> None:
    """For the calling thread and all that it starts, for good: the filter, and but for engines of containers, no new privileges."""
    numbers = architecture()
    if not contained and libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"no new privileges: {os.strerror(ctypes.get_errno())}")
    instructions = program(numbers, contained=contained)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    if libc.syscall(numbers.seccomp, _SET_FILTER, 0, filter_):
        raise OSError(ctypes.get_errno(), f"filter of system calls: {os.strerror(ctypes.get_errno())}")
