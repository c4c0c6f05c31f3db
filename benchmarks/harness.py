"""What every benchmark prints and how: one JSON line per figure, medians of at least five, and the page made of them.

A line is ``{"bench", "figure", "ours", "peer", "theirs", "ratio", "unit", "n"}``. `ratio` says how many times better ours
is than the peer measured in the same run: above 1 is good, whichever way the unit counts. `ours` is null when only the
peer was measured; a long benchmark has parts, each a run of its own, and its lines say which; where no peer exists the peer is called ``goal`` and `theirs` is the figure that was aimed at.

    python -m benchmarks.harness        writes docs/benchmarks.md from the lines kept in docs/benchmarks/
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"

#: One measurement, or several of which the median counts.
Figures: TypeAlias = Sequence[float] | float

#: Units of which more is better; of all others less is.
RATES = ("/s",)


@dataclass
class Bench:
    """One benchmark's run: prints its lines, and keeps them when asked to."""

    name: str
    about: str
    quick: bool = False
    write: bool = False
    out: TextIO = field(default=sys.stdout)
    lines: list[dict[str, object]] = field(default_factory=list)
    argument: str = ""
    chosen: str = ""  #: the one part to run; empty: all
    numbers: Mapping[str, float] = field(default_factory=dict)  #: options of this benchmark alone
    _part: str = field(default="", init=False)  #: the one that runs

    def begins(self, part: str) -> bool:
        """Whether this part is to be run; what follows are its figures."""
        self._part = part
        return self.chosen in ("", part)

    def figure(
        self, figure: str, unit: str, ours: Figures | None, peer: str = "", theirs: Figures | None = None, n: int = 0
    ) -> None:
        """Print one figure; of several measurements the median counts. `n` says how many there were, if not so many."""
        mine, other = _middle(ours), _middle(theirs)
        count = n or max(len(each) if isinstance(each, Sequence) else 1 for each in (ours, theirs) if each is not None)
        line: dict[str, object] = {
            "bench": self.name, "figure": figure, "ours": mine, "peer": peer, "theirs": other,
            "ratio": _ratio(mine, other, unit), "unit": unit, "n": count, **({"part": self._part} if self._part else {}),
        }  # fmt: skip
        self.lines.append(line)
        print(json.dumps(line), file=self.out, flush=True)

    def goal(self, figure: str, unit: str, ours: Figures, goal: float, n: int = 0) -> None:
        """A figure without a peer, beside what was aimed at."""
        self.figure(figure, unit, ours, "goal", goal, n)

    def note(self, text: str) -> None:
        """For the person who watches; not part of the result."""
        print(f"[{self.name}] {text}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Keep the lines if this run is to be published."""
        if not self.write or not self.lines:
            return
        KEPT.mkdir(parents=True, exist_ok=True)
        file = KEPT / f"{self.name}.jsonl"
        head = {"bench": self.name, "about": self.about, "quick": self.quick, **machine()}
        others: list[dict[str, object]] = []
        if self.chosen and file.exists():
            before, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
            others = [line for line in lines if line.get("part", self.chosen) != self.chosen]
            head["quick"] = self.quick or (bool(others) and before["quick"])
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [head, *others, *self.lines])
        file.write_text(text, "utf-8")
        write_page()


def begin(
    name: str,
    about: str,
    argument: str = "",
    parts: Sequence[str] = (),
    numbers: Mapping[str, float] | None = None,
) -> Bench:
    """The benchmark that this process is, with the options that all of them share, and perhaps an argument or parts of its own."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {name}", description=about)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds, an answer within a minute")
    parser.add_argument("--write", action="store_true", help="keep the lines and write docs/benchmarks.md from them")
    if argument:
        parser.add_argument(argument)
    for option, usual in (numbers or {}).items():
        parser.add_argument(f"--{option}", type=float, default=usual, help=f"{usual:g} if not given")
    if parts:
        parser.add_argument(
            "--part", choices=parts, default="", help="this part alone; --write replaces its lines alone"
        )
    options = parser.parse_args()
    return Bench(
        name, about, options.quick, options.write, argument=getattr(options, argument) if argument else "",
        chosen=options.part if parts else "", numbers={name: getattr(options, name) for name in numbers or {}},
    )  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def timed(act: Callable[[], object]) -> float:
    """The seconds that `act` took."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def wait_for(condition: Callable[[], object], what: str, within: float = 60.0, every: float = 0.01) -> None:
    """Until `condition` is true; TimeoutError names what was waited for."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about within {within:.0f} s")
        time.sleep(every)


def machine() -> dict[str, object]:
    """What the figures depend on, without naming the machine."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in _read("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(
        (int(line.split()[1]) for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), 0
    )
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count(), "cpu": model,
        "memory_gib": round(memory / 2**20), "kernel": platform.release(), "python": platform.python_version(),
        "files": _file_system(tempfile.gettempdir()),
    }  # fmt: skip


def _file_system(folder: str) -> str:
    """The kind of file system that a folder is on."""
    mounts = [line.split()[1:3] for line in _read("/proc/mounts").splitlines()]
    within = [(len(point), kind) for point, kind in mounts if Path(folder).is_relative_to(point)]
    return max(within)[1] if within else "an unknown file system"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _middle(value: Figures | None) -> float | None:
    if value is None:
        return None
    return round(statistics.median(value) if isinstance(value, Sequence) else value, 4)


def _ratio(ours: float | None, theirs: float | None, unit: str) -> float | None:
    if not ours or not theirs or ours < 0:
        return None
    return round(ours / theirs if unit.endswith(RATES) else theirs / ours, 2)


def write_page() -> None:
    """docs/benchmarks.md, from nothing but the lines that were kept."""
    parts = [
        "# Benchmarks\n",
        "Written by `scripts/bench NAME --write` from the lines in `docs/benchmarks/`; edit neither by hand. Each table is",
        "one run on one machine with the peer measured in that same run. `ratio` is how many times better ours is: above 1",
        "is good, whichever way the unit counts. Where the peer is called *goal* there is no peer: it is what we aimed at.\n",
    ]
    for file in sorted(KEPT.glob("*.jsonl")):
        head, *lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
        parts.append(f"## {head['bench']}\n")
        parts.append(f"{head['about']}\n")
        parts.append(
            f"`scripts/bench {head['bench']}{' --quick' if head['quick'] else ''}` on {head['date']}: {head['cores']} cores "
            f"({head['cpu']}), {head['memory_gib']} GiB, Linux {head['kernel']}, Python {head['python']}"
            f"{', files on ' + str(head['files']) if head.get('files') else ''}. "
            f"[The lines](benchmarks/{file.name}).\n"
        )
        parts.append("| figure | ours | peer | theirs | ratio | unit | n |\n|---|---:|---|---:|---:|---|---:|")
        for line in lines:
            cells = [_shown(line[key]) for key in ("figure", "ours", "peer", "theirs", "ratio", "unit", "n")]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    PAGE.write_text("\n".join(parts), "utf-8")


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return str(value)


if __name__ == "__main__":
    write_page()
