"""A graph as SVG: components in columns by what they wait for, dags as boxes around theirs, states by colour. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape

from paddleflow.base.values import dataclass
from paddleflow.runs.graph import COLOURS, label
from paddleflow.spec import wire_runs as wire

WIDTH, HEIGHT = 168, 44  #: of a step
ACROSS, DOWN = 56, 18  #: between columns, between the boxes of one
PADDING, TITLE = 14, 22  #: of a dag's box
MARGIN = 16


@dataclass(slots=True)
class _Box:
    node: wire.GraphNode | None
    width: float = WIDTH
    height: float = HEIGHT
    x: float = 0.0
    y: float = 0.0
    inside: list[_Box] = field(default_factory=list)


def svg(graph: wire.Graph, title: str) -> str:
    """The whole picture."""
    inside: dict[str, list[wire.GraphNode]] = defaultdict(list)
    for node in graph["nodes"]:
        inside[node["parent"]].append(node)
    before: dict[str, list[str]] = defaultdict(list)
    for first, second in graph["edges"]:
        before[second].append(first)
    whole = _laid_out(None, inside, before)
    placed: dict[str, _Box] = {}
    _place(whole, MARGIN, MARGIN, placed)
    width, height = whole.width + 2 * MARGIN, whole.height + 2 * MARGIN
    boxes = "".join(_drawn(box) for box in placed.values())
    lines = "".join(_line(placed[first], placed[second]) for first, second in graph["edges"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        f' font-family="system-ui, sans-serif" font-size="13" role="img"><title>{escape(title)}</title>'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#71717a"/></marker></defs>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{boxes}{lines}</svg>\n'
    )


def _laid_out(
    node: wire.GraphNode | None, inside: Mapping[str, Sequence[wire.GraphNode]], before: Mapping[str, Sequence[str]]
) -> _Box:
    """A box with its children placed inside it, at positions of its own."""
    box = _Box(node)
    children = inside.get(node["id"] if node else "", ())
    if node is not None and (node["type"] != "dag" or not children):
        return box
    made = {child["id"]: _laid_out(child, inside, before) for child in children}
    columns = _columns([child["id"] for child in children], before)
    x = float(PADDING if node else 0)
    top = float(PADDING + TITLE if node else 0)
    tallest = max(sum(made[name].height + DOWN for name in column) - DOWN for column in columns)
    for column in columns:
        tall = sum(made[name].height + DOWN for name in column) - DOWN
        y = top + (tallest - tall) / 2
        for name in column:
            made[name].x, made[name].y = x, y
            y += made[name].height + DOWN
        x += max(made[name].width for name in column) + ACROSS
    box.width = x - ACROSS + (PADDING if node else 0)
    box.height = top + tallest + (PADDING if node else 0)
    box.inside = list(made.values())
    return box


def _columns(names: Sequence[str], before: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Each behind all it waits for; inside a column beside what it waits for."""
    known = set(names)
    depth: dict[str, int] = {}
    for name in names:
        waiting = [name]
        while waiting:
            here = waiting[-1]
            missing = [other for other in before.get(here, ()) if other in known and other not in depth]
            if missing:
                waiting += missing
            else:
                depth[here] = 1 + max((depth[other] for other in before.get(here, ()) if other in known), default=-1)
                waiting.pop()
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in names:
        columns[depth[name]].append(name)
    place = {name: float(number) for number, name in enumerate(columns[0])}
    for column in columns[1:]:
        middle = {}
        for name in column:
            others = [place[other] for other in before.get(name, ()) if other in place]
            middle[name] = sum(others) / len(others) if others else 0.0
        column.sort(key=middle.__getitem__)
        place.update({name: float(number) for number, name in enumerate(column)})
    return columns


def _place(box: _Box, x: float, y: float, placed: dict[str, _Box]) -> None:
    box.x, box.y = box.x + x, box.y + y
    if box.node is not None:
        placed[box.node["id"]] = box
    for child in box.inside:
        _place(child, box.x, box.y, placed)


def _drawn(box: _Box) -> str:
    node = box.node
    assert node is not None
    fill, line = COLOURS[node["status"]]
    words = escape(_short(label(node)))
    hint = escape(f"{node['id']}: {node['status']}")
    if node["type"] == "dag" and box.inside:
        return (
            f'<g><title>{hint}</title><rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="10"'
            f' fill="none" stroke="{line}" stroke-dasharray="5 3"/>'
            f'<text x="{box.x + 12:g}" y="{box.y + 18:g}" fill="#3f3f46" font-weight="600">{words}</text></g>'
        )
    seconds = node["seconds"]
    below = f"{node['status']}{f' · {seconds:g} s' if seconds else ''}"
    return (
        f'<g><title>{hint}</title><rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="8"'
        f' fill="{fill}" stroke="{line}"/><text x="{box.x + 12:g}" y="{box.y + 19:g}" fill="#18181b">{words}</text>'
        f'<text x="{box.x + 12:g}" y="{box.y + 35:g}" fill="#52525b" font-size="11">{escape(below)}</text></g>'
    )


def _short(text: str) -> str:
    return text if len(text) <= 21 else text[:20] + "…"


def _line(first: _Box, second: _Box) -> str:
    x1, y1 = first.x + first.width, first.y + first.height / 2
    x2, y2 = second.x, second.y + second.height / 2
    bend = max((x2 - x1) / 2, 20)
    return (
        f'<path d="M{x1:g},{y1:g} C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2 - 1:g},{y2:g}" fill="none"'
        ' stroke="#71717a" marker-end="url(#tip)"/>'
    )
