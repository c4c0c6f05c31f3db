"""The run machine against a naive reference: random pipelines, random outcomes, random order, and restarts at any moment."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.runs.facts import BreakpointsSet, JobEnded, StopRequested, TimePassed
from paddleflow.runs.model import PAUSED
from paddleflow.spec.pipeline.model import CONTINUE, FAIL_FAST, Cache, Component, Dag, Pipeline, Retry, Step
from tests.run_world import RunWorld, run_row

GOOD = {"succeeded", "skipped"}


@st.composite
def components(draw: st.DrawFn, depth: int = 2) -> dict[str, Component]:
    count = draw(st.integers(1, 5))
    made: dict[str, Component] = {}
    for number in range(count):
        name = f"c{number}"
        deps = tuple(draw(st.lists(st.sampled_from(sorted(made)), unique=True, max_size=3))) if made else ()
        loop = draw(st.sampled_from([None, None, None, [], [1, 2, 3], "[1, 2]", "not a list"]))
        condition = draw(st.sampled_from(["", "", "", "1 > 2", "2 > 1", "{{PF_LOOP_ARGUMENT}} == 2"]))
        if depth and draw(st.integers(0, 3)) == 0:
            inner = draw(components(depth - 1))
            made[name] = Dag(name, inner, deps=deps, condition=condition, loop_argument=loop)
        else:
            outputs = draw(st.sampled_from([(), ("out",)]))
            cache = Cache(enable=draw(st.booleans()))
            retry = Retry(times=draw(st.sampled_from([0, 0, 1])), delay=1.0)
            made[name] = Step(
                name,
                "true",
                deps=deps,
                condition=condition,
                loop_argument=loop,
                outputs=outputs,
                cache=cache,
                retry=retry,
            )
    return made


@st.composite
def pipelines(draw: st.DrawFn, strategy: str) -> Pipeline:
    post = draw(st.sampled_from([None, Step("last", "true")]))
    return Pipeline("p", draw(components()), post, parallelism=draw(st.integers(1, 4)), strategy=strategy)


def fails(seed: int, name: str, attempt: int) -> bool:
    """Whether a try of a step fails: the same whatever the order."""
    return random.Random(f"{seed}/{name}/{attempt}").random() < 0.15


def hits(seed: int, name: str) -> bool:
    return random.Random(f"{seed}/cache/{name}").random() < 0.2


def reference(children: Mapping[str, Component], path: str, seed: int) -> dict[str, str]:
    """What becomes of every component with `continue`, by looking at them in order, without any machine."""
    found: dict[str, str] = {}
    whole: dict[str, str] = {}
    for name, child in children.items():
        if not all(whole[dep] in GOOD for dep in child.deps):
            found[path + name] = whole[name] = "cancelled"
            continue
        items = {"[1, 2]": [1, 2], "not a list": None}.get(str(child.loop_argument), child.loop_argument)
        if child.loop_argument == "not a list":
            found[path + name] = whole[name] = "failed"
            continue
        if items == []:
            found[path + name] = whole[name] = "skipped"
            continue
        elements = [""] if child.loop_argument is None else list(items or [])
        ends = []
        for seq, element in enumerate(elements):
            full = path + name + (f"-{seq}" if seq else "")
            ends.append(_element(child, element, full, seed, found))
        order = ("failed", "terminated", "cancelled", "succeeded")
        whole[name] = next((word for word in order if word in ends), "skipped")
    found[path] = next((word for word in ("failed", "terminated", "cancelled") if word in whole.values()), "succeeded")
    return found


def _element(child: Component, element: object, full: str, seed: int, found: dict[str, str]) -> str:
    holds = {"": True, "1 > 2": False, "2 > 1": True, "{{PF_LOOP_ARGUMENT}} == 2": str(element) == "2"}
    if not holds[child.condition]:
        end = "skipped"
    elif isinstance(child, Dag):
        inner = reference(child.children, f"{full}.", seed)
        end = inner.pop(f"{full}.")
        found.update(inner)
    elif child.cache.enable and hits(seed, full):
        end = "succeeded"
    else:
        tries = range(1, child.retry.times + 2)
        end = "failed" if all(fails(seed, full, attempt) for attempt in tries) else "succeeded"
    found[full] = end
    return end


def drive(world: RunWorld, seed: int, choices: random.Random, restarts: float = 0.0) -> None:
    """Tell facts and end jobs in any order until the run has ended; lose the memory now and then."""
    tries: dict[str, int] = {}
    for _ in range(5000):
        if world.state.status.final:
            return
        untold = sum(isinstance(fact, JobEnded) for fact in world.pending)
        assert world.state.running <= world.pipeline.parallelism + untold
        assert len(world.running) <= world.pipeline.parallelism
        followers = world.followers
        if followers and choices.random() < 0.5:
            world.follow(choices.choice(followers))
            continue
        if restarts and choices.random() < restarts:
            world.restart()
            continue
        moves = len(world.pending) + len(world.running)
        if not moves:
            due = world.state.next_due()
            assert due is not None, f"the run hangs: {world.statuses} {world.state}"
            world.tell(TimePassed(due))
            continue
        pick = choices.randrange(moves)
        if pick < len(world.pending):
            world.tell(world.pending.pop(pick))
        else:
            number = sorted(world.running)[pick - len(world.pending)]
            item = world.state.instances[number]
            if number in world.stops:
                world.end_job(number, "terminated", "stopped")
            elif fails(seed, item.full_name, item.tries):
                world.end_job(number, "failed", "exit 1", 1)
            else:
                world.end_job(number, "succeeded")
            tries[item.full_name] = item.tries
    raise AssertionError("the run does not end")


def check_deps(world: RunWorld) -> None:
    """What was started had all its deps; looked at from the rows."""
    rows = list(world.rows.values())
    for row in rows:
        if not row["tries"]:
            continue
        siblings = {other["name"]: other for other in rows if other["parent"] == row["parent"]}
        component = _find(world.pipeline, world.rows, row)
        for dep in component.deps:
            ends = [str(other["status"]) for other in rows if (other["parent"], other["name"]) == (row["parent"], dep)]
            assert ends, (row["full_name"], dep, siblings.keys())
            assert set(ends) <= GOOD, f"{row['full_name']} was started, but {dep} is {ends}"


def _find(pipeline: Pipeline, rows: Mapping[int, Mapping[str, object]], row: Mapping[str, object]) -> Component:
    path = [str(row["name"])]
    parent = row["parent"]
    while isinstance(parent, int) and parent > 0:
        path.append(str(rows[parent]["name"]))
        parent = rows[parent]["parent"]
    if parent == -1:
        assert pipeline.post_process is not None
        return pipeline.post_process
    children: Mapping[str, Component] = pipeline.entry_points
    for name in reversed(path[1:]):
        dag = children[name]
        assert isinstance(dag, Dag)
        children = dag.children
    return children[path[0]]


@settings(max_examples=150)
@given(pipelines(CONTINUE), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.0, 0.0, 0.2]))
def test_with_continue_every_component_ends_as_the_reference_says(
    pipeline: Pipeline, seed: int, order: int, restarts: float
) -> None:
    world = RunWorld(pipeline, hits=lambda name: hits(seed, name))
    drive(world, seed, random.Random(order), restarts)
    expected = reference(pipeline.entry_points, "", seed)
    whole = expected.pop("")
    if pipeline.post_process is not None:
        last = "failed" if fails(seed, "last", 1) else "succeeded"
        expected["last"] = last
        assert world.started.count("last") == 1
        whole = "failed" if "failed" in {last, whole} else whole
    assert world.statuses == expected
    assert str(world.state.status) == ("succeeded" if whole == "succeeded" else "failed")
    assert world.finished == 1
    check_deps(world)


@settings(max_examples=100)
@given(pipelines(FAIL_FAST), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0.0, 0.15]))
def test_with_fail_fast_nothing_begins_after_the_first_failure(
    pipeline: Pipeline, seed: int, order: int, restarts: float
) -> None:
    world = RunWorld(pipeline, hits=lambda name: hits(seed, name))
    drive(world, seed, random.Random(order), restarts)
    ends = set(world.statuses.values())
    assert ends <= {"succeeded", "failed", "terminated", "cancelled", "skipped"}
    assert str(world.state.status) == ("succeeded" if ends <= GOOD else "failed")
    if pipeline.post_process is not None:
        assert world.started.count("last") == 1
    check_deps(world)


@settings(max_examples=60)
@given(pipelines(FAIL_FAST), st.integers(0, 10**6), st.integers(0, 40), st.booleans(), st.booleans())
def test_a_stop_at_any_moment_ends_the_run(
    pipeline: Pipeline, seed: int, moment: int, force: bool, restarted: bool
) -> None:
    world = RunWorld(pipeline)
    choices = random.Random(seed)
    for _ in range(moment):
        if world.state.status.final or not world.pending:
            break
        world.tell(world.pending.pop(choices.randrange(len(world.pending))))
    if world.state.status.final:
        return
    before = len(world.started)
    if restarted:
        world.row.update(stop=2 if force else 1, status="terminating", message="stopped by alice")
        world.restart()
    else:
        world.tell(StopRequested(world.now, force, "stopped by alice"))
    assert set(world.stops) >= {number for number in world.running if world.rows[number]["parent"] != -1}
    drive(world, seed, choices)
    begun = world.started[before:]
    assert begun == ([] if force or pipeline.post_process is None or "last" in world.started[:before] else ["last"])
    ends = set(world.statuses.values())
    if "failed" not in ends and ends & {"terminated", "cancelled"}:
        assert (str(world.state.status), world.state.message) == ("terminated", "stopped by alice")


@settings(max_examples=50)
@given(pipelines(CONTINUE), st.integers(0, 10**6), st.integers(0, 10**6))
def test_equal_histories_give_equal_commands(pipeline: Pipeline, seed: int, order: int) -> None:
    first, second = (RunWorld(pipeline, hits=lambda name: hits(seed, name)) for _ in range(2))
    for world in (first, second):
        drive(world, seed, random.Random(order))
    assert first.history == second.history
    assert first.rows == second.rows


def test_a_chain_far_longer_than_the_stack() -> None:
    steps: dict[str, Component] = {"s0": Step("s0", "true", condition="1 > 2")}
    for number in range(1, 5000):
        steps[f"s{number}"] = Step(f"s{number}", "true", deps=(f"s{number - 1}",), condition="1 > 2")
    world = RunWorld(Pipeline("p", steps))
    assert world.state.status == "succeeded"
    assert set(world.statuses.values()) == {"skipped"}


def test_a_disabled_component_is_skipped_and_what_follows_runs() -> None:
    steps: dict[str, Component] = {"a": Step("a", "true"), "b": Step("b", "true", deps=("a",))}
    world = RunWorld(Pipeline("p", steps, disabled=frozenset({"a"})))
    assert world.statuses["a"] == "skipped"
    assert world.started == ["b"]


def test_a_breakpoint_pauses_until_it_is_taken_away_also_after_a_restart() -> None:
    inner: dict[str, Component] = {"x": Step("x", "true")}
    steps: dict[str, Component] = {"a": Step("a", "true"), "d": Dag("d", inner, deps=("a",), loop_argument=[1, 2])}
    pipeline = Pipeline("p", steps)
    world = RunWorld(pipeline, row=run_row(pipeline, breakpoints='["d", "d.x"]'))
    world.end_job(1, "succeeded")
    world.tell(world.pending.pop())
    assert [(row["full_name"], row["message"]) for row in world.rows.values() if row["status"] == "pending"] == [
        ("d", PAUSED)
    ]
    world.restart()
    assert world.started == ["a"]
    world.tell(BreakpointsSet(world.now, frozenset({"d.x"})))
    paused = [row["full_name"] for row in world.rows.values() if row["message"] == PAUSED]
    assert paused == ["d.x", "d-1.x"]
    world.row["breakpoints"] = "[]"
    world.restart()
    assert world.started[1:] == ["d.x", "d-1.x"]
    drive(world, 0, random.Random(1))


def test_a_retry_waits_longer_each_time_and_only_after_its_exit_codes() -> None:
    retry = Retry(times=2, delay=4.0, factor=3.0, most=10.0, exit_codes=(7,))
    world = RunWorld(Pipeline("p", {"a": Step("a", "true", retry=retry)}))
    for wanted in (4.0, 10.0):
        world.pending.clear()
        world.end_job(1, "failed", "exit 7", 7)
        world.tell(world.pending.pop())
        assert world.state.next_due() == world.now + wanted
        world.restart()
        world.tell(TimePassed(world.now + wanted - 0.1))
        assert not world.running
        world.tell(TimePassed(world.now + 0.1))
        assert list(world.running) == [1]
    world.pending.clear()
    world.end_job(1, "failed", "exit 8", 8)
    world.tell(world.pending.pop())
    assert world.state.status == "failed"
    assert world.rows[1]["tries"] == 3


def test_a_try_that_runs_too_long_is_stopped_and_has_failed() -> None:
    world = RunWorld(Pipeline("p", {"a": Step("a", "true", timeout=5.0)}))
    world.tell(world.pending.pop())
    world.tell(TimePassed(world.now + 4.9))
    assert not world.stops
    world.restart()
    world.tell(TimePassed(world.now + 0.2))
    assert world.stops == [1]
    world.end_job(1, "terminated", "stopped")
    world.tell(world.pending.pop())
    assert world.state.status == "failed"
    assert "timeout of 5 s" in world.rows[1]["message"]


def test_a_later_try_has_its_whole_time_also_after_a_restart() -> None:
    step = Step("a", "true", timeout=5.0, retry=Retry(times=1, delay=1.0))
    world = RunWorld(Pipeline("p", {"a": step}))
    world.tell(world.pending.pop())
    world.now += 4.0
    world.end_job(1, "failed", "exit 1", 1)
    world.tell(world.pending.pop())
    world.tell(TimePassed(world.now + 1.0))
    world.tell(world.pending.pop())
    world.restart()
    world.tell(TimePassed(world.now + 4.9))
    assert not world.stops
    world.tell(TimePassed(world.now + 0.2))
    assert world.stops == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not there"),
        ("{", "not a JSON list"),
        ('{"a": 1}', "must be a list"),
        ("[" + "1," * 100_000 + "1]", "at most 10,000"),
    ],
)
def test_a_loop_over_a_file_that_is_no_list_fails_in_words(content: str, message: str) -> None:
    steps: dict[str, Component] = {
        "a": Step("a", "true", outputs=("list",)),
        "b": Step("b", "true", deps=("a",), inputs={"list": "{{a.list}}"}, loop_argument="{{list}}"),
    }
    world = RunWorld(Pipeline("p", steps), files={"list": content} if content else {})
    drive(world, 1, random.Random(3))
    assert world.statuses["b"] == "failed"
    assert message in next(row["message"] for row in world.rows.values() if row["name"] == "b")
