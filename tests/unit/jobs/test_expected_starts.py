"""Where a job waits: on the cluster where it starts notably earlier by the forecast, and nowhere twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.jobs.expected_starts import FRESH, LEAST_GAIN, ExpectedStart, better_here, expected_start
from paddleflow.scheduling.forecast import Forecast, StartForecast

CLUSTERS = ("one", "two", "three")
NOW = 1000.0


def said(
    cluster: str, starts_at: float | None, *, waits_on: str = "one", job: str = "job", **more: object
) -> ExpectedStart:
    fields: dict[str, object] = {"at": NOW, "waits_on": waits_on, **more}
    return ExpectedStart(job, cluster, "queue", starts_at=starts_at, **fields)  # type: ignore[arg-type]  # fields of any type


def moves(*told: ExpectedStart, here: str = "two") -> bool:
    return better_here(told, CLUSTERS, here, NOW) is not None


def test_a_job_goes_where_it_starts_notably_earlier() -> None:
    slow, fast = said("one", NOW + 600), said("two", NOW + 100)
    assert better_here([slow, fast], CLUSTERS, "two", NOW) == ("one", fast)
    assert not moves(slow, said("two", NOW + 500)), "less than a quarter of the wait is gained"
    assert not moves(said("one", NOW + LEAST_GAIN - 1), said("two", NOW)), "less than a minute is gained"
    assert not moves(slow, fast, here="one"), "it is not brought to where it waits"
    assert not moves(slow, fast, here="three"), "nothing is known of that cluster"


def test_the_earliest_of_three_takes_it_and_the_preferred_of_equals() -> None:
    told = (said("one", NOW + 600), said("two", NOW + 100), said("three", NOW + 50))
    assert not moves(*told, here="two")
    assert moves(*told, here="three")
    equals = (said("one", NOW + 600), said("two", NOW + 100), said("three", NOW + 100))
    assert moves(*equals, here="two")
    assert not moves(*equals, here="three")


def test_guesses_move_nothing_but_a_job_that_never_starts_where_it_is() -> None:
    slow, never = said("one", NOW + 600), said("one", None)
    guess, late = said("two", NOW + 100, rests_on="other"), said("two", NOW + 100, beyond=1)
    assert not moves(slow, guess)
    assert not moves(slow, late)
    assert not moves(said("one", NOW + 600, rests_on="other"), said("two", NOW + 100))
    assert moves(said("one", NOW + 600, beyond=1), said("two", NOW + 100)), "it starts later than that"
    assert moves(never, guess)
    assert moves(never, late)
    assert not moves(never, said("two", None))


def test_old_forecasts_do_not_count() -> None:
    old = NOW - FRESH
    assert not moves(said("one", NOW + 600, at=old), said("two", NOW + 100))
    assert not moves(said("one", NOW + 600), said("two", NOW + 100, at=old))


def test_what_a_forecast_says_is_kept_in_few_fields() -> None:
    def kept(forecast: Forecast | None, beyond: float | None = None, unknown: str = "") -> ExpectedStart:
        return expected_start("job", "one", "queue", NOW, StartForecast(forecast, beyond, unknown))

    assert kept(Forecast(10.0, 5.0, 20.0)).starts_at == NOW + 10.0
    assert kept(None).starts_at is None
    assert "not start there as things are" in kept(None).text
    late = kept(None, beyond=50.0)
    assert (late.starts_at, late.beyond) == (NOW + 50.0, 1)
    assert "after" in late.text
    assert "other must end first" in kept(Forecast(10.0, 5.0, 20.0), unknown="other").text


moments = st.none() | st.floats(NOW, NOW + 10_000)
answers = st.builds(
    lambda cluster, job, starts_at, beyond, rests_on: (job, cluster, starts_at, beyond, rests_on),
    st.sampled_from(CLUSTERS), st.sampled_from(["a", "b"]), moments, st.integers(0, 1), st.sampled_from(["", "other"]),
)  # fmt: skip


@given(st.lists(answers), st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(CLUSTERS), min_size=2))
def test_by_the_same_forecasts_a_job_is_moved_once(answers: list[tuple], places: dict[str, str]) -> None:  # type: ignore[type-arg]  # as drawn
    told = {(job, cluster): (starts_at, beyond, rests_on) for job, cluster, starts_at, beyond, rests_on in answers}
    places = dict(places)
    moved: list[str] = []
    for _ in range(6):
        rows = [
            said(cluster, starts_at, waits_on=places[job], job=job, beyond=beyond, rests_on=rests_on)
            for (job, cluster), (starts_at, beyond, rests_on) in told.items()
        ]
        for here in CLUSTERS:
            found = better_here(rows, CLUSTERS, here, NOW)
            if found is not None:
                source, start = found
                assert source == places[start.id] != here
                places[start.id] = here
                moved.append(start.id)
                break
    assert len(moved) == len(set(moved)) or any(told[key][1] or told[key][2] for key in told), (
        "guesses may be corrected once"
    )
    assert len(moved) <= 4
