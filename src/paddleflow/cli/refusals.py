"""Refusals in words: what, every fault of it, and what to do. Light, because every command loads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from paddleflow.errors import Invalid, PaddleFlowError


def report(error: PaddleFlowError) -> None:
    """An error in words: what, every fault of it, and what to do."""
    several = len(error.details) > 1
    joined = "; ".join(str(fault) for fault in error.details)
    message = f"{len(error.details)} things are wrong" if several and error.message == joined else error.message
    click.echo(f"error: {message}", err=True)
    if several:
        for fault in error.details:
            click.echo(f"  - {fault}" + (f" ({fault.hint})" if fault.hint else ""), err=True)
    if error.hint and not (several and any(fault.hint == error.hint for fault in error.details)):
        click.echo(f"hint: {error.hint}", err=True)
    if error.status >= 500 and error.request_id:
        click.echo(f"request id: {error.request_id}", err=True)


def each(ids: Sequence[str], act: Callable[[str], None]) -> None:
    """Does something to each of several things: those that refuse are said, and the others still have their turn."""
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
    """Faults of a document that was sent are said with the name of its file, as editors and terminals know places."""
    try:
        yield
    except Invalid as error:
        if file is None or not any(fault.where[:1].isdigit() for fault in error.details):
            raise
        placed = [replace(f, where=f"{file}:{f.where}") if f.where[:1].isdigit() else f for f in error.details]
        raise Invalid.of(placed, code=error.code) from error
