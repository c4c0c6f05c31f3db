"""What the keeper asks of the kernel for itself: its own turns are short, those of attempts as everybody's."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.keeper_scene import keeper_of
from tests.runtime_scene import open_local, opened

OWN = Path("/proc/self/sched")
RELEASE = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def turn_of(text: str) -> int:
    """Nanoseconds, from what /proc says of a process's scheduling."""
    return int(text.partition("se.slice")[2].split()[1])


@pytest.mark.skipif(
    RELEASE < (6, 12) or not OWN.exists() or "se.slice" not in OWN.read_text(),
    reason="this kernel does not know turns of different lengths, or does not tell them",
)
async def test_the_keeper_s_turns_are_short_and_those_of_attempts_are_not(tmp_path: Path) -> None:
    usual = turn_of(OWN.read_text())
    async with opened(open_local, tmp_path) as scene:
        assert (await scene.run(launch := scene.shell("one", "cat /proc/self/sched"))).exit_code == 0
        assert turn_of((await scene.log_of(launch)).decode()) == usual
        assert turn_of(Path(f"/proc/{keeper_of(tmp_path)}/sched").read_text()) < usual
