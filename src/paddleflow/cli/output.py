"""Printing what the API answers, in the format that `--output` names.

`table` and `wide` are for people: they fit the terminal, show ages and sizes, never raw JSON. `json` and `yaml` print the
API's own objects, one shape per kind, with `id` as the name of every identifier. `name` prints what other commands take as
an argument. `compat` prints the tables of the original PaddleFlow client, and `text` their cells with tabs between.
Data goes to stdout, hints to stderr. Called by every command.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from paddleflow.base.text import printable
from paddleflow.errors import Unavailable

if TYPE_CHECKING:
    from paddleflow.cli.session import Session

T = TypeVar("T")
Rows = Sequence[Sequence[object]]
NARROWEST = 8  #: columns that a flexible cell keeps when a table must shrink
_C1 = {code: f"\\u{code:04x}" for code in range(127, 160)}  #: control characters that JSON does not escape
MACHINE = frozenset({"json", "yaml"})
UNREACHABLE = 60.0  #: seconds that --watch goes on without an answer of the server


class Column(NamedTuple, Generic[T]):
    """A column of a table; `compat` is its header in the original client's tables. An empty header: not shown there."""

    value: Callable[[T], object]
    table: str = ""
    compat: str = ""
    wide: bool = False  #: only with -o wide
    flexible: bool = False  #: may be cut so that the table fits the terminal


class Kind(NamedTuple, Generic[T]):
    """How things of one kind are printed."""

    plural: str  #: "jobs"
    name: Callable[[T], str]  #: what other commands take as an argument
    data: Callable[[T], object]  #: the API's object
    columns: Sequence[Column[T]]
    empty: str = ""  #: what the original client prints for an empty list


# ---- lists and single objects ---------------------------------------------------------------------------------------


def show_list(session: Session, kind: Kind[T], found: Iterable[T], marker: str | None = None) -> None:
    """Prints a list; `marker` says where the next page begins, if there is one."""
    rows = list(found)
    if session.output in MACHINE:
        print_data(session, [kind.data(row) for row in rows])
    elif session.output == "name":
        for row in rows:
            click.echo(printable(kind.name(row)))
    elif session.output in {"compat", "text"}:
        _show_original(session, kind, rows)
        return
    elif rows:
        wide = session.output == "wide"
        columns = [column for column in kind.columns if column.table and (wide or not column.wide)]
        cells = [[cell(column.value(row)) for column in columns] for row in rows]
        flexible = [column.flexible for column in columns]
        click.echo(table([column.table for column in columns], cells, flexible, None if wide else screen_width()))
    else:
        click.echo(f"No {kind.plural} found.", err=True)
    if marker:
        click.echo(f"hint: more {kind.plural} follow; use --all, or --marker {marker}", err=True)


def _show_original(session: Session, kind: Kind[T], rows: Sequence[T]) -> None:
    columns = [column for column in kind.columns if column.compat]
    show_rows(
        session,
        [column.compat for column in columns],
        [[column.value(row) for column in columns] for row in rows],
        empty=kind.empty,
    )


def show_marker(session: Session, marker: str | None) -> None:
    """The last line of the original client's lists."""
    if session.output in {"compat", "text"}:
        click.echo(f"marker: {marker}")


def show_one(
    session: Session, kind: Kind[T], found: T, facts: Mapping[str, object], original: tuple[str, Mapping[str, object]]
) -> None:
    """Prints one thing: `facts` for people; `original` is the title and the JSON that `compat` has below the row."""
    title, rest = original
    if session.output in MACHINE:
        print_data(session, kind.data(found))
    elif session.output == "name":
        click.echo(kind.name(found))
    elif session.output in {"compat", "text"}:
        _show_original(session, kind, [found])
        if session.output == "compat" and title:
            click.echo(title)
            click.echo(as_json([rest]))
    else:
        click.echo(describe(facts))


def show_rows(session: Session, headers: Sequence[str], rows: Rows, *, empty: str = "") -> None:
    """Prints rows that are no objects of the API, such as measurements; headers are the keys of JSON, the first is the name."""
    if session.output in MACHINE:
        print_data(session, [dict(zip(headers, row, strict=True)) for row in rows])
    elif session.output == "name":
        for row in rows:
            click.echo(cell(row[0]))
    elif session.output == "text":
        for row in rows:
            click.echo("\t".join(_flat(original_cell(value)) for value in row))
    elif not rows and empty:
        click.echo(empty)
    elif session.output == "compat":
        click.echo(grid(headers, rows))
    else:
        width = None if session.output == "wide" else screen_width()
        upper = [header.upper() for header in headers]
        click.echo(table(upper, [[cell(value) for value in row] for row in rows], [True] * len(headers), width))


