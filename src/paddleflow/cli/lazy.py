"""Commands that accept `--output` in both places, groups that import their commands when called, and shared options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from paddleflow.sdk.records import Page

FORMATS = ("table", "wide", "json", "yaml", "name", "text", "compat")
MOST_ROWS = 1_000_000  #: that --all collects
PAGE = 500  #: rows of one request of --all

T = TypeVar("T")


class LazyCommand(NamedTuple):
    """A command that is imported when it is called; `help` is its line in the list of commands."""

    target: str  #: "module:attribute", below paddleflow.cli
    help: str


class Command(click.Command):
    """A command that takes `--output` (or `-o`, or `--json`) also after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {name for param in self.params for name in param.opts}
        names = [name for name in ("-o", "--output") if name not in taken]
        self.params += [
            click.Option(
                names,
                type=click.Choice(FORMATS),
                expose_value=False,
                callback=_choose,
                allow_from_autoenv=False,
                metavar="FORMAT",
                help=f"Output format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
            ),
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                callback=lambda context, param, value: _choose(context, param, "json" if value else None),
                allow_from_autoenv=False,
                help="Same as --output json.",
            ),
        ]


def _choose(context: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and context.obj is not None:
        context.obj.output = value


class Group(click.Group):
    """A group; the commands in `lazy` are imported when they are called."""

    command_class = Command

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self.lazy:
            module, _, attribute = self.lazy[cmd_name].target.partition(":")
            self.add_command(getattr(import_module(f"paddleflow.cli.{module}"), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but lazy commands are suggested too."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from paddleflow.base.names import nearest

            ctx.fail(f"No such command {name!r}, {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing the lazy ones."""
        rows = []
        for name in self.list_commands(ctx):
            lazy = self.lazy.get(name)
            rows.append((name, lazy.help if lazy else self.commands[name].get_short_help_str(limit=90)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def group(*, help: str, lazy: Mapping[str, LazyCommand] | None = None) -> Group:
    """A group of commands."""
    return Group(help=help, lazy=lazy)


# ---- options that several commands share ----------------------------------------------------------------------------


def pairs(context: click.Context, param: click.Parameter, value: object) -> dict[str, str] | None:
    """Callback of options that take ``a=b,c=d``, once or repeated. None if not given."""
    if value is None or value == ():
        return None
    words = [word for part in (value if isinstance(value, tuple) else (value,)) for word in str(part).split(",")]
    return _split(words)


def pair_each(context: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str] | None:
    """Callback of repeatable options that take one ``name=value`` each; the value may hold commas."""
    return _split(value) if value else None


def _split(words: tuple[str, ...] | list[str]) -> dict[str, str]:
    for word in words:
        if not word.partition("=")[1] or not word.partition("=")[0]:
            raise click.BadParameter(f"{word!r} is not of the form name=value")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def byte_count(context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Callback of options that take a number of bytes, such as 50M or 20Gi. None if not given."""
    from paddleflow.base.quantity import parse_quantity

    if value is None:
        return None
    try:
        found = parse_quantity(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if found < 1:
        raise click.BadParameter(f"{value!r} is less than 1 byte")
    return found


def listed(context: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    """Callback of options that take a comma-separated list. None if not given."""
    return None if value is None else [word for part in value.split(",") if (word := part.strip())]


class Paging(NamedTuple):
    """Which part of a list to fetch."""

    size: int
    marker: str | None
    everything: bool

    def collect(self, fetch: Callable[[int, str | None], Page[T]]) -> tuple[list[T], str | None]:
        """One page and the marker of the next one; with --all every page, and None."""
        page = fetch(PAGE if self.everything else self.size, self.marker)
        found = list(page)
        while self.everything and page.next_marker is not None and len(found) < MOST_ROWS:
            page = fetch(PAGE, page.next_marker)
            found += page
        return found, page.next_marker


def paging(size: str, default: int, *, marker: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`-m` (`size` is its long name), `-mk` and `--all`; the command gets them as `paging`."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(*args: Any, size: int, marker: str | None = None, everything: bool, **kwargs: Any) -> None:
            function(*args, paging=Paging(size, marker, everything), **kwargs)

        options = [
            click.option("--all", "everything", is_flag=True, help="List everything, page by page."),
            click.option(
                "-m", f"--{size}", "size", type=int, default=default, show_default=True, help="Maximum number to list."
            ),
        ]
        if marker:
            options.insert(
                1,
                click.option(
                    "-mk", "--marker", help="Continue after the previous page, from the marker it ended with."
                ),
            )
        for option in options:
            call = option(call)
        return call

    return add
