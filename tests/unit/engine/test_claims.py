"""Claims: of equal cached steps one runs, the others share its success and never its failure."""

from __future__ import annotations

from paddleflow.engine.claims import Claims
from paddleflow.runs.facts import CacheAnswered, Fact, Fingerprints
from paddleflow.runs.model import ComponentStatus
from paddleflow.runs.state import Instance, Phase, RunState, frame_of, plan_of
from paddleflow.spec.pipeline.model import Pipeline, Step

PRINTS = Fingerprints("does", "reads")


def asking(run: str, user: str = "alice") -> tuple[RunState, Instance]:
    plan = plan_of({"s": Step("s", "true")})
    frame = frame_of(0, plan)
    state = RunState(run, user, Pipeline("p", {}), "fs", frame)
    return state, Instance(1, frame, 0, phase=Phase.LOOKUP)


def end(item: Instance, status: ComponentStatus) -> None:
    item.status, item.phase, item.job, item.outputs = status, Phase.ENDED, "job-1", {"out": "path"}


def answer(found: list[tuple[RunState, Fact]]) -> list[tuple[str, CacheAnswered]]:
    return [(run.id, fact) for run, fact in found if isinstance(fact, CacheAnswered)]


def test_the_first_runs_and_the_others_share_its_success() -> None:
    claims = Claims()
    first, second, third = asking("run-1"), asking("run-2"), asking("run-3")
    assert [claims.take(*each, PRINTS) for each in (first, second, third)] == [True, False, False]
    end(first[1], ComponentStatus.SUCCEEDED)
    told = answer(claims.ended([first], 7.0))
    assert [run for run, _ in told] == ["run-2", "run-3"]
    assert all(
        fact.hit is not None and fact.hit.run == "run-1" and fact.hit.outputs == {"out": "path"} for _, fact in told
    )
    assert claims.take(*asking("run-4"), PRINTS), "nobody holds it any more"


def test_a_failure_is_not_shared_and_the_next_one_runs() -> None:
    claims = Claims()
    first, second, third = asking("run-1"), asking("run-2"), asking("run-3")
    for each in (first, second, third):
        claims.take(*each, PRINTS)
    end(first[1], ComponentStatus.FAILED)
    [(run, fact)] = answer(claims.ended([first], 7.0))
    assert (run, fact.hit) == ("run-2", None)
    end(second[1], ComponentStatus.SUCCEEDED)
    [(run, fact)] = answer(claims.ended([second], 8.0))
    assert run == "run-3"
    assert fact.hit is not None
    assert fact.hit.run == "run-2"


def test_one_that_was_stopped_while_it_waited_is_passed_over() -> None:
    claims = Claims()
    first, second, third = asking("run-1"), asking("run-2"), asking("run-3")
    for each in (first, second, third):
        claims.take(*each, PRINTS)
    end(second[1], ComponentStatus.CANCELLED)
    end(first[1], ComponentStatus.FAILED)
    assert [run for run, _ in answer(claims.ended([first], 7.0))] == ["run-3"]


def test_users_and_fingerprints_share_nothing() -> None:
    claims = Claims()
    assert claims.take(*asking("run-1"), PRINTS)
    assert claims.take(*asking("run-2", "bob"), PRINTS)
    assert claims.take(*asking("run-3"), Fingerprints("does", "reads other files"))


def test_a_step_that_ran_when_the_engine_stopped_holds_its_claim_again() -> None:
    claims = Claims()
    run, item = asking("run-1")
    item.prints = PRINTS
    claims.restore(run, item)
    assert not claims.take(*asking("run-2"), PRINTS)
    assert answer(claims.ended([asking("run-9")], 7.0)) == []