def done(session: Session, message: str, name: str, data: Callable[[], object] | None = None) -> None:
    """Says that something was done: the sentence, the object afterwards (`data`, or its name alone), or its name."""
    if session.output in MACHINE:
        print_data(session, data() if data else {"id": name})
    elif session.output == "name":
        click.echo(printable(name))
    else:
        click.echo(printable(message))


def line(session: Session, headers: Sequence[str], row: Sequence[object], data: object) -> str:
    """One row of something that goes on: the API's object as a line of JSON, or cells with tabs between."""
    if session.output in MACHINE:
        return json.dumps(data, ensure_ascii=False, default=_plain)
    return "\t".join(_flat(original_cell(value)) for value in row)


def repeat(show: Callable[[], None], every: float = 2.0) -> None:
    """Shows something again and again until Ctrl-C; on a terminal in place. A restart of the server does not end it."""
    reached = time.monotonic()
    while True:
        if sys.stdout.isatty():
            click.clear()
        try:
            show()
            reached = time.monotonic()
        except Unavailable as error:
            if time.monotonic() - reached > UNREACHABLE:
                raise
            click.echo(printable(f"{error.message}; trying again"), err=True)
        sys.stdout.flush()
        time.sleep(every)


def print_data(session: Session, data: object) -> None:
    """An object of the API as JSON, or as YAML."""
    if session.output != "yaml":
        click.echo(as_json(data))
        return
    import yaml

    plain = json.loads(json.dumps(data, default=_plain))
    click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)


def as_json(data: object) -> str:
    text = json.dumps(data, indent=4, ensure_ascii=False, default=_plain)
    return text if text.isascii() else text.translate(_C1)


def with_id(raw: Mapping[str, Any], key: str, to: str = "id") -> dict[str, Any]:
    """The API's object with its identifier called `id`, and first, whatever the route calls it (`runID`)."""
    rest = {name: value for name, value in raw.items() if name not in {key, to}}
    return {to: raw.get(key, raw.get(to, "")), **rest}


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


# ---- values for people ----------------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """A value for people: `key=value` pairs and lists instead of JSON."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={cell(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell(inner) for inner in value)
    return _flat(str(value))


def original_cell(value: object) -> str:
    """A value as the original client prints it: nothing for None, JSON for what is nested."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_plain) if value else ""
    return str(value)


def count(number: int, noun: str) -> str:
    """A number of things: 1 file, 2 files."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(amount: object) -> str:
    """Bytes or a quantity for people: 24684100Ki → 23.5 GiB. What is no amount of bytes stays as it is."""
    from paddleflow.base.quantity import parse_quantity

    try:
        found = float(parse_quantity(amount if isinstance(amount, int | float) else str(amount)))
    except ValueError:
        return str(amount)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if found < 1024 or unit == "TiB":
            break
        found /= 1024
    return f"{found:.0f} {unit}" if unit == "B" or found >= 100 or found == int(found) else f"{found:.1f} {unit}"


def amounts(resources: Mapping[str, Any]) -> str:
    """Resources for people: cpu 2, memory 23.5 GiB, nvidia.com/gpu 1. What is zero is left out."""
    flat = {name: value for name, value in resources.items() if name not in {"name", "scalarResources"}}
    flat |= resources.get("scalarResources") or {}
    words = []
    for name, value in flat.items():
        shown = size(value) if name in {"mem", "memory"} else str(value)
        if shown not in {"", "0", "0 B"}:
            words.append(f"{'memory' if name == 'mem' else name} {shown}")
    return ", ".join(words)


