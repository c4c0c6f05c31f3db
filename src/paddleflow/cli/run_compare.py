"""`paddleflow run graph` and `diff`: the graph of a run, and the differences between two runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from paddleflow.base.text import printable
from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, note, pass_session

FORMATS = ("mermaid", "svg", "json")
ENDINGS = {
    ".svg": "svg",
    ".json": "json",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",
    ".txt": "mermaid",
}
SIDE_BY_SIDE = 60  #: columns of what was and what is together that are printed as one line
LISTS = frozenset({"document", "fingerprint"})  #: all other lists of a difference are what was and what is


@click.command(cls=Command)
@click.argument("runid")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="Format. [default: by the suffix of the file, else mermaid]"
)
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="File to write. [default: standard output]")
@pass_session
def graph(session: Session, runid: str, format_: str | None, to: Path | None) -> None:
    """Print the graph of a run with the states of its steps as Mermaid, SVG or JSON.

    \b
    Examples:
      paddleflow run graph run-000001
      paddleflow run graph run-000001 --to run.svg
    """
    if format_ is None:
        format_ = ENDINGS.get(to.suffix) if to and to.suffix else "mermaid"
    if format_ is None:
        raise click.BadParameter(f"{to} has none of the suffixes {', '.join(ENDINGS)}; use --format", param_hint="--to")
    text = session.run(runid).graph(format_)
    if to is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        to.write_text(text, "utf-8")
        note(f"wrote {to}")


@click.command(cls=Command)
@click.argument("first")
@click.argument("second")
@pass_session
def diff(session: Session, first: str, second: str) -> None:
    """Compare two runs: parameters, documents, fingerprints of steps, durations.

    \b
    Example:
      paddleflow run diff run-000001 run-000002
    """
    found = session.run(first).diff(session.run(second).id)
    if session.machine:
        output.print_data(session, found)
        return
    lines = list(_lines(found))
    click.echo(printable("\n".join(lines)) if lines else f"{first} and {second} are equal")


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Each part that differs, indented below its name."""
    for name, value in found.items():
        if value not in (None, "", [], {}):
            yield from _shown({name: value})


def _shown(value: object) -> Iterator[str]:
    """A pair of plain values stands for what was and what is."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, list) and key not in LISTS:
                yield from _pair(key, *(output.original_cell(each) for each in inner))
            elif isinstance(inner, Mapping | list):
                yield f"{key}:"
                yield from (f"  {line}" for line in _shown(inner))
            else:
                yield f"{key}: {output.original_cell(inner)}"
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, Mapping):
                yield "  ".join(f"{key}={output.original_cell(each)}" for key, each in inner.items())
            else:
                yield output.original_cell(inner)
    else:
        yield from str(value).splitlines()


def _pair(key: str, before: str, after: str) -> Iterator[str]:
    """What was and what is, below each other if they are long; of texts with several lines only those that differ."""
    if "\n" not in before + after and output.width(before + after) <= SIDE_BY_SIDE:
        yield f"{key}: {before or '–'} → {after or '–'}"
        return
    yield f"{key}:"
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line[0] in "-+":
            yield f"  {line}"
