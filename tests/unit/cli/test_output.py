"""Tables that fit, values for people, and the formats for programs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from paddleflow.cli import output
from paddleflow.cli.errors import report
from paddleflow.cli.session import Session, note
from paddleflow.errors import Fault, Invalid

HEADERS = ["name", "cpu", "scalarResources"]
ROWS: list[list[object]] = [["小队", 4, {"nvidia.com/gpu": "1"}], ["b", None, {}], ["two\nlines", 0.5, ("x",)]]


def test_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows(Session("compat"), HEADERS, ROWS)
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
    output.show_rows(Session("json"), HEADERS, ROWS)
    assert json.loads(capsys.readouterr().out) == [
        {"name": "小队", "cpu": 4, "scalarResources": {"nvidia.com/gpu": "1"}},
        {"name": "b", "cpu": None, "scalarResources": {}},
        {"name": "two\nlines", "cpu": 0.5, "scalarResources": ["x"]},
    ]


def test_text_is_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows(Session("text"), HEADERS, ROWS)
    assert capsys.readouterr().out == '小队\t4\t{"nvidia.com/gpu": "1"}\nb\t\t\ntwo lines\t0.5\t["x"]\n'


@pytest.mark.parametrize(("format", "wanted"), [("table", "nothing here\n"), ("json", "[]\n"), ("text", "")])
def test_no_rows(capsys: pytest.CaptureFixture[str], format: str, wanted: str) -> None:
    output.show_rows(Session(format), HEADERS, [], empty="nothing here")
    assert capsys.readouterr().out == wanted


def test_an_empty_grid_has_its_headers() -> None:
    assert output.grid(["a"], []) == "+---+\n| a |\n+===+"


VALUES = st.none() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2) | st.booleans()


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), max_size=4)))
def test_every_line_of_a_grid_is_as_wide(rows: list[list[object]]) -> None:
    headers = [f"h{n}" for n in range(len(rows[0]) if rows else 1)]
    lines = output.grid(headers, rows).split("\n")
    assert len({output.width(line) for line in lines}) == 1


@given(st.sampled_from(["compat", "json", "text"]), st.lists(VALUES, min_size=1, max_size=4))
def test_no_value_breaks_any_format(format: str, row: list[object]) -> None:
    if format == "compat":
        output.grid(["h"] * len(row), [row])
    else:
        output.line(Session(format), [f"h{n}" for n in range(len(row))], row, row)


@pytest.mark.parametrize(
    ("amount", "wanted"),
    [
        ("24684100Ki", "23.5 GiB"),
        ("1Gi", "1 GiB"),
        (21, "21 B"),
        ("0", "0 B"),
        ("1500M", "1.4 GiB"),
        ("x", "x"),
        ("200Gi", "200 GiB"),
    ],
)
def test_sizes_for_people(amount: object, wanted: str) -> None:
    assert output.size(amount) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(5, "5s"), (65, "1m5s"), (600, "10m"), (3700, "1h1m"), (30_000, "8h"), (90_000, "1d1h"), (400_000, "4d")],
)
def test_durations_for_people(seconds: float, wanted: str) -> None:
    assert output.short_duration(seconds) == wanted


def test_a_table_fits_the_terminal() -> None:
    rows = [["job-6afbf4d02ba6c48ef9e95063", "a-very-long-name-of-a-job-that-goes-on", "default-queue", "running"]]
    drawn = output.table(["ID", "NAME", "QUEUE", "STATUS"], rows, [False, True, True, False], 64)
    assert drawn == snapshot("""\
ID                            NAME         QUEUE         STATUS
job-6afbf4d02ba6c48ef9e95063  a-very-lon…  default-que…  running\
""")
    assert max(output.width(line) for line in drawn.splitlines()) <= 64


@given(st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=4), st.integers(40, 120))
def test_no_line_of_a_table_is_too_wide(rows: list[list[str]], most: int) -> None:
    drawn = output.table(["A", "B", "C"], [[output.cell(text) for text in row] for row in rows], [True] * 3, most)
    assert all(output.width(line) <= most for line in drawn.split("\n"))


def test_nested_values_are_no_json() -> None:
    assert output.cell({"a": 1, "b": ["x", "y"]}) == "a=1, b=x, y"
    assert output.amounts({"cpu": "2", "mem": "1Gi", "scalarResources": {"nvidia.com/gpu": "1"}, "memory": "0"}) == (
        "cpu 2, memory 1 GiB, nvidia.com/gpu 1"
    )


def test_facts_are_aligned() -> None:
    assert output.describe({"Name": "q", "Used by": ["a", "b"], "Nothing": "", "Env": {"A": 1, "B": 2}}) == snapshot("""\
Name:     q
Used by:  a, b
Env:      A=1
          B=2\
""")


def test_control_characters_of_others_never_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    wicked = "evil\x1b[2J\x9b31mname\x07\r\n"
    report(Invalid.of([Fault("name", wicked), Fault("other", wicked)]))
    said = capsys.readouterr().err
    shown = [said, output.table(["NAME"], [[wicked]], [True], None), output.describe({"name": wicked})]
    shown += [output.cell(wicked), output.grid(["name"], [[wicked]])]
    note(wicked)
    shown.append(capsys.readouterr().err)
    assert json.loads(output.as_json({"name": wicked})) == {"name": wicked}
    assert "\\u009b" in output.as_json({"name": wicked})
    for text in shown:
        assert "evil\\x1b[2J\\x9b31mname" in text
        assert not set(text) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
