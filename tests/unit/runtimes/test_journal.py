"""Frames and journal of the keeper: any stream of lives folds, compacts and folds again to the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runtimes.local import frames
from paddleflow.runtimes.local.attempt import Attempt, parse, replay
from paddleflow.runtimes.local.journal import Journal

NAMES = st.sampled_from(["job-a.w-0.1", "job-b.w-0.1", "job-ü.w-0.1"])
MOMENTS = st.floats(1.0, 2e9)
PLANS = st.sampled_from([{"log": "/l", "word": "a"}, {"log": "/l", "word": "a", "port": 80, "groups": ["/g"]}])
LINES = st.one_of(
    st.tuples(st.just("keeper"), st.just(1), st.sampled_from(["boot-1", "boot-2"])),
    st.tuples(st.just("try"), NAMES, PLANS),
    st.tuples(st.just("run"), NAMES, st.integers(2, 99999), st.integers(0, 10**9), MOMENTS),
    st.tuples(st.just("ready"), NAMES, MOMENTS),
    st.tuples(st.just("stop"), NAMES, MOMENTS, st.just("stopped")),
    st.tuples(st.just("end"), NAMES, MOMENTS, st.none() | st.integers(0, 255), st.text(), MOMENTS, MOMENTS, st.just(1)),
    st.tuples(st.just("gone"), NAMES),
).map(list)


def shown(attempts: dict[str, Attempt]) -> dict[str, Any]:
    """What matters of each for a server and for the next keeper."""
    for attempt in attempts.values():
        attempt.finished = attempt.end is not None  # as `recovery` has it
    return {name: (attempt.lines(), attempt.events()) for name, attempt in attempts.items()}


@given(st.lists(LINES, max_size=40))
def test_the_fewest_lines_fold_into_the_same_lives(lines: list[list[Any]]) -> None:
    attempts = replay(lines)
    again = replay([line for attempt in attempts.values() for line in [["keeper", 1, ""], *attempt.lines()]])
    assert shown(again) == shown(attempts)


@given(st.lists(LINES, max_size=20), st.data())
def test_a_torn_journal_is_read_up_to_the_tear(lines: list[list[Any]], data: st.DataObject) -> None:
    text = b"".join(map(frames.line, lines))
    cut = data.draw(st.integers(0, len(text)))
    whole = text[:cut].count(b"\n")
    found = parse(text[:cut])
    assert found[:whole] == [list(line) for line in lines[:whole]]
    assert len(found) <= whole + 1


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=50)), max_size=8),
    st.integers(1, 40),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(messages: list[dict[str, Any]], size: int) -> None:
    stream = b"".join(map(frames.encode, messages))
    inbox = frames.Inbox()
    found = [m for i in range(0, len(stream), size) for m in inbox.feed(stream[i : i + size])]
    assert found == messages


def test_what_is_no_stream_of_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="not one of ours"):
        frames.Inbox().feed(b"GET / HTTP/1.1\r\n")


def test_a_line_that_does_not_fit_on_the_disk_is_as_never_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), "boot")
    journal.load()
    journal.write(["try", "a", {}])
    room = 5
    real = os.write

    def nearly_full(fd: int, data: bytes) -> int:
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:room])

    with monkeypatch.context() as full:
        full.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="no space left"):
            journal.write(["try", "b", {}])
        journal.add(["end", "a", 1.0, 0, "", None, None, None])
        assert not journal.flush()
        room = 0
        assert not journal.flush()
        with pytest.raises(OSError, match="no space left"):
            journal.write(["try", "c", {}])
    assert journal.flush()
    journal.close()
    words = [line[:2] for line in parse(path.read_bytes())]
    assert words == [["keeper", 1], ["try", "a"], ["end", "a"]]


def test_compaction_keeps_what_is_needed_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), "boot", compact_at=50)
    attempts = journal.load()
    for i in range(40):
        journal.write(["try", f"a{i}", {}])
        journal.add(["gone", f"a{i}"])
        journal.compact(attempts.values())
    journal.write(["try", "kept", {}])
    assert path.stat().st_size < 2000
    journal.close()
    assert list(Journal(str(path), "boot").load()) == ["kept"]


def test_a_line_after_a_torn_one_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'["keeper",1,"boot"]\n["try","a",{}]\n["try","b"')
    journal = Journal(str(path), "boot")
    assert list(journal.load()) == ["a"]
    journal.write(["try", "c", {}])
    journal.close()
    assert list(Journal(str(path), "boot").load()) == ["a", "c"]
