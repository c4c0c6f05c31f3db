"""Printing rows: as a grid for people, as JSON or tab-joined text for scripts.

The grid is that of existing scripts: headers as they know them, ``|`` between cells. JSON is a list of objects, header
to value. In JSON nothing else goes to stdout.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paddleflow.cli.session import Session

Rows = Sequence[Sequence[object]]


def show(session: Session, headers: Sequence[str], rows: Rows, *, empty: str = "") -> None:
    """Prints rows; `empty` is what a table says when there are none."""
    if session.output == "json":
        click.echo(as_json([dict(zip(headers, row, strict=True)) for row in rows]))
    elif session.output == "text":
        for row in rows:
            click.echo("\t".join(_flat(cell(value)) for value in row))
    elif rows or not empty:
        click.echo(grid(headers, rows))
    else:
        click.echo(empty)


def line(session: Session, headers: Sequence[str], row: Sequence[object]) -> str:
    """One row of something that goes on: a line of JSON, or of text."""
    if session.output == "json":
        return json.dumps(dict(zip(headers, row, strict=True)), ensure_ascii=False, default=_plain)
    return "\t".join(_flat(cell(value)) for value in row)


def marker(session: Session, value: str | None) -> None:
    """The last line of a list: where to go on, or None."""
    if session.output != "json":
        click.echo(f"marker: {value}")


def more(value: str | None, option: str) -> None:
    """Says that a list without markers was cut."""
    if value is not None:
        click.echo(f"hint: there are more; raise {option}", err=True)


def done(session: Session, message: str, **data: object) -> None:
    """Says that something was done: a sentence that scripts know, or the same as JSON."""
    click.echo(as_json({"message": message, **data}) if session.output == "json" else message)


def show_one(
    session: Session, headers: Sequence[str], row: Sequence[object], title: str, rest: dict[str, object]
) -> None:
    """One thing: its main row, and behind `title` the rest of it as JSON."""
    if session.output == "json":
        show(session, [*headers, *rest], [[*row, *rest.values()]])
        return
    show(session, headers, [row])
    if session.output == "table" and rest:
        click.echo(title)
        click.echo(as_json([rest]))


def as_json(data: object) -> str:
    return json.dumps(data, indent=4, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


def cell(value: object) -> str:
    """A value as text: nothing for None, JSON for what is nested."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_plain) if value else ""
    return str(value)


def _flat(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def width(text: str) -> int:
    """Columns that a terminal gives to `text`: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    wide = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(char) else wide.get(unicodedata.east_asian_width(char), 1) for char in text)


def grid(headers: Sequence[str], rows: Rows) -> str:
    """A table with lines around every cell; a cell may have several lines."""
    lines = [[cell(value).split("\n") for value in row] for row in rows]
    head = [[header] for header in headers]
    widths = [max(width(line) for row in [head, *lines] for line in row[column]) for column in range(len(headers))]

    def rule(char: str) -> str:
        return "+" + "+".join(char * (wide + 2) for wide in widths) + "+"

    def drawn(row: list[list[str]]) -> list[str]:
        height = max(len(cells) for cells in row)
        return [
            "|" + "|".join(f" {_padded(cells, at, wide)} " for cells, wide in zip(row, widths, strict=True)) + "|"
            for at in range(height)
        ]

    parts = [rule("-"), *drawn(head), rule("=")]
    for row in lines:
        parts += [*drawn(row), rule("-")]
    return "\n".join(parts)


def _padded(cells: list[str], at: int, wide: int) -> str:
    text = cells[at] if at < len(cells) else ""
    return text + " " * (wide - width(text))
