"""`paddleflow queue whatif`: a change of queues, nodes or rules, simulated on the recent past."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid

if TYPE_CHECKING:
    from paddleflow.sdk.scheduler import QueueOutcome, WhatIf

#: Words of --queue, --add-nodes and --team → where they stand in the document.
_QUEUE = {
    "maxcpu": ("maxResources", "cpu"), "maxmem": ("maxResources", "mem"), "mincpu": ("minResources", "cpu"),
    "minmem": ("minResources", "mem"), "weight": ("weight",), "order": ("order",), "parent": ("parent",),
    "status": ("status",),
}  # fmt: skip
_NODES = {"count": ("count",), "cpu": ("each", "cpu"), "mem": ("each", "mem")}
_TEAM = {
    "jobs": ("jobs",), "every": ("every",), "seconds": ("seconds",), "replicas": ("replicas",),
    "cpu": ("each", "cpu"), "mem": ("each", "mem"),
}  # fmt: skip
_RULES: dict[str, tuple[str, ...]] = {
    name: (name,) for name in ("preemption", "elastic", "patience", "leastRun", "window", "halfLife")
}
SPOKEN = {"victims": "preempted"}  #: what people read for a key of the API
WHATIF_HEADERS = ["queue", "jobs", "mean wait", "p90 wait", "mean completion", "use", "preempted", "lost"]


@click.command(cls=Command)
@click.option("--queue", "queues", multiple=True, help="Changed queue: NAME,maxcpu=8,mincpu=4,order=fair. Repeatable.")
@click.option("--lose-node", "lost", multiple=True, help="Node to remove. Repeatable.")
@click.option("--add-nodes", "added", multiple=True, help="Nodes to add: count=2,cpu=8,mem=32Gi. Repeatable.")
@click.option("--team", help="Additional jobs: QUEUE,jobs=20,every=60,seconds=600,cpu=1,mem=1Gi.")
@click.option(
    "--rule", "rules", multiple=True, help="Changed scheduling rule: preemption=false, patience=60. Repeatable."
)
@click.option("--past", type=float, help="Seconds of the past to replay. [default: one hour]")
@click.option(
    "-f",
    "--file",
    type=click.File("r", encoding="utf-8"),
    help='The change as a JSON document; "-" reads standard input.',
)
@pass_session
def whatif(
    session: Session,
    queues: tuple[str, ...],
    lost: tuple[str, ...],
    added: tuple[str, ...],
    team: str | None,
    rules: tuple[str, ...],
    past: float | None,
    file: IO[str] | None,
) -> None:
    """Simulate a change of queues, nodes or rules with the jobs of the recent past and those pending now. Nothing is changed.

    Figures are shown without and with the change: before -> after.

    \b
    Examples:
      paddleflow queue whatif --queue vision,maxcpu=16,mincpu=8
      paddleflow queue whatif --queue nlp,maxcpu=8,maxmem=32Gi --team nlp,jobs=50,cpu=2,mem=4Gi
      paddleflow queue whatif --lose-node node-3 --rule preemption=false
    """
    given: dict[str, Any] = {
        "queues": [_named("--queue", text, "name", _QUEUE) for text in queues],
        "nodesLost": list(lost),
        "nodesAdded": [_read("--add-nodes", text, _NODES) for text in added],
        "team": _named("--team", team, "queue", _TEAM) if team else None,
        "rules": {k: v for text in rules for k, v in _read("--rule", text, _RULES).items()},
        "past": past,
    }
    document = (_document(file) if file else {}) | {key: value for key, value in given.items() if value}
    answer = session.client.scheduler.what_if(document)
    if session.machine:
        output.print_data(session, answer.raw)
    else:
        _show(session, answer)


def _document(file: IO[str]) -> dict[str, Any]:
    try:
        found = json.load(file)
    except ValueError as error:
        raise Invalid(f"{file.name} is not JSON: {error}", code="MalformedJSON") from error
    if not isinstance(found, dict):
        raise Invalid(f"{file.name} does not contain a JSON object", code="InappropriateJSON")
    return found


def _named(option: str, text: str, key: str, words: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    name, _, rest = text.partition(",")
    return {key: name.strip(), **_read(option, rest, words)}


def _read(option: str, text: str, words: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """``a=1,b=2`` as the document has it."""
    found: dict[str, Any] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        key, equals, value = part.partition("=")
        if not equals or key not in words:
            raise click.BadParameter(
                f"{part} is not one of {', '.join(f'{word}=…' for word in words)}", param_hint=option
            )
        *above, last = words[key]
        at = found
        for step in above:
            at = at.setdefault(step, {})
        at[last] = value if last in ("cpu", "mem", "order", "parent", "status") else _value(value)
    return found


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show(session: Session, answer: WhatIf) -> None:
    before = {row.name: row for row in answer.before.queues}
    after = {row.name: row for row in answer.after.queues}
    rows = [[name, *_compared(before.get(name), after.get(name))] for name in sorted({*before, *after})]
    output.show_rows(session, WHATIF_HEADERS, rows)
    for name, words in (("fairness", "{:.2f}".format), ("use", "{:.0%}".format), ("victims", "{:.0f}".format)):
        texts = [words(getattr(side, name)) for side in (answer.before, answer.after)]
        click.echo(f"{SPOKEN.get(name, name)}: {_change(*texts)}", err=session.output == "text")
    note = f"replayed {answer.cycles} decisions from {answer.begins} to {answer.now}, which reproduced all of them"
    if answer.first_change:
        note += f"; the first effect of the change is at {answer.first_change}"
    elif answer.before == answer.after:
        note += "; the change has no effect"
    else:
        note += "; the change has an effect only from now on"
    click.echo(note, err=True)


#: What is compared of a queue, in the order of the headers, and how it is written.
_FIGURES: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("jobs", "{:.0f}".format), ("mean_wait", output.short_duration), ("p90_wait", output.short_duration),
    ("mean_completion", output.short_duration), ("use", "{:.0%}".format), ("victims", "{:.0f}".format),
    ("lost_seconds", output.short_duration),
)  # fmt: skip


def _compared(old: QueueOutcome | None, new: QueueOutcome | None) -> list[str]:
    return [
        _change(*("-" if row is None else words(getattr(row, name)) for row in (old, new))) for name, words in _FIGURES
    ]


def _change(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"
