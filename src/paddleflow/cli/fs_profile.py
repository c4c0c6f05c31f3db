"""`paddleflow fs profile`: what a job reads of a mount, as a picture: in which order, how often again, what was not cached."""

from __future__ import annotations

import time
from collections import Counter
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddleflow.cli import output
from paddleflow.cli.fs_mount import absolute
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Unavailable

if TYPE_CHECKING:
    from paddleflow.fs.trace import Opened

_MOST_OPENS = 1_000_000  #: that one profile holds
_MOST_DRAWN = 20_000  #: points of a picture
_NAMED = 10  #: files that are named: those opened most often
_WIDTH, _HEIGHT, _MARGIN = 900, 500, 60
_COLOURS = {"first, cached": "#2a9d8f", "again": "#457b9d", "not cached": "#e63946"}


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 86_400), default=10.0, show_default=True, help="How long to record."
)
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="SVG file to draw the accesses into.")
@pass_session
def profile(session: Session, folder: Path, seconds: float, picture: Path | None) -> None:
    """Record for a while which files programs open on a mount: how many, how often, and how many were not cached.

    \b
    Example:
      paddleflow fs profile /mnt/sets --seconds 60 --picture epoch.svg
    """
    from paddleflow.fs.control import ask_opens

    where = absolute(folder)
    opens: list[Opened] = []
    ask_opens(where)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and len(opens) < _MOST_OPENS:
        time.sleep(min(1.0, left))
        opens += ask_opens(where)
    opens = opens[:_MOST_OPENS]
    if picture is not None:
        try:
            picture.write_text(draw(opens), "utf-8")
        except OSError as error:
            raise Unavailable(f"{picture} cannot be written: {error.strerror}") from error
    _show(session, opens, seconds)


def _show(session: Session, opens: list[Opened], seconds: float) -> None:
    often = Counter(each.name for each in opens)
    missed = sum(not each.cached for each in opens)
    order = _order(opens)
    if session.output in output.MACHINE:
        most = [{"name": name, "opens": count} for name, count in often.most_common(_NAMED)]
        data = {
            "seconds": seconds,
            "opens": len(opens),
            "files": len(often),
            "notCached": missed,
            "order": order,
            "most": most,
        }
        output.print_data(session, data)
        return
    facts = {
        "Opens": f"{len(opens)} of {len(often)} files, {len(opens) / seconds:.0f} a second",
        "Again": f"{len(opens) - len(often)} opens of files that were opened before",
        "Not cached": f"{missed} opens",
        "Order": order,
    }
    click.echo(output.describe(facts))
    rows = [[count, name] for name, count in often.most_common(_NAMED)]
    output.show_rows(session, ["opens", "name"], rows, empty="no file was opened")


def _order(opens: list[Opened]) -> str:
    """Whether files come in the order of their names: then the next ones can be fetched ahead."""
    steps = [first.name < second.name for first, second in pairwise(opens)]
    share = sum(steps) / len(steps) if steps else 0.0
    return "by name" if share > 0.9 else "mostly by name" if share > 0.7 else "shuffled" if steps else "-"


def draw(opens: list[Opened]) -> str:
    """Each open as a point: when, from left to right; which file, in the order of names, from top to bottom."""
    begin, end = (opens[0].at, opens[-1].at) if opens else (0.0, 1.0)
    rank = {name: number for number, name in enumerate(sorted({each.name for each in opens}))}
    seen: set[str] = set()
    points: dict[str, list[str]] = {kind: [] for kind in _COLOURS}
    step = max(1, len(opens) // _MOST_DRAWN)
    for number, each in enumerate(opens):
        kind = "not cached" if not each.cached else "again" if each.name in seen else "first, cached"
        seen.add(each.name)
        if number % step == 0 or kind == "not cached":
            x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (each.at - begin) / max(end - begin, 1e-9)
            y = _MARGIN + (_HEIGHT - 2 * _MARGIN) * rank[each.name] / max(len(rank) - 1, 1)
            points[kind].append(f"M{x:.1f} {y:.1f}h1.6")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_MARGIN}" y="24">{len(opens)} opens of {len(rank)} files in {end - begin:.1f} s</text>',
    ]
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        at = _MARGIN + 150 * number
        lines.append(f'<rect x="{at}" y="34" width="10" height="10" fill="{colour}"/>')
        lines.append(f'<text x="{at + 16}" y="44">{kind}</text>')
        lines.append(f'<path d="{"".join(points[kind])}" stroke="{colour}" stroke-width="1.6" fill="none"/>')
    names = sorted(rank)
    for name, y in ((names[0], _MARGIN), (names[-1], _HEIGHT - _MARGIN)) if names else ():
        lines.append(f'<text x="4" y="{y - 4}">{escape(_printable(name))}</text>')
    lines.append(f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 20}" text-anchor="end">time →</text>')
    return "\n".join([*lines, "</svg>", ""])


def _printable(name: str) -> str:
    """A name that XML can hold."""
    shown = "".join(letter if letter.isprintable() else "·" for letter in name)
    return shown if len(shown) <= 80 else f"…{shown[-79:]}"
