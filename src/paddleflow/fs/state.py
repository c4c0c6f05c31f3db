"""What one worker of a mount leaves to the next: which nodes and handles the kernel knows, and what was agreed with it.

Lies in memory files that outlive a worker, for the supervisor keeps them open (`supervisor`: worker and supervisor share one
table of descriptors, so every descriptor that a killed worker had is still open and has the same number). Tables are changed
in an order that makes each record true at any moment: what is written down exists, and a record counts from the moment
its last field is written.

- **nodes**: number, how often the kernel was told of it, a descriptor, and what the tree keeps of it on the heap.
- **handles**: open files, with the way in which each was opened.
- **heap**: records of any length for the values of nodes; names and versions of objects.
- **intents**: for each thread the request that is changing something now. The kernel sends requests that were not answered
  again; those in here may have been executed already.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import asdict, field
from typing import NamedTuple

from paddleflow.base.values import dataclass
from paddleflow.fs import kernel

LAYOUT = 3  #: of everything in here; a program with another one cannot take a mount over
MOST_THREADS = 64
_INHERITED = 1024  #: requests of earlier workers that are remembered as perhaps executed
_NODE = struct.Struct("<QQqqq")
_COUNT = struct.Struct("<Q")
_VALUE = struct.Struct("<q")
_HANDLE = struct.Struct("<QQqIiiI")
_LENGTH = struct.Struct("<I")
_SLOT = 0xFFFFFFFF  #: the part of a node's or handle's number that says where its record is
_LEAST = 64  #: bytes of a record on the heap, with its length; larger ones take the next power of two
_RESTING = 1024  #: slots that are not used again at once: a request that is repeated may still name them
_STEP = 1 << 16  #: records that a table grows by at most


class NodeRecord(NamedTuple):
    """A node that the kernel knows."""

    node: int
    lookups: int
    fd: int  #: of the node or its content; -1: none
    name: int  #: on the heap
    content: int  #: on the heap: what is open


class HandleRecord(NamedTuple):
    """An open file."""

    unique: int  #: of the request that opened it
    node: int
    fd: int  #: of this open, where the tree has one; or -1
    flags: int  #: of the open
    backing: int  #: id of the file that the kernel was lent, or 0
    way: int
    generation: int  #: the other part of its number


class _Table:
    """Records of one layout in a memory file that grows. Slot 0 is not given out."""

    def __init__(self, fd: int, layout: struct.Struct) -> None:
        self._fd, self._layout = fd, layout
        self._size = layout.size
        if os.fstat(fd).st_size == 0:
            os.ftruncate(fd, 256 * self._size)
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._slots = len(self._map) // self._size
        self._lock = threading.Lock()
        self._free: deque[int] = deque()
        self._next = 1

    def take_slot(self) -> int:
        with self._lock:
            if len(self._free) > _RESTING:
                return self._free.popleft()
            slot = self._next
            self._next += 1
            if slot >= self._slots:
                self._slots += min(self._slots, _STEP)
                os.ftruncate(self._fd, self._slots * self._size)
                self._map.resize(self._slots * self._size)
            return slot

    def new_number(self) -> int:
        """A number that was never given out before: a slot, and how many were given out."""
        slot = self.take_slot()
        with self._lock:
            generation: int = (_COUNT.unpack_from(self._map, 0)[0] + 1) & _SLOT
            _COUNT.pack_into(self._map, 0, generation)  # slot 0 holds the count
        return slot | generation << 32

    def write(self, slot: int, *values: int) -> None:
        self._layout.pack_into(self._map, slot * self._size, *values)

    def clear(self, slot: int) -> None:
        self._map[slot * self._size : (slot + 1) * self._size] = bytes(self._size)
        with self._lock:
            self._free.append(slot)

    def restore(self, first: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """What is written, by slot. All other slots are free afterwards."""
        empty, last = bytes(self._size), first - 1
        gaps: list[int] = []
        for slot in range(first, self._slots):
            at = slot * self._size
            if self._map[at : at + self._size] != empty:
                gaps.extend(range(last + 1, slot))
                last = slot
                yield slot, self._layout.unpack_from(self._map, at)
        self._free, self._next = deque(gaps), last + 1

    def unmap(self) -> None:
        self._map.close()


class NodeTable(_Table):
    """Nodes that the kernel knows. A number is a slot and how often numbers were given out before: it never comes back."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, _NODE)
        self._next = kernel.ROOT + 1

    def put(self, node: int, lookups: int, fd: int = -1, name: int = 0, content: int = 0) -> None:
        self.write(node & _SLOT, node, lookups, fd, name, content)

    def set_lookups(self, node: int, lookups: int) -> None:
        _COUNT.pack_into(self._map, (node & _SLOT) * _NODE.size + 8, lookups)

    def set_fd(self, node: int, fd: int) -> None:
        _VALUE.pack_into(self._map, (node & _SLOT) * _NODE.size + 16, fd)

    def set_name(self, node: int, name: int) -> None:
        _VALUE.pack_into(self._map, (node & _SLOT) * _NODE.size + 24, name)

    def set_content(self, node: int, content: int) -> None:
        _VALUE.pack_into(self._map, (node & _SLOT) * _NODE.size + 32, content)

    def remove(self, node: int) -> None:
        self.clear(node & _SLOT)

    def records(self) -> list[NodeRecord]:
        return list(self.by_slot().values())

    def by_slot(self) -> dict[int, NodeRecord]:
        return {slot: NodeRecord(*values) for slot, values in self.restore(kernel.ROOT + 1)}


