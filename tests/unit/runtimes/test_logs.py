"""Logs of bounded size: what is left out, how it is said, and that positions stay true."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runtimes.local import log_gap, logs
from paddleflow.runtimes.local.log_gap import BLOCK, Gap
from paddleflow.runtimes.local.monitor import SOONEST, next_interval
from paddleflow.runtimes.memory import task_of
from paddleflow.settings import LocalSettings
from tests.patience import soon
from tests.runtime_scene import Scene, open_local, opened

LIMIT = 1 << 20
BOUNDED = LocalSettings(log_limit="1Mi")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(partial(open_local, settings=BOUNDED), tmp_path) as made:
        yield made


@given(st.integers(0, 1 << 40), st.integers(2 * BLOCK, 1 << 30))
def test_what_is_kept_is_bounded_and_is_both_ends(size: int, limit: int) -> None:
    gap = log_gap.wanted(size, limit)
    if gap is None:
        assert size <= limit + 2 * BLOCK
        return
    kept = gap.start + (size - gap.end)
    assert limit - 2 * BLOCK <= kept <= limit
    assert gap.start % BLOCK == gap.end % BLOCK == 0
    assert abs(gap.start - (size - gap.end)) <= 2 * BLOCK


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 60))
def test_reading_in_steps_gives_the_same_as_reading_at_once(step: int, start: int, length: int) -> None:
    """Whatever the step, each byte outside the gap comes once, and the notice exactly once."""
    text = bytes(range(65, 65 + 60))
    gap = Gap(start, min(start + length, 60), 10) if length and start < 60 else None
    with open_text(text) as fd:
        found, position = b"", 0
        while True:
            data, following = logs._read(fd, position, step, gap)
            if following == position:
                break
            found += data
            position = following
    if gap is None:
        assert found == text
    else:
        assert found == text[: gap.start] + logs.notice(gap, 0) + text[gap.end :]


class open_text:  # noqa: N801 - reads as a function
    """A file in memory with these bytes."""

    def __init__(self, text: bytes) -> None:
        self.fd = os.memfd_create("log")
        os.write(self.fd, text)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def test_a_reader_in_the_middle_of_what_was_cut_out_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * BLOCK + b"b" * 8 * BLOCK + b"c" * BLOCK)
    log_gap.cut(str(path), Gap(BLOCK, 9 * BLOCK, 2 * BLOCK))
    chunk = logs.read_chunk(str(path), 5 * BLOCK, 10)
    assert chunk.data == f"\n… {4 * BLOCK} bytes left out: the log limit is 8Ki …\n".encode() + b"c" * 10
    assert chunk.next_offset == 9 * BLOCK + 10
    assert path.stat().st_blocks * 512 <= 2 * BLOCK
    assert logs.read_chunk(str(path), -10, 100).data == b"c" * 10


@given(st.floats(SOONEST, 5), st.integers(0, 1 << 40), st.integers(0, 1 << 30), st.integers(0, 5000))
def test_the_next_interval_is_soon_when_a_log_grows_fast(interval: float, grown: int, room: int, running: int) -> None:
    seconds = next_interval(interval, grown, room, running)
    assert 0 < seconds <= 1 + running / 500
    if grown > 0:
        assert seconds <= max(interval * room / grown / 2, SOONEST)


async def test_a_flood_is_bounded_while_it_runs_and_said(scene: Scene) -> None:
    launch = scene.shell("one", "echo first; yes 0123456789abcde; echo never")
    await scene.runtime.start([launch])
    path = scene.log_path(launch)
    await soon(lambda: path.exists() and path.stat().st_size >= 200 * LIMIT)
    await scene.runtime.stop([launch.attempt], 0.0)
    await scene.end_of(launch)
    assert path.stat().st_blocks * 512 <= LIMIT + BLOCK
    found, position = b"", 0
    while (chunk := await scene.runtime.logs.read(task_of(launch.attempt), position, 1 << 18)).next_offset > position:
        found += chunk.data
        position = chunk.next_offset
    lines = found.splitlines()
    assert lines[0] == b"first"
    assert sum(b"bytes left out: the log limit is 1Mi" in line for line in lines) == 1
    assert len(found) <= LIMIT + 200
    assert position == path.stat().st_size
    assert b"\0" not in found


async def test_a_quick_flood_is_bounded_at_the_end(scene: Scene) -> None:
    launch = scene.shell("one", "head -c 3000000 /dev/zero | tr '\\0' x; echo last")
    assert (await scene.run(launch)).exit_code == 0
    assert scene.log_path(launch).stat().st_blocks * 512 <= LIMIT + BLOCK
    assert (await scene.runtime.logs.read(task_of(launch.attempt), -5, 100)).data == b"last\n"


NO_HOLES = """
import sys; sys.path.append(sys.argv[1])
from paddleflow.runtimes.local import keeper, log_gap
def cut(log, gap): raise OSError(95, "Operation not supported", log)
log_gap.cut = cut
keeper.main(sys.argv[2], int(sys.argv[3]))
"""


async def test_a_flood_where_holes_are_not_possible_ends_the_attempt(tmp_path: Path) -> None:
    without_holes = partial(open_local, keeper=(sys.executable, "-S", "-c", NO_HOLES), settings=BOUNDED)
    async with opened(without_holes, tmp_path) as scene:
        end = await scene.run(scene.shell("one", "yes"))
        assert end.exit_code == 128 + signal.SIGKILL
        assert end.message.startswith("log limit of 1Mi exceeded; this file system cannot")
