"""The bounded file of samples: it covers a whole life, keeps its ends, and its counters never fall."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.runtimes import sample_history
from paddleflow.runtimes.log_store import Sample
from paddleflow.runtimes.sample_history import Header, decode, encode, halve, is_full, step

COUNTER = st.integers(0, 1000)
STEPS = st.tuples(st.floats(0.001, 100), st.floats(0, 100), st.integers(0, 1 << 50), COUNTER, COUNTER | st.none())


FEW = 8  #: records


def lives(steps: list[tuple[float, float, int, int, int | None]]) -> list[Sample]:
    """Samples whose moments and counters grow."""
    samples, at, cpu, read = [], 0.0, 0.0, 0
    for passed, used, memory, more, unknown in steps:
        at, cpu, read = at + passed, cpu + used, read + more
        samples.append(Sample(at, cpu, memory, disk_read=read, disk_usage=unknown))
    return samples


def push(header: Header | None, records: list[Sample], sample: Sample) -> tuple[Header, list[Sample]]:
    if header is not None and is_full(header, FEW):
        header, records = halve(header, records)
    header, index, record = step(header, records[-1] if records else None, sample)
    return header, [*records[:index], record]


@given(st.lists(STEPS, min_size=1, max_size=200))
def test_any_life_in_a_bounded_number_of_records(steps: list[tuple[float, float, int, int, int | None]]) -> None:
    samples = lives(steps)
    header: Header | None = None
    records: list[Sample] = []
    for sample in samples:
        header, records = push(header, records, sample)
        assert header.count == len(records) <= FEW
    assert header is not None
    assert records[0] == samples[0]
    assert header.last == samples[-1]
    assert records[-1].at == samples[-1].at
    assert max(record.memory for record in records) == max(sample.memory for sample in samples)
    assert {record.at for record in records} <= {sample.at for sample in samples}
    for before, after in itertools.pairwise(records):
        assert before.at < after.at
        assert before.cpu_seconds <= after.cpu_seconds
        assert (before.disk_read or 0) <= (after.disk_read or 0)
    assert decode(encode(header, records)) == (header, records)


@given(st.lists(STEPS, min_size=64, max_size=200))
def test_no_part_of_a_life_is_without_records(steps: list[tuple[float, float, int, int, int | None]]) -> None:
    """Each record but the last stands for the same number of samples."""
    samples = lives(steps)
    header: Header | None = None
    records: list[Sample] = []
    for sample in samples:
        header, records = push(header, records, sample)
    assert header is not None
    order = {sample.at: index for index, sample in enumerate(samples)}
    places = [order[record.at] for record in records]
    assert {after - before for before, after in itertools.pairwise(places[:-1])} <= {header.stride}
    assert places[-1] - places[-2] == header.filled


def test_the_file_is_what_the_pure_functions_say(tmp_path: Path) -> None:
    path = str(tmp_path / "log.stats")
    header: Header | None = None
    records: list[Sample] = []
    assert sample_history.read(path) == []
    for i in range(100):
        sample = Sample(float(i), i / 2, 100 - i, disk_read=i, net_sent=None)
        header, records = push(header, records, sample)
        sample_history.append(path, sample, FEW)
        assert decode(Path(path).read_bytes()) == (header, records)
        assert sample_history.read(path)[-1] == sample
        assert sample_history.read(path)[0].at == 0.0
    assert Path(path).stat().st_size <= 100 + FEW * 72
    assert [file.name for file in tmp_path.iterdir()] == ["log.stats"]


def test_a_file_that_is_not_ours_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.stats"
    path.write_bytes(b"something else")
    assert sample_history.read(str(path)) == []
    sample_history.append(str(path), Sample(1.0, 2.0, 3))
    assert sample_history.read(str(path)) == [Sample(1.0, 2.0, 3)]