class HandleTable(_Table):
    """Open files. As with nodes no number comes back: a RELEASE that is repeated must not close the file of a later open."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, _HANDLE)

    def put(self, number: int, unique: int, node: int, fd: int, flags: int, backing: int, way: int) -> None:
        self.write(number & _SLOT, unique, node, fd, flags, backing, way, number >> 32)

    def remove(self, number: int) -> None:
        self.clear(number & _SLOT)

    def records(self) -> dict[int, HandleRecord]:
        """By number."""
        found = {slot: HandleRecord(*values) for slot, values in self.restore(1)}
        return {slot | record.generation << 32: record for slot, record in found.items()}


class Heap:
    """Records of any length, found by their offset; 0 is none. Mapped: a system call would let another thread run each time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        if os.fstat(fd).st_size == 0:
            os.ftruncate(fd, 256 * _LEAST)
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._end = _LEAST
        self._free: dict[int, list[int]] = {}
        self._lock = threading.Lock()

    def put(self, data: bytes) -> int:
        size = _room(len(data))
        with self._lock:
            free = self._free.get(size)
            if free:
                at = free.pop()
            else:
                at = self._end
                self._end += size
                if self._end > len(self._map):
                    room = max(self._end, len(self._map) + min(len(self._map), _STEP * _LEAST))
                    os.ftruncate(self._fd, room)
                    self._map.resize(room)
            self._map[at : at + _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
        return at

    def get(self, at: int) -> bytes:
        (length,) = _LENGTH.unpack_from(self._map, at)
        return self._map[at + _LENGTH.size : at + _LENGTH.size + length]

    def remove(self, at: int) -> None:
        """Give a record's place back. Whatever named it must name something else already."""
        if at:
            with self._lock:
                size = _room(_LENGTH.unpack_from(self._map, at)[0])
                self._free.setdefault(size, []).append(at)

    def unmap(self) -> None:
        self._map.close()

    def restore(self, live: Collection[int]) -> None:
        """Only these records are there; all other room is free."""
        end = _LEAST
        for at in sorted(live):
            self._add_gap(end, at)
            end = at + _room(_LENGTH.unpack_from(self._map, at)[0])
        self._end = end

    def _add_gap(self, begin: int, end: int) -> None:
        while begin < end:
            size = _LEAST
            while size * 2 <= end - begin:
                size *= 2
            self._free.setdefault(size, []).append(begin)
            begin += size


def _room(length: int) -> int:
    size = _LEAST
    while size < length + _LENGTH.size:
        size *= 2
    return size


@dataclass(slots=True)
class Agreed:
    """What kernel and client agreed on, once per mount."""

    device: int = -1  #: descriptor; -1: not mounted yet
    root: int = -1  #: descriptor of the folder that a client of the machine mounted for this mount; -1: none
    clones: list[int] = field(default_factory=list)
    minor: int = 0
    passthrough: bool = False
    no_open: bool = False
    resend: bool = False  #: the kernel can send unanswered requests again
    restarts: int = 0  #: workers that were replaced


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The descriptors, for a program that takes over by exec."""

    agreed: int
    nodes: int
    handles: int
    heap: int
    intents: int


class State:
    """All of it. A worker makes its own object from the descriptors."""

    def __init__(self, files: StateFiles) -> None:
        self.files = files
        self.nodes, self.handles, self.heap = NodeTable(files.nodes), HandleTable(files.handles), Heap(files.heap)
        self._intents = mmap.mmap(files.intents, (MOST_THREADS + _INHERITED) * _COUNT.size)
        self.repeated = self._inherit()
        text = os.pread(files.agreed, 65_536, 0).rstrip(b"\0")
        self.agreed = Agreed(**json.loads(text)) if text else Agreed()

    def _inherit(self) -> set[int]:
        """Requests that any worker before this one may have executed: one may be killed before it gets to them."""
        words = [each for (each,) in _COUNT.iter_unpack(self._intents[:])]
        inherited = [each for each in words[MOST_THREADS:] if each]
        new = [each for each in words[:MOST_THREADS] if each and each not in inherited]
        kept = (new + inherited)[:_INHERITED]
        self._intents[MOST_THREADS * _COUNT.size :] = b"".join(
            _COUNT.pack(each) for each in kept + [0] * (_INHERITED - len(kept))
        )
        return set(kept)

    def save_agreed(self) -> None:
        text = json.dumps(asdict(self.agreed)).encode()
        os.pwrite(self.files.agreed, text.ljust(4096, b"\0"), 0)

    def descriptors(self) -> set[int]:
        """All that are known by number; whatever else is open belonged to a worker that is gone."""
        found = {self.agreed.device, self.agreed.root, *self.agreed.clones, *asdict(self.files).values()}
        found.update(record.fd for record in self.nodes.records())
        found.update(record.fd for record in self.handles.records().values())
        return found

    def note_intent(self, thread: int, unique: int) -> None:
        _COUNT.pack_into(self._intents, thread * _COUNT.size, unique)

    def unmap(self) -> None:
        self._intents.close()
        self.nodes.unmap()
        self.handles.unmap()
        self.heap.unmap()


def make_state_files() -> StateFiles:
    files = StateFiles(*(os.memfd_create(f"paddleflow {name}") for name in StateFiles.__dataclass_fields__))
    os.ftruncate(files.intents, (MOST_THREADS + _INHERITED) * _COUNT.size)
    return files
