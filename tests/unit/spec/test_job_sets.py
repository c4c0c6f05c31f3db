"""Reading submissions: the quick way says what the whole document says, and decodes what is alike once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.ids import new_job_id
from paddleflow.errors import Invalid
from paddleflow.spec.document import decode
from paddleflow.spec.job import DistributedJob, JobBatch, SingleJob
from paddleflow.spec.job_sets import AnyJob, JobSet, read_job_sets

ODD: Any = st.sampled_from([None, "", "a", "A", "x" * 513, 0, 1, 1.5, False, [], {}, "é"])
JOBS = st.lists(
    st.dictionaries(st.sampled_from(["id", "ID", "name", "Name", "command", "env", "port", "other"]), ODD, max_size=4),
    max_size=4,
)


def documents(job_sets: list[JobSet]) -> list[AnyJob]:
    """The jobs one by one, as they were asked for."""
    return [
        order.document.model_copy(update={"id": id, "name": name})
        for order in job_sets
        for id, name in order.identities
    ]


def outcome(read: Callable[[], list[AnyJob]]) -> object:
    """What comes of reading a body: the jobs, or what is wrong with it."""
    try:
        return [job.model_dump() for job in read()]
    except Invalid as error:
        return error.message, error.details


@given(JOBS, st.booleans())
def test_the_quick_way_reads_what_the_whole_document_says(jobs: list[dict[str, Any]], loose: bool) -> None:
    body = json.dumps({"jobs": jobs}).encode()
    quickly = outcome(lambda: documents(read_job_sets(JobBatch, body, ignore_unknown=loose)))
    assert quickly == outcome(lambda: list(decode(JobBatch, body, ignore_unknown=loose).jobs))


def test_an_id_that_is_there_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="is given twice"):
        read_job_sets(SingleJob, b'{"id": "a", "ID": ""}')


def test_jobs_that_follow_each_other_and_are_alike_are_one_order() -> None:
    jobs = [{"command": "a", "name": "1"}, {"id": "x", "command": "a"}, {"command": "b"}, {"command": "a"}]
    first, second, third = read_job_sets(JobBatch, json.dumps({"jobs": jobs}).encode())
    assert first.identities == [("", "1"), ("x", "")]
    assert (second.identities, third.identities) == ([("", "")], [("", "")])
    assert first.document is third.document
    assert first.key == third.key != second.key


def test_the_same_words_for_another_kind_of_job_are_not_alike() -> None:
    (single,) = read_job_sets(SingleJob, b'{"name": "n"}')
    (gang,) = read_job_sets(DistributedJob, b'{"name": "n", "framework": "paddle"}')
    assert (single.identities, gang.identities) == ([("", "n")], [("", "n")])
    assert single.key != gang.key


def test_a_large_document_is_not_remembered() -> None:
    (order,) = read_job_sets(SingleJob, json.dumps({"command": "x" * 5000, "id": "i"}).encode())
    assert order.key is None
    assert order.identities == [("i", "")]


def test_ids_sort_by_the_second_and_do_not_repeat() -> None:
    made = [new_job_id(1_700_000_000.5) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(len(each) == len("job-") + 24 for each in made)
    assert max(made) < new_job_id(1_700_000_001.0)
