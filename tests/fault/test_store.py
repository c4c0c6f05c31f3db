"""The store when things break: killed processes, full disks, lost servers, the n-th failing operation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Unavailable
from paddleflow.store import events, leases
from paddleflow.store.connection import FILE, open_database
from paddleflow.store.database import Database, Tx
from paddleflow.store.postgres import open_postgres
from paddleflow.store.statements import compose, parse
from tests.fault.cutting_proxy import cutting_proxy
from tests.fault.faulty import FaultyDatabase, InjectedFault, run_until_no_fault
from tests.postgres_server import PostgresServer

SQL = parse(
    "test_store.py",
    """
-- name: names
-- All counters.
select name from counters

-- name: add
-- A new counter.
insert into counters (name, value) values (:name, 0)

-- name: fill
-- A long text.
insert into events (kind, subject, at, type, data) values ('job', 'fill', 0, 'fill', :data)
""",
)
DEADLINE = 60.0


def add(tx: Tx, name: str) -> None:
    tx.run(SQL["add"], name=name)


async def names(database: Database) -> set[str]:
    return {row["name"] for row in await database.read(lambda tx: tx.all(SQL["names"]))}


WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from paddleflow.store.connection import open_database
    from paddleflow.store.statements import compose

    SQL = compose("insert into counters (name, value) values (:name, 0)")

    async def main():
        database = await open_database("", Path(sys.argv[1]))
        async def write(writer):
            number = 0
            while True:
                name = f"{writer}-{number}"
                await database.write(lambda tx: tx.run(SQL, name=name))
                sys.stdout.write(name + "\\n")
                sys.stdout.flush()
                number += 1
        async with asyncio.TaskGroup() as group:
            for writer in range(8):
                group.create_task(write(writer))

    asyncio.run(main())
    """
)


@pytest.mark.parametrize("lines", [1, 50, 400])
async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, lines: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        acknowledged += child.stdout.read().splitlines(keepends=True)
    said = {line.strip() for line in acknowledged if line.endswith("\n")}
    assert len(said) >= lines
    database = await open_database("", tmp_path)
    stored = await names(database)
    await database.close()
    assert said <= stored
    assert len(stored - said) <= 8  # each of the eight writers had at most one under way


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 2 MB where that may be mounted, otherwise a bound on the size of files."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False, capture_output=True
    )
    if mounted.returncode == 0:
        try:
            yield
        finally:
            subprocess.run(["umount", folder], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_is_unavailable_and_the_database_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with small_disk(folder):
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(2**20))
        database = await open_database("", folder)
        stored: set[str] = set()
        refusals: list[Unavailable] = []

        def fill(tx: Tx, name: str) -> None:
            add(tx, name)
            tx.run(SQL["fill"], data="x" * 20_000)

        async def try_one(name: str) -> bool:
            try:
                await database.write(fill, name)
            except Unavailable as error:
                refusals.append(error)
                return False
            stored.add(name)
            return True

        full = False
        for batch in range(200):
            async with asyncio.TaskGroup() as group:
                tries = [group.create_task(try_one(f"{batch}-{number}")) for number in range(4)]
            if full := not all(task.result() for task in tries):
                break
        assert full
        for error in refusals:
            assert "full" in error.message or "I/O" in error.message
            assert error.hint
            assert error.__cause__ is not None
        assert await names(database) == stored  # it can still be read, and nothing refused was stored
        ballast.unlink()
        if os.path.ismount(folder):
            await database.write(fill, "later")
            stored.add("later")
        assert await names(database) == stored
        await database.close()
        again = await open_database("", folder)
        assert await names(again) == stored
        await again.close()


async def test_a_transaction_that_sqlite_gives_up_takes_nobody_else_with_it(tmp_path: Path) -> None:
    """As it does on some faults of the disk; here it is told to."""
    database = await open_database("", tmp_path)
    give_up = compose("insert or rollback into counters (name, value) values (:name, 0)")

    def last(tx: Tx, name: str) -> None:
        tx.run(give_up, name=name)

    await database.write(add, "there")
    results = await asyncio.gather(
        *(database.write(add, f"{number}") for number in range(5)),
        database.write(last, "there"),
        *(database.write(add, f"{number}") for number in range(5, 10)),
        return_exceptions=True,
    )
    assert [result for result in results if result is not None] == [results[5]]
    assert isinstance(results[5], Conflict)
    assert await names(database) == {"there", *"0123456789"}
    await database.close()


