"""Executes a record again, and says where it first comes out differently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Preempt, Start
from paddleflow.scheduling.record import Action, Checkpoint, Decided, Entry, actions_of, apply


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """The first cycle that came out differently, and the first decision in it that did."""

    cycle: int  #: counted from 1
    at: float
    number: int  #: of the decision in the cycle, from 1
    then: str  #: what was decided; "nothing more" if there was nothing
    now: str


@dataclass(slots=True)
class Report:
    """What a stretch of the record holds, and whether it came out the same."""

    begins: float | None = None
    ends: float | None = None
    snapshots: int = 0
    events: int = 0
    cycles: int = 0
    starts: int = 0
    evictions: int = 0
    resizes: int = 0
    difference: DecisionDifference | None = None
    queues: set[str] = field(default_factory=set)

    def count(self, decided: Decided) -> None:
        self.cycles += 1
        self.begins, self.ends = decided.at if self.begins is None else self.begins, decided.at
        for action in decided.actions:
            kind = "starts" if isinstance(action, Start) else "evictions" if isinstance(action, Preempt) else "resizes"
            setattr(self, kind, getattr(self, kind) + 1)


def replay(entries: Iterable[Entry], since: float = float("-inf"), until: float = float("inf")) -> Report:
    """Play the cycles from `since` to `until`, beginning at the last snapshot before them; ends at the first difference."""
    report, core = Report(), None
    for entry in entries:
        if isinstance(entry, Checkpoint):
            core = Core.of(entry.snapshot)
            report.snapshots += 1
        elif core is None:
            continue  # what came before the first snapshot cannot be played
        elif isinstance(entry, Decided):
            if entry.at > until:
                break
            actions = actions_of(core.decide(entry.at, entry.limit))
            if entry.at >= since:
                report.count(entry)
                report.difference = _difference(report.cycles, entry, actions)
                if report.difference is not None:
                    break
        else:
            apply(core, entry)
            report.events += 1
    return report


def _difference(cycle: int, decided: Decided, actions: tuple[Action, ...]) -> DecisionDifference | None:
    then, now = decided.actions, actions
    if then == now:
        return None
    number = next(
        (n for n, pair in enumerate(zip(then, now, strict=False)) if pair[0] != pair[1]), min(len(then), len(now))
    )
    words = [describe(actions[number] if number < len(actions) else None) for actions in (then, now)]
    return DecisionDifference(cycle, decided.at, number + 1, *words)


def describe(action: Action | None) -> str:
    """A decision in words; None: there was none."""
    if action is None:
        return "nothing more"
    if isinstance(action, Start):
        return f"start {action.job} on {', '.join(dict.fromkeys(a.node for a in action.assignments))}"
    if isinstance(action, Preempt):
        return f"end {action.job} for {action.by}"
    return f"{action.job} gets {len(action.added)} members and gives {len(action.removed)}" + (
        f" for {action.by}" if action.by else ""
    )
