"""A run as a tree: one line per step, readable without colour. Pure: a record in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from paddleflow.sdk.runs import DagView, RunRecord, StepView, View, Views

MARKS = {
    "succeeded": "✓",
    "failed": "✗",
    "running": "▶",
    "terminating": "■",
    "terminated": "■",
    "cancelled": "–",
    "skipped": "–",
    "pending": "·",
    "init": "·",
}
ENDED = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped"})


def tree(record: RunRecord, reason: Callable[[StepView], str] = lambda step: "") -> list[str]:
    """The whole run; `reason` tells why a step is pending."""
    head = f"{record.id} {record.name} {record.status}" + (f": {record.message}" if record.message else "")
    facts = {
        "user": record.user,
        "storage": record.fs,
        "retry of": record.retry_of,
        "schedule": record.schedule_id,
        "started": record.activate_time or record.create_time,
        "paused before": ", ".join(record.paused),
        "breakpoints": ", ".join(record.breakpoints),
    }
    return [head, *(f"  {name}: {value}" for name, value in facts.items() if value), *branches(record, reason)]


def branches(record: RunRecord, reason: Callable[[StepView], str]) -> list[str]:
    """The components, one line each; the post_process step last."""
    rows = _rows(record.runtime)
    rows += [(f"{one.step_name or one.name} (post_process)", one) for one in record.post_process.values()]
    held_back = _held_back(record.runtime) if record.status == "running" else {}
    return list(_drawn(rows, "", reason, held_back))


def _held_back(found: Views) -> dict[str, str]:
    """Why components of a level that has begun have not: what they wait for, by name."""
    ended = {name for name, several in found.items() if all(one.status in ENDED for one in several)}
    why = {}
    for name, several in found.items():
        left = [dep for dep in several[0].deps.split(",") if dep and dep not in ended] if several else []
        why[name] = f"waits for {', '.join(left)}" if left else "waits for running steps to end (parallelism)"
    return why


def _rows(found: Views) -> list[tuple[str, View]]:
    """Components with their titles; repetitions of a loop have their number."""
    return [
        (name if len(several) == 1 else f"{name}[{number}]", one)
        for name, several in found.items()
        for number, one in enumerate(several)
    ]


def _drawn(
    rows: Sequence[tuple[str, View]], indent: str, reason: Callable[[StepView], str], held_back: Mapping[str, str]
) -> Iterator[str]:
    wide = max((len(title) for title, _ in rows), default=0)
    for number, (title, one) in enumerate(rows):
        end = number == len(rows) - 1
        why = held_back.get(title, "") if one.status == "init" and not one.message else ""
        yield f"{indent}{'└─' if end else '├─'} {_line(title, one, wide, reason)}  {why}".rstrip()
        if isinstance(one, DagView):
            inside = _held_back(one.entry_points) if one.status == "running" else {}
            yield from _drawn(_rows(one.entry_points), f"{indent}{'   ' if end else '│  '}", reason, inside)


def _line(title: str, one: View, wide: int, reason: Callable[[StepView], str]) -> str:
    words = [f"{MARKS.get(one.status, '?')} {title.ljust(wide)}  {one.status.ljust(10)}"]
    if one.seconds:
        words.append(duration(one.seconds))
    if isinstance(one, StepView):
        words.append(how(one))
    if one.message not in words:
        words.append(one.message)
    if isinstance(one, StepView) and one.status in {"pending", "running"}:
        words += [one.job_id, reason(one)]
    return "  ".join(word for word in words if word)


def how(step: StepView) -> str:
    """Whether a step ran or was reused, and if it could not be, what had changed."""
    if step.reused_from:
        return f"reused from {step.reused_from}"
    words = []
    if step.tries > 1:
        words.append(f"{step.tries} tries")
    if step.cache_miss:
        words.append(f"not reused: {', '.join(step.cache_miss)}")
    return "; ".join(words)


def duration(seconds: float) -> str:
    """Seconds for people: ``3.2 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
