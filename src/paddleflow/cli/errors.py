"""Error messages on stderr: the error, each of its faults, and a hint. Light, because every command loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from paddleflow.base.text import printable
from paddleflow.errors import Invalid, PaddleFlowError


def report(error: PaddleFlowError) -> None:
    """Prints an error, each of its faults, and a hint."""
    several = len(error.details) > 1
    joined = "; ".join(str(fault) for fault in error.details)
    message = f"found {len(error.details)} errors" if several and error.message == joined else error.message
    click.echo(printable(f"error: {message}"), err=True)
    if several:
        for fault in error.details:
            click.echo(printable(f"  - {fault}" + (f" ({fault.hint})" if fault.hint else "")), err=True)
    if error.hint and not (several and any(fault.hint == error.hint for fault in error.details)):
        click.echo(printable(f"hint: {error.hint}"), err=True)
    if error.status >= 500 and error.request_id:
        click.echo(f"request id: {error.request_id}", err=True)


def each(ids: Sequence[str], act: Callable[[str], None]) -> None:
    """Calls `act` for each id. An error of one is printed and does not stop the others."""
    refused = 0
    for id in ids:
        try:
            act(id)
        except PaddleFlowError as error:
            if len(ids) == 1:
                raise
            report(error)
            refused += 1
    if refused:
        click.get_current_context().exit(1)


@contextmanager
def faults_of(file: Path | None) -> Iterator[None]:
    """Errors in a submitted document are printed with the name of its file, in the format that editors understand."""
    try:
        yield
    except Invalid as error:
        if file is None or not any(fault.where[:1].isdigit() for fault in error.details):
            raise
        placed = [replace(f, where=f"{file}:{f.where}") if f.where[:1].isdigit() else f for f in error.details]
        raise Invalid.of(placed, code=error.code) from error
