"""Writes docs/reference/cli.md from the commands themselves: generate.py [--check]

`--check` writes nothing and ends with 1 when the page is not what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from paddleflow.cli.main import root

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"
NOTE = "Written from the commands by `docs/generate.py`; change their sentences there."
CLIENT_VARIABLES = {
    "PADDLEFLOW_SERVER": "The server's address, instead of the current context's.",
    "PADDLEFLOW_TOKEN": "The token to use, instead of a saved one.",
    "PADDLEFLOW_HOME": "Folder of the contexts and of `paddleflow.ini`; `~/.paddleflow` if not set.",
    "PADDLEFLOW_PF_CONFIG": "Like the option `--pf_config`.",
    "PADDLEFLOW_OUTPUT": "Like the option `--output`.",
}


def cli_page() -> str:
    parts = [
        "# Command line",
        NOTE,
        "`paddleflow [OPTIONS] GROUP COMMAND …`. How to work with it: [guide](../guides/cli.md).",
        "Exit codes: 0 done, 1 refused or failed, 2 called wrongly, 130 interrupted; `job run` ends with the job's code.",
        "## Variables",
        _table(["variable", "meaning"], [[f"`{name}`", text] for name, text in CLIENT_VARIABLES.items()]),
        "Every option has a variable: `PADDLEFLOW_` and the words of its command, as in `PADDLEFLOW_JOB_LIST_QUEUE`.",
        "## paddleflow",
        _help(root, "paddleflow", None),
    ]
    for path, command, context in _commands(root, "paddleflow", None):
        parts += [f"{'##' if path.count(' ') == 1 else '###'} {path}", _help(command, path, context)]
    return "\n\n".join(parts) + "\n"


def _commands(
    group: click.Group, path: str, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(group, info_name=path.rpartition(" ")[2], parent=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command, context
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}", context)


def _help(command: click.Command, path: str, parent: click.Context | None) -> str:
    context = click.Context(
        command,
        info_name=path.rpartition(" ")[2],
        parent=parent,
        terminal_width=110,
        help_option_names=["-h", "--help"],
    )
    return f"```text\n{command.get_help(context)}\n```"


def _table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(check: bool) -> int:
    if PAGE.exists() and PAGE.read_text("utf-8") == cli_page():
        return 0
    if check:
        print("docs/reference/cli.md is not what the code says; run: python docs/generate.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(cli_page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
