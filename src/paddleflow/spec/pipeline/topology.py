"""Which component comes after which: dependencies that exist, and no circles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from paddleflow.spec.pipeline.drafts import Draft
from paddleflow.spec.pipeline.faults import Faults, shown

SHOWN = 20  #: names of a circle that a message lists
MOST_CIRCLES = 20  #: of one level that are told


def check_order(siblings: Mapping[str, Draft], faults: Faults) -> None:
    """The dependencies of one level."""
    for draft in siblings.values():
        for dep in draft.deps:
            where = f"{draft.path}.deps"
            if dep == draft.name:
                faults.add(draft.at("deps"), where, f"component [{shown(draft.name)}] depends on itself", "remove it")
            elif dep not in siblings:
                faults.unknown(
                    draft.at("deps"),
                    where,
                    f"component [{shown(draft.name)}] has a wrong dep [{shown(dep)}]",
                    dep,
                    (name for name in siblings if name != draft.name),
                )
    for circle in islice(circles({name: draft.deps for name, draft in siblings.items()}), MOST_CIRCLES):
        names = circle if len(circle) <= SHOWN else [*circle[:SHOWN], "…"]
        draft = siblings[circle[0]]
        faults.add(
            draft.at("deps"),
            f"{draft.path}.deps",
            f"workflow is not acyclic: {'→'.join(names)}",
            "remove one dependency",
        )


def circles(after: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """A way round for each circle of dependencies, as [a, b, a]; those of one name only are left out. No recursion."""
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for start in after:
        if start in state:
            continue
        way = [start]
        rest = [iter(after[start])]
        state[start] = 1
        while way:
            following = next(rest[-1], None)
            if following is None:
                state[way.pop()] = 2
                rest.pop()
            elif following == way[-1] or following not in after:
                continue
            elif state.get(following) == 1:
                yield [*way[way.index(following) :], following]
            elif following not in state:
                state[following] = 1
                way.append(following)
                rest.append(iter(after[following]))
