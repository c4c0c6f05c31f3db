"""A run as a graph: nodes with their states, and what waits for what. As JSON, as Mermaid text; `svg` makes SVG. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from paddleflow.runs.machine import group_result
from paddleflow.runs.model import ComponentStatus, RunStatus
from paddleflow.runs.rows import ComponentRow
from paddleflow.runs.state import POST, ROOT
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.pipeline.model import Component, Dag, Pipeline

POST_PROCESS = "post_process"  #: id of the node of the post-process begins with this
#: colours of states: fill, line
COLOURS = {
    "init": ("#f4f4f5", "#a1a1aa"),
    "pending": ("#fef9c3", "#ca8a04"),
    "running": ("#dbeafe", "#2563eb"),
    "terminating": ("#ffedd5", "#ea580c"),
    "succeeded": ("#dcfce7", "#16a34a"),
    "failed": ("#fee2e2", "#dc2626"),
    "terminated": ("#ffedd5", "#ea580c"),
    "cancelled": ("#e4e4e7", "#71717a"),
    "skipped": ("#f5f3ff", "#8b5cf6"),
}


def graph_of(pipeline: Pipeline, status: str, components: Sequence[ComponentRow], now: float) -> wire.Graph:
    """Every component of the document, with what became of it; the elements of a loop are one node."""
    building = _Building(RunStatus(status).final, components, now)
    nodes = list(building.nodes(pipeline.entry_points, {ROOT}, "", ""))
    edges = list(_edges(pipeline.entry_points, ""))
    if pipeline.post_process is not None:
        step = pipeline.post_process
        post = f"{POST_PROCESS}.{step.name}"
        nodes += building.nodes({step.name: step}, {POST}, f"{POST_PROCESS}.", "")
        last = set(pipeline.entry_points) - {dep for child in pipeline.entry_points.values() for dep in child.deps}
        edges += [[name, post] for name in pipeline.entry_points if name in last]
    return {"nodes": nodes, "edges": edges}


class _Building:
    def __init__(self, over: bool, components: Sequence[ComponentRow], now: float) -> None:
        self._over = over
        self._now = now
        self._rows: dict[tuple[int, str], list[ComponentRow]] = defaultdict(list)
        for row in components:
            self._rows[row.parent, row.name].append(row)

    def nodes(
        self, children: Mapping[str, Component], parents: set[int], path: str, parent: str
    ) -> Iterator[wire.GraphNode]:
        """`parents` are the numbers of all elements of the dag that these are in."""
        for name, child in children.items():
            rows = [row for number in parents for row in self._rows.get((number, name), ())]
            yield {
                "id": path + name,
                "name": name,
                "type": "dag" if isinstance(child, Dag) else "step",
                "status": self._status(rows),
                "parent": parent,
                "seconds": self._seconds(rows),
                "count": max(len(rows), 1),
            }
            if isinstance(child, Dag):
                yield from self.nodes(child.children, {row.number for row in rows}, f"{path}{name}.", path + name)

    def _status(self, rows: Sequence[ComponentRow]) -> str:
        if not rows:
            return ComponentStatus.CANCELLED if self._over else ComponentStatus.INIT
        found = {ComponentStatus(row.status) for row in rows}
        for word in (ComponentStatus.RUNNING, ComponentStatus.TERMINATING, ComponentStatus.PENDING):
            if word in found:
                return word
        return group_result(found)

    def _seconds(self, rows: Sequence[ComponentRow]) -> float:
        begun = [row for row in rows if row.started_at is not None]
        if not begun:
            return 0.0
        last = max(row.finished_at or self._now for row in begun)
        return round(float(last - min(row.started_at or 0.0 for row in begun)), 3)


def _edges(children: Mapping[str, Component], path: str) -> Iterator[list[str]]:
    for name, child in children.items():
        for dep in child.deps:
            yield [path + dep, path + name]
        if isinstance(child, Dag):
            yield from _edges(child.children, f"{path}{name}.")


def mermaid(graph: wire.Graph) -> str:
    """The graph as Mermaid text, for documents and pull requests."""
    ids = {node["id"]: f"n{number}" for number, node in enumerate(graph["nodes"])}
    inside: dict[str, list[wire.GraphNode]] = defaultdict(list)
    for node in graph["nodes"]:
        inside[node["parent"]].append(node)
    lines = ["flowchart LR"]

    def write(parent: str, indent: str) -> None:
        for node in inside[parent]:
            if node["type"] == "dag":
                lines.append(f'{indent}subgraph {ids[node["id"]]} ["{label(node)}"]')
                write(node["id"], indent + "  ")
                lines.append(f"{indent}end")
            else:
                lines.append(f'{indent}{ids[node["id"]]}["{label(node)}"]:::{node["status"]}')

    write("", "  ")
    lines += [f"  {ids[before]} --> {ids[after]}" for before, after in graph["edges"]]
    lines += [f"  classDef {name} fill:{fill},stroke:{line},color:#18181b" for name, (fill, line) in COLOURS.items()]
    return "\n".join(lines) + "\n"


def label(node: wire.GraphNode) -> str:
    """A node's name, with how many elements its loop has."""
    return node["name"] + (f" x{node['count']}" if node["count"] > 1 else "")
