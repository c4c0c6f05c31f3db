"""`paddleflow queue tree`: the quota tree, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session

if TYPE_CHECKING:
    from paddleflow.sdk.queues import Queue

ROOT = "root"
HEADERS = ["name", "parent", "weight", "order", "status", "min resources", "max resources", "used resources"]


@click.command(cls=Command)
@pass_session
def tree(session: Session) -> None:
    """Draw the queues that you may use as a tree. What is used counts the queues below with their parent.

    Every resource is shown as min / used / max. A parent that you may not use has its name only.
    """
    found = list(session.client.queues.list(usage=True))
    if session.output == "table":
        for line in drawn(found):
            click.echo(line)
        return
    rows = [[q.name, q.parent, q.weight, q.order, q.status, q.minimum, q.maximum, q.used_together] for q in found]
    output.show(session, HEADERS, rows)


def drawn(queues: list[Queue]) -> list[str]:
    """The lines of the picture."""
    known = {queue.name: queue for queue in queues}
    below: dict[str, list[str]] = {}
    for queue in queues:
        below.setdefault(queue.parent or ROOT, []).append(queue.name)
    strangers = [parent for parent in below if parent != ROOT and parent not in known]
    rows = [(ROOT, "")]
    shown = set[str]()

    def draw(names: list[str], before: str) -> None:
        for name in names:
            if name in shown:
                continue
            shown.add(name)
            last = name == names[-1]
            rows.append((f"{before}{'└─ ' if last else '├─ '}{name}", _words(known.get(name))))
            draw(below.get(name, []), before + ("   " if last else "│  "))

    draw([*below.get(ROOT, []), *strangers], "")
    wide = max(output.width(left) for left, _ in rows)
    return [f"{left}{' ' * (wide - output.width(left))}  {right}".rstrip() for left, right in rows]


def _words(queue: Queue | None) -> str:
    if queue is None:
        return ""
    least, used, most = (_flat(each) for each in (queue.minimum, queue.used_together, queue.maximum))
    names = list(dict.fromkeys([*most, *least, *used]))
    parts = [f"{name} {least.get(name, '0')} / {used.get(name, '0')} / {most.get(name, '0')}" for name in names]
    closed = [] if queue.status in ("open", "") else [queue.status]
    return ", ".join([*parts, f"weight {queue.weight}", queue.order or "fifo", *closed])


def _flat(amounts: Mapping[str, Any]) -> dict[str, str]:
    """All dimensions side by side."""
    scalars = amounts.get("scalarResources") or {}
    return {key: str(value) for key, value in amounts.items() if key != "scalarResources"} | dict(scalars)
