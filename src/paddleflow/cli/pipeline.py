"""`paddleflow pipeline …`: pipeline documents. What is here works without a server; `registered` talks to one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Late, group, pair_each
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.spec.pipeline.model import Pipeline

pipeline = group(
    help="Pipelines: check a document, register it, look at its versions, turn it into another engine's.",
    late={
        "create": Late("registered:create", "Register a pipeline."),
        "delete": Late("registered:delete", "Delete a registered pipeline with all its versions."),
        "deleteversion": Late("registered:deleteversion", "Delete one version of a registered pipeline."),
        "list": Late("registered:list_", "List registered pipelines."),
        "show": Late("registered:show", "Show a registered pipeline and its versions."),
        "showversion": Late("registered:showversion", "Show one version of a registered pipeline."),
        "update": Late("registered:update", "Add a version to a registered pipeline."),
    },
)

MOST_SHOWN = 160  #: characters of a source line


@pipeline.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("-p", "--param", multiple=True, callback=pair_each, help="A parameter as a run gives it: name=value.")
@click.option("-f", "--fs-name", default="", help="The storage (fs) that a run names, if the document names none.")
@pass_session
@click.pass_context
def check(ctx: click.Context, session: Session, file: str, param: dict[str, str] | None, fs_name: str) -> None:
    """Check the pipeline document FILE without a server: every fault with its line, and a hint. `-` reads the input.

    Ends with 1 if there is a fault.

    \b
    Examples:
      paddleflow pipeline check run.yaml
      paddleflow pipeline check run.yaml -p epochs=5 -p train.lr=0.1 --json
    """
    found, name = _bound(ctx, session, file, param, fs_name)
    facts = _facts(found)
    if session.output == "json":
        click.echo(output.as_json({"file": name, "ok": True, **facts}))
    else:
        click.echo(f"{name}: ok: {', '.join(f'{key} {value}' for key, value in facts.items())}")


@pipeline.command()
def schema() -> None:
    """Print the JSON Schema of pipeline documents, for editors.

    \b
    Example:
      paddleflow pipeline schema > pipeline.schema.json
      # first line of run.yaml:  # yaml-language-server: $schema=pipeline.schema.json
    """
    from paddleflow.spec.pipeline.schema import json_schema

    click.echo(output.as_json(json_schema()))


@pipeline.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--to", "target", required=True, type=click.Choice(["argo", "airflow"]), help="The engine it is for.")
@click.option("-o", "--out", default="-", type=click.Path(dir_okay=False, allow_dash=True), help="Where to write it.")
@click.option("-p", "--param", multiple=True, callback=pair_each, help="A parameter as a run gives it: name=value.")
@click.option("-f", "--fs-name", default="", help="The storage (fs) that a run names, if the document names none.")
@pass_session
@click.pass_context
def export(
    ctx: click.Context, session: Session, file: str, target: str, out: str, param: dict[str, str] | None, fs_name: str
) -> None:
    """Turn the pipeline document FILE into an Argo Workflow or an Airflow 3 DAG file, without a server.

    What the other engine cannot express is refused by name, everything at once.

    \b
    Examples:
      paddleflow pipeline export run.yaml --to argo -o workflow.yaml
      paddleflow pipeline export run.yaml --to airflow -p epochs=5 -o dags/run.py
    """
    from paddleflow.exporters import airflow, argo

    found, _ = _bound(ctx, session, file, param, fs_name)
    if target == "argo":
        manifest, notes = argo.export(found)
        text = argo.to_yaml(manifest)
    else:
        text, notes = airflow.export(found)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    with click.open_file(out, "w", encoding="utf-8") as stream:
        stream.write(text)


def _bound(
    ctx: click.Context, session: Session, file: str, param: dict[str, str] | None, fs_name: str
) -> tuple[Pipeline, str]:
    """The pipeline that a run would run, and what its file is called; ends with 1 when it has faults, which are shown."""
    from paddleflow.spec.pipeline.document import read
    from paddleflow.spec.pipeline.run_request import RunRequest, bind

    content = _content(file)
    name = "<stdin>" if file == "-" else file
    try:
        return bind(read(content, name), RunRequest(parameters=param or {}, fs_name=fs_name), name), name
    except Invalid as error:
        _show_faults(session, error, name, content)
        ctx.exit(1)


def _content(file: str) -> bytes:
    """The bytes of the file; of one that is too large none at all."""
    from paddleflow.spec.pipeline.nodes import MOST_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        path = Path(file)
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise Invalid(f"{file} has {size:,} bytes, at most {MOST_BYTES:,} are read", code="MalformedYaml")
        return path.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}", code="ReadYamlFileFailed") from error


def _facts(found: Pipeline) -> dict[str, Any]:
    """What a person wants to see to know that the right document was read."""
    from paddleflow.spec.pipeline.model import Step
    from paddleflow.spec.pipeline.validation import walk

    components = [component for _, component, _ in walk(found.entry_points)]
    steps = sum(isinstance(component, Step) for component in components)
    facts: dict[str, Any] = {"pipeline": found.name, "steps": steps, "dags": len(components) - steps}
    if found.post_process:
        facts["post_process"] = found.post_process.name
    return facts


def _show_faults(session: Session, error: Invalid, name: str, content: bytes) -> None:
    from paddleflow.spec.pipeline.faults import LINE_BREAK, PipelineFault

    faults = [fault for fault in error.details if isinstance(fault, PipelineFault)]
    if session.output == "json":
        rows = [
            {
                "line": fault.line,
                "column": fault.column,
                "path": fault.path,
                "message": fault.message,
                "hint": fault.hint,
            }
            for fault in faults
        ]
        click.echo(output.as_json({"file": name, "ok": False, "code": error.code, "faults": rows}))
        return
    lines = LINE_BREAK.split(content.decode("utf-8-sig", "replace"))
    for fault in faults:
        place = f"{name}:{fault.line}:{fault.column}" if fault.line else name
        click.echo(f"{place}: {f'{fault.path}: ' if fault.path else ''}{fault.message}")
        if 0 < fault.line <= len(lines):
            _show_line(lines[fault.line - 1], fault.line, fault.column)
        if fault.hint:
            click.echo(f"  hint: {fault.hint}")
    count = len(faults)
    click.echo(f"{count} {'fault' if count == 1 else 'faults'}", err=True)


def _show_line(line: str, number: int, column: int) -> None:
    """The source line with a caret below it; a long one is cut around the column."""
    skip = max(0, column - MOST_SHOWN // 2) if len(line) > MOST_SHOWN else 0
    part = line[skip : skip + MOST_SHOWN].replace("\t", " ")
    before = output.width(part[: column - 1 - skip])
    margin = " " * len(str(number))
    click.echo(f"  {number} | {part}")
    click.echo(f"  {margin} | {' ' * before}^")
