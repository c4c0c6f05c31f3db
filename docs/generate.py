"""Writes docs/reference/cli.md from the commands, and job-document.md with its JSON Schema from the documents: generate.py [--check]

`--check` writes nothing and ends with 1 when a page is not what it would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from paddleflow.cli.main import root
from paddleflow.spec.document import Document
from paddleflow.spec.job import (
    CodeReference,
    DistributedJob,
    FlavourChoice,
    GitState,
    MemberDocument,
    SchedulingPolicy,
    SecretUse,
    SingleJob,
    StorageMount,
)

FOLDER = Path(__file__).resolve().parent / "reference"
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
        "Exit codes: 0 success, 1 error or failed job, 2 wrong usage, 130 interrupted; `job run` exits with the job's own code.",
        "## Variables",
        _table(["variable", "meaning"], [[f"`{name}`", text] for name, text in CLIENT_VARIABLES.items()]),
        "Every option can also be set by a variable named after its command, for example `PADDLEFLOW_JOB_LIST_QUEUE`.",
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


# ---- the job document -----------------------------------------------------------------------------------------------

JOBS: tuple[type[Document], ...] = (SingleJob, DistributedJob)
PARTS: tuple[type[Document], ...] = (
    MemberDocument, SchedulingPolicy, FlavourChoice, StorageMount, CodeReference, GitState, SecretUse,
)  # fmt: skip
JOB_INTRODUCTION = """# The job document

Written from `src/paddleflow/spec/job.py` by `docs/generate.py`; change the sentences there.

YAML or JSON. `paddleflow job submit FILE` submits it, `pf.jobs.submit({...})` does the same in Python, and `POST /job/single` or
`POST /job/distributed` takes it as JSON. Keys are not case-sensitive; empty objects and lists mean "not given"; unknown keys are refused
with the nearest known one. [JSON Schema](job-document.schema.json), for editors:

```yaml
# yaml-language-server: $schema=job-document.schema.json
name: train
command: python train.py --epochs 3
code: .                                  # the folder of this file; the client sends a snapshot of it
flavour: {cpu: 2, mem: 4Gi, scalarResources: {nvidia.com/gpu: 1}}
schedulingPolicy: {queue: default-queue, priority: high}
env: {PF_JOB_RETRIES: "2"}               # start a failed job again, at most twice
secrets: [WANDB_API_KEY]
after: [job-6afbf4d02ba6c48ef9e95063]    # only when that job has succeeded
```

A distributed job has a framework and members:

```yaml
name: train
framework: pytorch
code: .
members:
  - {role: worker, replicas: 4, command: python train.py, flavour: {cpu: 4, mem: 16Gi}}
```"""


def job_page() -> str:
    parts = [JOB_INTRODUCTION]
    for kind in (*JOBS, *PARTS):
        title = {SingleJob: "A single job", DistributedJob: "A distributed job"}.get(
            kind, TITLES.get(kind, kind.__name__)
        )
        parts += [f"## {title}", _table(["field", "type", "meaning"], [_field(*each) for each in _properties(kind)])]
    return "\n\n".join(parts) + "\n"


TITLES: dict[type[Document], str] = {
    MemberDocument: "A member: `members`",
    SchedulingPolicy: "`schedulingPolicy`",
    FlavourChoice: "`flavour` and `limitFlavour`",
    StorageMount: "`fs` and `extraFS`",
    CodeReference: "`code`",
    GitState: "`code.git`",
    SecretUse: "`secrets`: `NAME`, `NAME=VARIABLE`, or an object",
}


def _properties(kind: type[Document]) -> list[tuple[str, dict[str, Any], bool]]:
    schema = kind.model_json_schema(by_alias=True)
    required = schema.get("required", ())
    return [(name, found, name in required) for name, found in schema["properties"].items()]


def _field(name: str, found: dict[str, Any], required: bool) -> list[str]:
    return [f"`{name}`" + (" (required)" if required else ""), _type(found), found.get("description", "")]


def _type(found: dict[str, Any]) -> str:
    if "anyOf" in found:
        return " or ".join(_type(each) for each in found["anyOf"] if each.get("type") != "null")
    if "$ref" in found or "allOf" in found:
        return "object"
    if found.get("type") == "array":
        return f"list of {_type(found['items'])}s"
    words = {"string": "text", "integer": "number", "boolean": "true or false"}
    kind = str(found.get("type", "object"))
    return words.get(kind, kind)


def job_schema() -> str:
    """One schema for both kinds; `code` may be a folder, which the client replaces."""
    schemas = {kind.__name__: kind.model_json_schema(by_alias=True, ref_template="#/$defs/{model}") for kind in JOBS}
    definitions: dict[str, Any] = {}
    for name, schema in schemas.items():
        definitions |= schema.pop("$defs", {})
        definitions[name] = schema
    for definition in definitions.values():
        for name, found in definition["properties"].items():
            _loosen(name, found)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "PaddleFlow job document",
        "if": {"anyOf": [{"required": ["framework"]}, {"required": ["members"]}]},
        "then": {"$ref": "#/$defs/DistributedJob"},
        "else": {"$ref": "#/$defs/SingleJob"},
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _loosen(name: str, found: dict[str, Any]) -> None:
    """Short forms that the documents take and their types do not tell."""
    if name in {"cpu", "mem", "memory"}:
        found["type"] = ["string", "number"]
    if found.get("additionalProperties") == {"type": "string"}:
        found["additionalProperties"] = {"type": ["string", "number"]}
    if name == "secrets":
        found["items"] = {"anyOf": [found["items"], {"type": "string"}]}
    if name == "code":
        found["anyOf"] = [*found["anyOf"], {"type": "string", "description": "a folder, below that of the document"}]
    if name in {"after", "requirements"}:
        found["type"] = ["string", "array"]
        found["items"] = {"type": "string"}


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "job-document.md": job_page,
    "job-document.schema.json": job_schema,
}


def main(check: bool) -> int:
    stale = {name: text for name, page in PAGES.items() if _kept(name) != (text := page())}
    if check:
        for name in stale:
            print(f"docs/reference/{name} is not what the code says; run: python docs/generate.py", file=sys.stderr)
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for name, text in stale.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


def _kept(name: str) -> str | None:
    return (FOLDER / name).read_text("utf-8") if (FOLDER / name).exists() else None


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
