"""The kernel's FUSE protocol as bytes: constants, and how requests and answers are laid out (linux/fuse.h, 7.31 to 7.45).

No thought and no I/O in here. Called by `vfs`, which gives the requests a meaning, and by `device`.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

MAJOR, MINOR = 7, 41
OLDEST_MINOR = 31  #: Linux 5.4; older ones lay out INIT differently
ROOT = 1  #: node id of the mount's root


class Op(enum.IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    IOCTL = 39
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50


NO_ANSWER = {Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT}


class Init(enum.IntFlag):
    """What kernel and client offer each other."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    EXPORT_SUPPORT = 1 << 4
    BIG_WRITES = 1 << 5
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    NO_OPEN_SUPPORT = 1 << 17
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    NO_OPENDIR_SUPPORT = 1 << 24
    EXPLICIT_INVAL_DATA = 1 << 25
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    DIRECT_IO_ALLOW_MMAP = 1 << 36
    PASSTHROUGH = 1 << 37
    HAS_RESEND = 1 << 39
    ALLOW_IDMAP = 1 << 40  #: bind mounts may map owners; `uid` of requests is the mapped one


class Fopen(enum.IntFlag):
    """How the kernel treats an open file."""

    DIRECT_IO = 1 << 0
    KEEP_CACHE = 1 << 1
    CACHE_DIR = 1 << 3
    NOFLUSH = 1 << 5
    PARALLEL_DIRECT_WRITES = 1 << 6
    PASSTHROUGH = 1 << 7


class Fattr(enum.IntFlag):
    """What a SETATTR sets."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    FH = 1 << 6
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8
    KILL_SUIDGID = 1 << 11


OPEN_KILL_SUIDGID = 1 << 0  #: in the flags of OPEN: a file that is truncated loses set-uid and set-gid
WRITE_KILL_SUIDGID = 1 << 2  #: the same in the flags of WRITE
FSYNC_DATA = 1 << 0  #: in the flags of FSYNC: data only


IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
ENTRY_HEAD = struct.Struct("<QQQQII")
ENTRY = struct.Struct("<QQQQII6Q10I")  #: both of them
ATTR_HEAD = struct.Struct("<QII")
SETATTR_IN = struct.Struct("<II6Q8I")
MKNOD_IN = struct.Struct("<IIII")
MKDIR_IN = struct.Struct("<II")
RENAME_IN = struct.Struct("<Q")
RENAME2_IN = struct.Struct("<QII")
LINK_IN = struct.Struct("<Q")
OPEN_IN = struct.Struct("<II")
OPEN_OUT = struct.Struct("<QIi")
CREATE_IN = struct.Struct("<IIII")
RELEASE_IN = struct.Struct("<QIIQ")
READ_IN = struct.Struct("<QQIIQII")
WRITE_IN = READ_IN
WRITE_OUT = struct.Struct("<II")
STATFS_OUT = struct.Struct("<5Q4I24x")
FSYNC_IN = struct.Struct("<QII")
SETXATTR_IN = struct.Struct("<II")
GETXATTR_IN = struct.Struct("<II")
INIT_IN = struct.Struct("<IIIII44x")
INIT_IN_OLD = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHII24x")
FORGET_IN = struct.Struct("<Q")
BATCH_FORGET_IN = struct.Struct("<II")
FORGET_ONE = struct.Struct("<QQ")
FALLOCATE_IN = struct.Struct("<QQQII")
LSEEK_IN = struct.Struct("<QQII")
LSEEK_OUT = struct.Struct("<Q")
DIRENT = struct.Struct("<QQII")
INVAL_INODE = struct.Struct("<Qqq")
NOTIFY_INVAL_INODE = 2
NOTIFY_RESEND = 7
UNIQUE_RESEND = 1 << 63  #: in the number of a request that is sent again

SECOND = 1_000_000_000  #: nanoseconds
_ALL = 0xFFFFFFFFFFFFFFFF
_PADDING = [b"", *(bytes(8 - rest) for rest in range(1, 8))]


Answer = bytes | bytearray | memoryview | tuple[bytes, ...]  #: the body of an answer


class Request(NamedTuple):
    """The header of a request; its body follows in the buffer."""

    opcode: int
    unique: int
    node: int
    uid: int
    gid: int
    pid: int


class Attributes(NamedTuple):
    """What the kernel wants to know of a node. Times are nanoseconds."""

    ino: int
    size: int
    blocks: int
    atime: int
    mtime: int
    ctime: int
    mode: int
    nlink: int
    uid: int
    gid: int
    rdev: int = 0
    blksize: int = 4096


def parse_request(buffer: memoryview) -> Request:
    _, opcode, unique, node, uid, gid, pid, _, _ = IN_HEADER.unpack_from(buffer)
    return Request(opcode, unique, node, uid, gid, pid)


def names(body: memoryview, count: int) -> list[bytes]:
    """The `count` zero-ended names that the body begins with."""
    return bytes(body).split(b"\0", count)[:count]


def pack_attributes(found: Attributes) -> bytes:
    return ATTR.pack(*_attribute_fields(found))


def _attribute_fields(found: Attributes) -> tuple[int, ...]:
    ino, size, blocks, atime, mtime, ctime, mode, nlink, uid, gid, rdev, blksize = found
    return (
        ino, size, blocks,
        # the kernel takes seconds before 1970 as two's complement
        atime // SECOND & _ALL, mtime // SECOND & _ALL, ctime // SECOND & _ALL,
        atime % SECOND, mtime % SECOND, ctime % SECOND,
        mode, nlink, uid, gid, rdev, blksize, 0,
    )  # fmt: skip


def lasting(entry_seconds: float, attr_seconds: float) -> tuple[int, int, int, int]:
    """How long the kernel may remember a name and its attributes, as an entry says it."""
    entry, entry_ns = split(entry_seconds)
    attr, attr_ns = split(attr_seconds)
    return entry, attr, entry_ns, attr_ns


def pack_entry(node: int, found: Attributes, lasting: tuple[int, int, int, int]) -> bytes:
    return ENTRY.pack(node, 0, *lasting, *_attribute_fields(found))


def pack_no_entry(entry_seconds: float) -> bytes:
    """A name that is not there, which the kernel may remember for a while."""
    entry, entry_ns = split(entry_seconds)
    return ENTRY_HEAD.pack(0, 0, entry, 0, entry_ns, 0) + bytes(ATTR.size)


def pack_attr_answer(found: Attributes, seconds: float) -> bytes:
    whole, rest = split(seconds)
    return ATTR_HEAD.pack(whole, rest, 0) + pack_attributes(found)


def pack_dirent(ino: int, offset: int, kind: int, name: bytes) -> bytes:
    return DIRENT.pack(ino, offset, len(name), kind) + name + _PADDING[len(name) % 8]


def split(seconds: float) -> tuple[int, int]:
    whole = int(seconds)
    return whole, int((seconds - whole) * 1_000_000_000)


def signed_time(seconds: int, nanoseconds: int) -> int:
    """Nanoseconds of a time in a request, whose seconds may stand for a moment before 1970."""
    return (seconds - (1 << 64) if seconds >> 63 else seconds) * 1_000_000_000 + nanoseconds


def pack_attributes_stale(node: int) -> bytes:
    """A notification: the kernel is to ask for the attributes of a node again. Cached pages stay."""
    body = INVAL_INODE.pack(node, -1, 0)
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), NOTIFY_INVAL_INODE, 0) + body


def pack_resend() -> bytes:
    """A notification: send all requests again that have no answer yet."""
    return OUT_HEADER.pack(OUT_HEADER.size, NOTIFY_RESEND, 0)