def moment(text: str) -> float | None:
    """A time of the API (`YYYY-MM-DD HH:MM:SS` in local time, or RFC 3339) as seconds of the epoch."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def local_time(text: str) -> str:
    """A time of the API as every table shows it: `YYYY-MM-DD HH:MM:SS` in local time."""
    then = moment(text)
    return text if then is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))


def age(text: str) -> str:
    """How long ago a time of the API was: 5s, 12m, 3h, 4d."""
    then = moment(text)
    return "" if then is None else short_duration(max(time.time() - then, 0))


def elapsed(start: str, end: str) -> str:
    """The time between two times of the API; up to now if there is no end."""
    first, last = moment(start), moment(end)
    if first is None:
        return ""
    return short_duration(max((last if last is not None else time.time()) - first, 0))


def short_duration(seconds: float) -> str:
    """Seconds as kubectl shows them: 5s, 3m20s, 12m, 3h5m, 4d."""
    whole = int(seconds)
    for unit, letter, next_unit, next_letter, both_below in (
        (86400, "d", 3600, "h", 2), (3600, "h", 60, "m", 8), (60, "m", 1, "s", 10)
    ):  # fmt: skip
        if whole >= unit:
            rest = whole % unit // next_unit
            count = whole // unit
            return f"{count}{letter}{rest}{next_letter}" if rest and count < both_below else f"{count}{letter}"
    return f"{whole}s"


def describe(facts: Mapping[str, object]) -> str:
    """Facts below each other, the values aligned; what is empty is left out."""
    shown = {name: text for name, value in facts.items() if (text := _lines(value))}
    wide = max((width(name) for name in shown), default=0) + 2
    parts = []
    for name, text in shown.items():
        first, *more = text.split("\n")
        parts.append(f"{name}:{' ' * (wide - width(name))}{first}")
        parts += [f"{' ' * (wide + 1)}{each}" for each in more]
    return "\n".join(parts)


def _lines(value: object) -> str:
    if isinstance(value, str):
        return printable(value.rstrip("\n"))
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={cell(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        return "\n".join(cell(each) for each in value)
    return cell(value)


# ---- tables ---------------------------------------------------------------------------------------------------------


def screen_width() -> int | None:
    """Columns of the terminal; None where output is no terminal, so that nothing is cut in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], flexible: Sequence[bool], most: int | None) -> str:
    """Headers and rows in aligned columns; flexible ones are cut with … so that a line has at most `most` columns."""
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(width(row[at]) for row in [headers, *rows]) for at in range(len(headers))]
    while most is not None and sum(widths) + 2 * (len(widths) - 1) > most:
        candidates = [
            at for at in range(len(widths)) if flexible[at] and widths[at] > max(NARROWEST, width(headers[at]))
        ]
        if not candidates:
            break
        widest = max(candidates, key=lambda at: widths[at])
        widths[widest] -= 1
    return "\n".join(
        "  ".join(_padded(_cut(text, wide), wide) for text, wide in zip(row, widths, strict=True)).rstrip()
        for row in [headers, *rows]
    )


def _cut(text: str, most: int) -> str:
    if width(text) <= most:
        return text
    end = min(len(text), most - 1)  # no character is narrower than a column, but for combining ones
    while width(text[:end]) > most - 1:
        end -= 1
    return text[:end] + "…"


def _flat(text: str) -> str:
    return printable(text.replace("\t", " ").replace("\n", " "))


def width(text: str) -> int:
    """Columns that a terminal gives to `text`: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    wide = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(char) else wide.get(unicodedata.east_asian_width(char), 1) for char in text)


def _padded(text: str, wide: int) -> str:
    return text + " " * (wide - width(text))


def grid(headers: Sequence[str], rows: Rows) -> str:
    """The original client's table: a rule around every row; a cell may have several lines."""
    lines = [[original_cell(value).split("\n") for value in row] for row in rows]
    head = [[header] for header in headers]
    widths = [max(width(text) for row in [head, *lines] for text in row[column]) for column in range(len(headers))]

    def rule(char: str) -> str:
        return "+" + "+".join(char * (wide + 2) for wide in widths) + "+"

    def drawn(row: list[list[str]]) -> list[str]:
        height = max(len(cells) for cells in row)
        filled = [[*cells, *([""] * (height - len(cells)))] for cells in row]
        return [
            "|" + "|".join(f" {_padded(cells[at], wide)} " for cells, wide in zip(filled, widths, strict=True)) + "|"
            for at in range(height)
        ]

    parts = [rule("-"), *drawn(head), rule("=")]
    for row in lines:
        parts += [*drawn(row), rule("-")]
    return "\n".join(parts)
