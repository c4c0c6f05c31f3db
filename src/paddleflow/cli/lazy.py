"""Commands that know `--output` in both places, and groups that import their commands when these are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

FORMATS = ("table", "json", "text")


class Late(NamedTuple):
    """A command that is imported when it is called; `help` is its line in the list of commands."""

    target: str  #: "module:attribute", below paddleflow.cli
    help: str


class Command(click.Command):
    """A command that takes `--output` (or `-o`, or `--json`) also behind its name, where people look for it."""

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
                help="How to print: table, json or text.",
            ),
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                callback=lambda context, param, value: _choose(context, param, "json" if value else None),
                allow_from_autoenv=False,
                help="Short for --output json.",
            ),
        ]


def _choose(context: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and context.obj is not None:
        context.obj.output = value


class Group(click.Group):
    """A group; the commands in `late` are imported when they are called."""

    command_class = Command

    def __init__(self, *args: Any, late: Mapping[str, Late] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.late = late or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self.late:
            module, _, attribute = self.late[cmd_name].target.partition(":")
            self.add_command(getattr(import_module(f"paddleflow.cli.{module}"), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but the nearest name is looked for among those that come late too."""
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from paddleflow.base.names import nearest

            ctx.fail(f"No such command {name!r}, {nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing those that come late."""
        rows = []
        for name in self.list_commands(ctx):
            late = self.late.get(name)
            rows.append((name, late.help if late else self.commands[name].get_short_help_str(limit=90)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def group(*, help: str, late: Mapping[str, Late] | None = None) -> Group:
    """A group of commands."""
    return Group(help=help, late=late)


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


def listed(context: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    """Callback of options that take words with commas between. None if not given."""
    return None if value is None else [word for part in value.split(",") if (word := part.strip())]


def marker_options(size: str, default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`-m` (how many; `size` is its long name) and `-mk` (from where), as lists have them."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        many = click.option(
            "-m", f"--{size}", "size", type=int, default=default, show_default=True, help="How many to show at most."
        )
        where = click.option("-mk", "--marker", help="Where to go on: the marker that the page before ended with.")
        return many(where(function))

    return add
