"""The times of crontabs: zones, changes of the clocks, descriptors, and that no slot is lost or met twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.schedules.timetable import SERVER, Timetable, parse, zone

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def following(table: Timetable, after: float, count: int) -> list[str]:
    """The next slots as people in that zone read them."""
    found = []
    slot: float | None = after
    for _ in range(count):
        assert slot is not None
        slot = table.next(slot)
        assert slot is not None
        found.append(datetime.fromtimestamp(slot, table.zone).strftime("%m-%d %H:%M%z"))
    return found


def test_a_slot_is_strictly_after_the_moment() -> None:
    table = parse("*/5 * * * *", "UTC")
    noon = at("2026-05-01 12:00", ZoneInfo("UTC"))
    assert table.next(noon) == noon + 300
    assert table.next(noon - 0.5) == noon
    assert table.next(noon + 299.9) == noon + 300


def test_in_spring_a_slot_of_the_hour_left_out_comes_at_its_end() -> None:
    table = parse("30 2 * * *", "Europe/Berlin")
    assert following(table, at("2026-03-28 12:00"), 2) == ["03-29 03:00+0200", "03-30 02:30+0200"]
    both = parse("0,30 2 * * *", "Europe/Berlin")
    assert following(both, at("2026-03-28 12:00"), 2) == ["03-29 03:00+0200", "03-30 02:00+0200"]


def test_in_autumn_a_slot_of_the_hour_that_comes_twice_comes_once() -> None:
    table = parse("30 2 * * *", "Europe/Berlin")
    assert following(table, at("2026-10-24 12:00"), 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]
    assert following(table, at("2026-10-25 02:10", fold=1), 1) == ["10-26 02:30+0100"], "seen from the second hour"


def test_what_comes_every_half_hour_goes_on_through_the_changes() -> None:
    table = parse("*/30 * * * *", "Europe/Berlin")
    assert following(table, at("2026-03-29 01:00"), 3) == ["03-29 01:30+0100", "03-29 03:00+0200", "03-29 03:30+0200"]
    assert following(table, at("2026-10-25 02:00"), 4) == [
        "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100", "10-25 03:00+0100",
    ]  # fmt: skip


def test_every_counts_from_its_anchor() -> None:
    table = parse("@every 1h30m", "", 1_000_000.7)
    assert table.next(1_000_000.7) == 1_005_400
    assert table.next(1_005_400) == 1_010_800
    assert table.next(1_005_399.9) == 1_005_400


@pytest.mark.parametrize(
    ("descriptor", "fields"),
    [("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
     ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("0 0 ? * MON", "0 0 * * MON")],
)  # fmt: skip
def test_descriptors(descriptor: str, fields: str) -> None:
    assert following(parse(descriptor, "UTC"), 0.0, 3) == following(parse(fields, "UTC"), 0.0, 3)


def test_the_zone_may_stand_in_the_crontab() -> None:
    assert parse("CRON_TZ=Asia/Tokyo 0 9 * * *") == parse("0 9 * * *", "Asia/Tokyo")
    assert following(parse("TZ=Asia/Tokyo 0 9 * * *"), 0.0, 1) == ["01-02 09:00+0900"]


@pytest.mark.parametrize(
    ("crontab", "fault"),
    [
        ("* * * *", "expected exactly 5 fields (minute hour day month weekday), found 4: [* * * *]"),
        ("0 * * * * *", "expected exactly 5 fields (minute hour day month weekday), found 6: [0 * * * * *]"),
        ("", "expected exactly 5 fields (minute hour day month weekday), found 0: []"),
        ("61 * * * *", "Bad minute in [61 * * * *]"),
        ("0 0 31 4 *", "Bad day-of-month in [0 0 31 4 *]"),
        ("@dayly", "unrecognized descriptor: @dayly, did you mean @daily?"),
        ("@every soon", "failed to parse duration @every soon: wanted such as 90s, 5m or 1h30m"),
        ("@every 0s", "@every 0s is 0 seconds: wanted 1 second to 366 days"),
        ("CRON_TZ=Europe/Berln * * * * *", "timezone[Europe/Berln] is not known, did you mean Europe/Berlin?"),
        ("CRON_TZ=UTC * * * * *", "it names the zone UTC, but timezone is Europe/Berlin: give only one of the two"),
        ("*" * 300, "it has 300 characters, at most 200 are read"),
    ],
)
def test_bad_crontabs_say_what_is_wrong(crontab: str, fault: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse(crontab, "Europe/Berlin" if "TZ=UTC" in crontab else "")
    assert str(refused.value) == fault


def test_a_zone_is_a_name_and_not_a_path() -> None:
    for name in ("../../etc/passwd", "/etc/localtime", "Europe", "a\x00b", "Mars/Base"):
        with pytest.raises(ValueError, match="is not known"):
            zone(name)


@pytest.fixture
def server_in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("server_in_berlin")
@pytest.mark.parametrize("crontab", ["30 2 * * *", "*/30 * * * *", "0 0 * * *", "15 1-4 * * *"])
@pytest.mark.parametrize("begin", ["2026-03-28 12:00", "2026-10-24 12:00"])
def test_the_server_s_own_zone_changes_its_clocks_too(crontab: str, begin: str) -> None:
    own, named = parse(crontab, ""), parse(crontab, "Europe/Berlin")
    assert own.zone is SERVER
    slot_own: float | None = at(begin)
    slot_named: float | None = at(begin)
    for _ in range(60):
        assert slot_own is not None
        assert slot_named is not None
        slot_own, slot_named = own.next(slot_own), named.next(slot_named)
        assert slot_own == slot_named


CRONTABS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 */2 * * *", "0 0 1 * *", "0 3 * * 0", "@every 37s",
     "@every 1h", "@daily", "5 2 25-31 3,10 *"]
)  # fmt: skip
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", ""])
#: around the changes of the clocks of 2026, and anywhere
MOMENTS = st.one_of(
    st.sampled_from([at("2026-03-29 01:00"), at("2026-10-25 02:00"), at("2026-03-08 06:00"), at("2026-11-01 05:00")]).flatmap(
        lambda base: st.floats(base - 90_000, base + 90_000)
    ),
    st.floats(1.6e9, 1.9e9),
)  # fmt: skip


@given(CRONTABS, ZONES, MOMENTS, st.floats(1, 200_000))
def test_it_does_not_matter_where_one_begins_to_count(crontab: str, name: str, begin: float, ahead: float) -> None:
    """The slots of a span are the same whether it is walked through, or looked at from any moment inside it."""
    table = parse(crontab, name, begin)
    until = begin + min(ahead, 40_000 if crontab.startswith(("*", "@every 37")) else ahead)
    slots = list(table.slots(table.next(begin), until))
    assert slots == sorted(set(slots))
    assert all(begin < slot <= until for slot in slots)
    middle = (begin + until) / 2
    assert list(table.slots(table.next(middle), until)) == [slot for slot in slots if slot > middle]


@given(CRONTABS, ZONES, MOMENTS, st.integers(1, 12), st.floats(1, 400_000))
def test_the_newest_are_found_from_the_end(crontab: str, name: str, begin: float, count: int, ahead: float) -> None:
    table = parse(crontab, name, begin)
    until = begin + min(ahead, 40_000 if crontab.startswith(("*", "@every 37")) else ahead)
    first = table.next(begin)
    assert first is not None
    slots = list(table.slots(first, until))
    assert table.newest(count, first, until) == (slots[-count:][0] if slots else None)


def test_a_year_of_missed_minutes_is_not_walked_through() -> None:
    looked: list[float] = []

    class Counting(Timetable):
        def next(self, after: float) -> float | None:
            looked.append(after)
            return Timetable.next(self, after)

    table = parse("* * * * *", "UTC")
    counting = Counting(table.fields, table.zone, table.every, table.anchor)
    end = datetime(2026, 6, 1, tzinfo=UTC).timestamp()
    assert counting.newest(3, end - 366 * 86400, end) == end - 120
    assert len(looked) < 500
