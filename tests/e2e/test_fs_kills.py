"""A few seconds of `scripts/bench fs_kills`: what was fsynced outlasts kills of worker and supervisor, and its judge sees what is wrong."""

from __future__ import annotations

import pytest

from benchmarks.fs_kills import File, content, line, run_kills
from benchmarks.harness import Bench
from scripts.lib.mounts import why_not
from tests.s3_servers import seaweedfs


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_every_fsynced_version_outlasts_random_kills() -> None:
    with seaweedfs() as server:
        verdict = run_kills(Bench("fs_kills", ""), server, 12, seed=5)
    assert verdict.wrong == []
    assert verdict.versions > 0
    assert len(verdict.remounts) >= 2
    assert verdict.seconds >= 12


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (content("a", 3), ""),
        (content("a", 4), ""),
        (content("a", 2), "lost"),
        (content("a", 5), "lost"),
        (content("b", 3), "mixed"),
        (content("a", 3)[:-1], "mixed"),
        (content("a", 3) + b"x", "mixed"),
        (b"", "lost"),
        (None, "lost"),
    ],
)
def test_the_judge(found: bytes | None, word: str) -> None:
    assert File("a", begun=4, synced=3).judge(found)[0] == word


@pytest.mark.parametrize(("found", "word"), [(line(1) + line(2), ""), (line(1), "lost"), (line(2) + line(1), "mixed")])
def test_the_judge_of_lines(found: bytes, word: str) -> None:
    assert File("a.log", begun=2, synced=2).judge(found)[0] == word


def test_a_log_that_was_never_made_begins_anew() -> None:
    log = File("a.log", begun=1)
    assert log.judge(None) == ("", "")
    assert log.begun == 0
