"""Rows as a grid, as JSON and as text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from paddleflow.cli import output
from paddleflow.cli.session import Session

HEADERS = ["name", "cpu", "scalarResources"]
ROWS: list[list[object]] = [["小队", 4, {"nvidia.com/gpu": "1"}], ["b", None, {}], ["two\nlines", 0.5, ("x",)]]


def test_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(Session("table"), HEADERS, ROWS)
    assert capsys.readouterr().out == snapshot(
        """\
+-------+-----+-------------------------+
| name  | cpu | scalarResources         |
+=======+=====+=========================+
| 小队  | 4   | {"nvidia.com/gpu": "1"} |
+-------+-----+-------------------------+
| b     |     |                         |
+-------+-----+-------------------------+
| two   | 0.5 | ["x"]                   |
| lines |     |                         |
+-------+-----+-------------------------+
"""
    )


def test_json_keeps_values(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(Session("json"), HEADERS, ROWS)
    assert json.loads(capsys.readouterr().out) == [
        {"name": "小队", "cpu": 4, "scalarResources": {"nvidia.com/gpu": "1"}},
        {"name": "b", "cpu": None, "scalarResources": {}},
        {"name": "two\nlines", "cpu": 0.5, "scalarResources": ["x"]},
    ]


def test_text_is_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(Session("text"), HEADERS, ROWS)
    assert capsys.readouterr().out == '小队\t4\t{"nvidia.com/gpu": "1"}\nb\t\t\ntwo lines\t0.5\t["x"]\n'


@pytest.mark.parametrize(("format", "wanted"), [("table", "nothing here\n"), ("json", "[]\n"), ("text", "")])
def test_no_rows(capsys: pytest.CaptureFixture[str], format: str, wanted: str) -> None:
    output.show(Session(format), HEADERS, [], empty="nothing here")
    assert capsys.readouterr().out == wanted


def test_an_empty_grid_has_its_headers() -> None:
    assert output.grid(["a"], []) == "+---+\n| a |\n+===+"


VALUES = st.none() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2) | st.booleans()


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), max_size=4)))
def test_every_line_of_a_grid_is_as_wide(rows: list[list[object]]) -> None:
    headers = [f"h{n}" for n in range(len(rows[0]) if rows else 1)]
    lines = output.grid(headers, rows).split("\n")
    assert len({output.width(line) for line in lines}) == 1


@given(st.sampled_from(["table", "json", "text"]), st.lists(VALUES, min_size=1, max_size=4))
def test_no_value_breaks_any_format(format: str, row: list[object]) -> None:
    if format == "table":
        output.grid(["h"] * len(row), [row])
    else:
        output.line(Session(format), [f"h{n}" for n in range(len(row))], row)
