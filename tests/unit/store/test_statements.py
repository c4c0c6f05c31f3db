"""Statements in files: what is read, what is refused, and how each driver gets its spelling."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from paddleflow.jobs.model import ACTIVE, JobStatus
from paddleflow.store.migrations import packaged
from paddleflow.store.statements import FRAGMENTS, compose, load, parse


def one(body: str) -> tuple[str, str]:
    statement = parse("x.sql", f"-- name: it\n-- A sentence.\n{body}\n")["it"]
    return statement.sqlite, statement.postgres


def test_blocks_have_names_sentences_and_bodies() -> None:
    found = parse(
        "x.sql",
        "-- Words before the first block are for readers.\n\n-- name: a\n-- What it\n-- does.\nselect 1\n\nfrom x;\n"
        "-- name: b\n-- Another.\nselect 2\n",
    )
    assert list(found) == ["a", "b"]
    assert found["a"].sentence == "What it does."
    assert found["a"].sqlite == "select 1\nfrom x"
    assert found["b"].name == "b"


@pytest.mark.parametrize(
    ("sql", "postgres"),
    [
        ("select :a, :b_2, :a", "select %(a)s, %(b_2)s, %(a)s"),
        ("select :a::int", "select %(a)s::int"),
        ("select ':a', 'it''s :b', :c", "select ':a', 'it''s :b', %(c)s"),
        ("select 5 % 2, '100%', :a", "select 5 %% 2, '100%%', %(a)s"),
        ("select '12:30'", "select '12:30'"),
    ],
)
def test_parameters_are_spelled_for_each_driver(sql: str, postgres: str) -> None:
    assert one(sql) == (sql, postgres)


def test_a_block_for_one_engine_stands_in_for_the_plain_one() -> None:
    found = parse(
        "x.sql",
        "-- name: a\n-- Plain.\nselect 1\n-- name: a [postgres]\n-- Special.\nselect 2\n"
        "-- name: b [sqlite]\n-- Here.\nselect 3\n-- name: b [postgres]\n-- There.\nselect 4\n",
    )
    assert (found["a"].sqlite, found["a"].postgres) == ("select 1", "select 2")
    assert (found["b"].sqlite, found["b"].postgres) == ("select 3", "select 4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: A\n-- S.\nselect 1\n", "x.sql:1: expected '-- name: some_name'"),
        ("\n-- name: a [mysql]\n-- S.\nselect 1\n", "x.sql:2: expected"),
        ("-- name: a\nselect 1\n", "a needs a sentence and a statement"),
        ("-- name: a\n-- Only words.\n", "a needs a sentence and a statement"),
        ("-- name: a\n-- S.\nselect 1\n-- name: a\n-- S.\nselect 1\n", "x.sql:4: a is there twice"),
    ],
)
def test_a_block_that_breaks_the_rules_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        parse("x.sql", text)


def test_composed_statements_are_spelled_too() -> None:
    assert compose("select :a").postgres == "select %(a)s"


def test_all_files_of_the_store_can_be_loaded() -> None:
    files = [entry.name for entry in resources.files("paddleflow.store").iterdir() if entry.name.endswith(".sql")]
    assert files
    for file in files:
        assert load("paddleflow.store", file)


def test_fragments_are_the_same_words_everywhere() -> None:
    statements = parse(
        "a.sql", "-- name: active\n-- Those.\nselect id from jobs where status in $ACTIVE and status not in $WAITING"
    )
    words = statements["active"].sqlite
    assert (
        words == f"select id from jobs where status in {FRAGMENTS['ACTIVE']} and status not in {FRAGMENTS['WAITING']}"
    )
    with pytest.raises(ValueError, match=r"a\.sql:1: \$NOTHING is not a fragment, there are ACTIVE, WAITING"):
        parse("a.sql", "-- name: one\n-- One.\nselect 1 from jobs where status in $NOTHING")


def test_fragments_and_the_index_of_active_jobs_follow_the_states_of_a_job() -> None:
    assert set(re.findall(r"'(\w+)'", FRAGMENTS["ACTIVE"])) == ACTIVE
    assert set(re.findall(r"'(\w+)'", FRAGMENTS["WAITING"])) == {JobStatus.INIT, JobStatus.PENDING}
    (jobs,) = [migration for migration in packaged() if migration.name == "jobs"]
    assert f"on jobs (queue, status) where status in {FRAGMENTS['ACTIVE']};" in jobs.text