async def test_a_file_locked_by_another_program_is_waited_for(tmp_path: Path) -> None:
    hold = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('begin immediate');"
        "print('held', flush=True); sys.stdin.readline(); c.execute('rollback')"
    )
    database = await open_database("", tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", hold, tmp_path / FILE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(database.write(add, "a"))
            assert await names(database) == set()  # readers do not wait
            assert not waiting.done()
            child.stdin.write("go\n")
            child.stdin.flush()
    assert await names(database) == {"a"}
    await database.close()


async def until_available(database: Database, name: str) -> int:
    """Write until it works; how often it did not."""
    deadline = time.monotonic() + DEADLINE
    for failures in range(10_000):
        try:
            await database.write(add, name)
        except Unavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        else:
            return failures
    raise AssertionError


@pytest.mark.postgres
async def test_a_lost_server_is_unavailable_and_comes_back(postgres_server: PostgresServer, tmp_path: Path) -> None:
    database = await open_database(postgres_server.create(), tmp_path)
    await database.write(add, "before")
    postgres_server.stop(signal.SIGINT)
    try:
        with pytest.raises(Unavailable, match="PostgreSQL"):
            await database.write(add, "meanwhile")
        with pytest.raises(Unavailable, match="PostgreSQL"):
            await names(database)
    finally:
        postgres_server.start()
    await until_available(database, "after")
    assert await names(database) == {"before", "after"}
    await database.close()


@pytest.mark.postgres
@pytest.mark.parametrize("moment", [b"commit\0", b"insert into counters", b"begin isolation level read committed"])
@pytest.mark.parametrize("deliver", [True, False])
async def test_a_line_cut_at_any_moment_of_a_write_loses_and_doubles_nothing(
    postgres_server: PostgresServer, tmp_path: Path, moment: bytes, deliver: bool
) -> None:
    """Above all during the commit, when only the server knows whether it happened."""
    url = postgres_server.create_schema()
    with cutting_proxy(postgres_server.port) as proxy:
        database = await open_database(url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), tmp_path)
        proxy.deliver = deliver
        proxy.cut_at = moment
        await asyncio.gather(*(database.write(add, f"{number}") for number in range(10)))
        assert proxy.cuts == 1
        assert await names(database) == {f"{number}" for number in range(10)}
        await database.close()


@pytest.mark.postgres
async def test_a_commit_whose_fate_nobody_knows_is_said(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """The line is cut while it commits, and again while its fate is asked for, after which the time is over."""
    url = postgres_server.create_schema()
    await (await open_database(url, tmp_path)).close()  # makes the tables
    with cutting_proxy(postgres_server.port) as proxy:
        database = open_postgres(url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), readers=1, settle=0.05)
        proxy.cut_at, proxy.cut_next = b"commit\0", b"pg_xact_status"
        with pytest.raises(Unavailable, match="may or may not have been stored"):
            await database.write(add, "a")
        await database.write(add, "b")
        assert await names(database) == {"a", "b"}
        await database.close()


@pytest.mark.postgres
async def test_cut_connections_lose_nothing_and_double_nothing(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """Backends are killed at random points while eight writers write; each write happens exactly once."""
    url = postgres_server.create()
    database = await open_database(url, tmp_path)
    name = url.rpartition("/")[2]
    kill = f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    stored: list[str] = []
    done = threading.Event()

    def cut() -> None:
        for _ in range(15):
            postgres_server.execute(kill)
        done.set()

    async def write(writer: int) -> None:
        number = 0
        while not done.is_set():
            # Cut even while connecting, a write may be refused. One done twice would be a Conflict.
            await until_available(database, f"{writer}-{number}")
            stored.append(f"{writer}-{number}")
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(cut))
        for writer in range(8):
            group.create_task(write(writer))
    assert await names(database) == set(stored)
    assert len(stored) == len(set(stored)) >= 8
    await database.close()


async def test_every_fault_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Also a test of `FaultyDatabase`: each of the scenario's operations fails once."""
    numbers = iter(range(1000))

    @contextlib.asynccontextmanager
    async def make() -> AsyncIterator[Database]:
        database = await open_database("", tmp_path / f"{next(numbers)}", durable=False)
        yield database
        await database.close()

    tripped: list[str] = []

    def transition(tx: Tx, token: int) -> None:
        leases.check(tx, "engine", token)
        add(tx, "a")
        events.append(tx, "job", "a", "queued", 1.0, {})

    async def scenario(database: FaultyDatabase) -> None:
        acknowledged = False
        try:
            token = await database.write(leases.acquire, "engine", "me", 1.0, 10.0)
            assert token is not None
            await database.write(transition, token)
            acknowledged = True
            await names(database)
        except InjectedFault:
            tripped.append(database.tripped)
        database.heal()
        rows = await names(database)
        log = await database.read(events.after, "job", "a", 0, 10)
        assert len(rows) == len(log)
        assert rows or not acknowledged

    assert await run_until_no_fault(make, scenario) == len(tripped)
    assert tripped == [
        *("acquire", "commit", "acknowledgement"),
        *("held", "add", "append", "commit", "acknowledgement"),
        "names",
    ]
