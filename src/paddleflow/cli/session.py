"""What the commands of one call share: how to print, and the client, made when it is first needed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paddleflow.sdk.client import PaddleFlow


class Session:
    """The global options of a call."""

    def __init__(
        self,
        output: str = "table",
        config: Path | None = None,
        server: str | None = None,
        context: str | None = None,
    ) -> None:
        self.output = output
        self.config = config
        self.server = server
        self.context = context

    @cached_property
    def client(self) -> PaddleFlow:
        from paddleflow.sdk.client import connect

        # A person waits for the answer "it is not running", so this tries only once more.
        return connect(self.server, context=self.context, config=self.config, retries=1)


pass_session = click.make_pass_decorator(Session)


def note(message: str) -> None:
    """A word beside the data."""
    click.echo(message, err=True)
