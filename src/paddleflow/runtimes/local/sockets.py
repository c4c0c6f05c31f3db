"""What went over each TCP connection of this machine so far, as the kernel counts it (netlink, sock_diag).

The kernel counts per connection and not per process, so who holds a connection is looked up in /proc. UDP is not counted.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

Traffic = tuple[int, int]  #: bytes received, bytes sent and acknowledged

_SOCK_DIAG, _BY_FAMILY, _ERROR, _DONE = 4, 20, 2, 3
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_EVERY_STATE = 0xFFFFFFFF
_INFO = 2  # INET_DIAG_INFO: the attribute with a struct tcp_info

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, attributes, states; any address
_ATTRIBUTE = struct.Struct("=HH")  # length, kind
_INODE = struct.Struct("=68xI")  # the last field of struct inet_diag_msg
_BYTES = struct.Struct("=120xQQ")  # tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info


def traffic() -> dict[int, Traffic] | None:
    """Of every TCP socket, by its inode; None when the kernel does not tell."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
            return {
                inode: counted
                for family in (socket.AF_INET, socket.AF_INET6)
                for message in _dump(link, family)
                for inode, counted in parse(message)
            }
    except OSError:
        return None


def held(pid: int) -> set[int]:
    """The inodes of the sockets that a process holds; none when it is gone or not ours to know."""
    found = set()
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):  # closed meanwhile
                kind, _, rest = os.readlink(entry.path).partition(":[")  # noqa: PTH115  thousands of times, so without a Path
                if kind == "socket":
                    found.add(int(rest[:-1]))
    return found


def _dump(link: socket.socket, family: int) -> Iterator[bytes]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _EVERY_STATE)
    link.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 0, 0) + request)
    while True:
        answer = link.recv(1 << 17)
        at = 0
        while at < len(answer):
            length, kind, *_ = _HEADER.unpack_from(answer, at)
            body = answer[at + _HEADER.size : at + length]
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", body)[0], "sock_diag")
            yield body
            at += _aligned(length)


def parse(message: bytes) -> Iterator[tuple[int, Traffic]]:
    """The socket of one message; nothing for one without counters, such as one that is being closed."""
    (inode,) = _INODE.unpack_from(message)
    at = _INODE.size
    while inode and at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INFO and length >= _ATTRIBUTE.size + _BYTES.size:
            sent, received = _BYTES.unpack_from(message, at + _ATTRIBUTE.size)
            yield inode, (received, sent)
        at += max(_aligned(length), _ATTRIBUTE.size)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
