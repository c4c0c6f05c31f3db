"""What a component may loop over: a list, a JSON list as text, or what one template of its own names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from paddleflow.spec.pipeline.drafts import Draft
from paddleflow.spec.pipeline.faults import Faults, near, shown
from paddleflow.spec.pipeline.nodes import kind_of
from paddleflow.spec.pipeline.parameters import Unfit, plain
from paddleflow.spec.pipeline.templates import references, single

MOST_LOOP_ITEMS = 10_000


def check_loop(draft: Draft, faults: Faults) -> None:
    loop = draft.loop_argument
    if loop is None:
        return
    mark, where = draft.at("loop_argument"), f"{draft.path}.loop_argument"
    if isinstance(loop, str):
        ref = single(loop.strip())
        if ref:
            if ref.component or (ref.name not in draft.parameters and ref.name not in draft.inputs):
                hint = near(ref.name, [*draft.parameters, *draft.inputs], "it has neither")
                faults.add(
                    mark,
                    where,
                    f"loop_argument {{{{{ref}}}}} is not parameter or input artifact of component[{draft.name}]",
                    hint,
                )
            return
        if references(loop):
            faults.add(
                mark, where, f"loop_argument[{shown(loop)}] is invalid: one template and nothing beside it is wanted"
            )
            return
        try:
            loop = json.loads(loop)
        except (ValueError, RecursionError) as error:
            faults.add(
                mark,
                where,
                f"loop_argument [{shown(loop)}] unmarshal to list failed, error: {error}",
                'such as "[1, 2, 3]"',
            )
            return
    for message, hint in loop_faults(loop):
        faults.add(mark, where, message, hint)


def loop_faults(loop: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with the list that a loop goes over; also for lists that are only known when the step starts."""
    if not isinstance(loop, list):
        yield (
            f"loop_argument should be a list, found {kind_of(loop)} [{shown(loop)}]",
            'a list, a text "[1, 2]", or a template',
        )
        return
    if len(loop) > MOST_LOOP_ITEMS:
        yield (
            f"loop_argument has {len(loop):,} elements, at most {MOST_LOOP_ITEMS:,} are taken",
            "loop over parts, and within them",
        )
        return
    for item in loop:
        if references(item):
            yield f"[{shown(item)}] in loop_argument is a template: elements of a list must not be", ""
            continue
        try:
            plain("loop_argument", item)
        except Unfit as error:
            yield (
                f"[{shown(item)}] in loop_argument is {kind_of(item)}: {error.message}",
                "elements are text, numbers or lists",
            )
