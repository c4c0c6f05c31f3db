"""The times that a crontab means. Pure; the one place that knows the cron library.

A crontab has five fields (minute, hour, day of month, month, day of week), or is a descriptor (``@daily``), or ``@every
1h30m``, which counts from an anchor. A prefix ``CRON_TZ=Europe/Berlin`` names the zone. `next` depends on its argument
only, so it does not matter where one begins to count: no slot is lost or met twice, whenever the loop looked last.

When the clocks change, what is bound to hours of the day keeps to them as Debian's cron has it: a slot inside the hour that
is left out comes at its end, a slot inside the hour that comes twice comes once, the first time. What comes every minute or
every hour (a field that begins with ``*``) goes on through both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass

DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)", re.ASCII | re.DOTALL)
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|m|s|ms)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST_EVERY = 366 * 86400  #: seconds
_FIRST_WINDOW = 3600.0
_LONGEST = 200  #: characters of a crontab


class ServerZone(tzinfo):
    """The time zone of this process, as the C library has it, with its changes of the clocks."""

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, at: datetime | None) -> timedelta | None:
        return None

    def tzname(self, at: datetime | None) -> str | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, at: datetime) -> datetime:
        return datetime.fromtimestamp(at.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)  # noqa: DTZ006 local is meant


SERVER = ServerZone()


def zone(name: str) -> tzinfo:
    """The zone of a name such as ``Europe/Berlin``; empty: the server's. ValueError for a name that is not known."""
    if not name:
        return SERVER
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        hint = nearest(name[:80], available_timezones())
        hint = hint if hint.startswith("did") else "give one such as Europe/Berlin or UTC"
        raise ValueError(f"timezone[{name[:80]}] is not known, {hint}") from error


@dataclass(frozen=True, slots=True)
class Timetable:
    """The slots of one crontab. `every` is 0 for one that is not ``@every``."""

    fields: str
    zone: tzinfo
    every: float
    anchor: float

    def next(self, after: float) -> float | None:
        """The first slot strictly after a moment; None when there is none for fifty years."""
        if self.every:
            return self.anchor + (math.floor((after - self.anchor) / self.every) + 1) * self.every
        try:
            for at in CronSim(self.fields, datetime.fromtimestamp(math.floor(after), UTC).astimezone(self.zone)):
                slot = at.timestamp()
                if slot > after:  # in the hour that comes twice the library begins with the first one
                    return slot
        except (OverflowError, ValueError):  # beyond the year 9999
            return None
        return None

    def slots(self, first: float | None, until: float) -> Iterator[float]:
        """`first` and all that follow it, up to a moment that counts too."""
        slot = first
        while slot is not None and slot <= until:
            yield slot
            slot = self.next(slot)

    def newest(self, count: int, first: float, until: float) -> float | None:
        """The slot with which the newest `count` slots between `first` and `until` begin; None when there are none.

        Looks at the end first, so a year of missed minutes does not cost a year of minutes.
        """
        window = max(_FIRST_WINDOW, self.every * count)
        while True:
            begin = until - window
            whole = begin < first
            found = list(self.slots(first if whole else self.next(begin), until))
            if whole or len(found) >= count:
                return found[-count:][0] if found else None
            window *= 4


@lru_cache(maxsize=1024)
def parse(crontab: str, timezone: str = "", anchor: float = 0.0) -> Timetable:
    """The timetable of a crontab; ValueError says what is wrong with it."""
    text, name = " ".join(crontab.split()), timezone
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} characters, at most {_LONGEST} are read")
    if prefix := _PREFIX.fullmatch(text):
        name, text = prefix[1], prefix[2]
        if timezone and timezone != name:
            raise ValueError(
                f"it names the zone {name[:80]}, but timezone is {timezone[:80]}: give only one of the two"
            )
    if text.startswith("@every "):
        return Timetable(text, zone(name), _every(text.removeprefix("@every ")), math.floor(anchor))
    if text.startswith("@"):
        if text not in DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {text[:40]}, {nearest(text[:40], [*DESCRIPTORS, '@every 1h'])}")
        text = DESCRIPTORS[text]
    parts = ["*" if part == "?" else part for part in text.split(" ")]
    if not text or len(parts) != 5:
        count = len(parts) if text else 0
        raise ValueError(f"expected exactly 5 fields (minute hour day month weekday), found {count}: [{text[:80]}]")
    found = Timetable(" ".join(parts), zone(name), 0.0, 0.0)
    try:
        never = found.next(0.0) is None
    except CronSimError as error:
        raise ValueError(f"{error} in [{text[:80]}]") from error
    if never:
        raise ValueError(f"[{text[:80]}] names a day that never comes")
    return found


def _every(text: str) -> float:
    """Seconds of a duration such as ``1h30m``; whole ones, as slots are."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"failed to parse duration @every {text[:40]}: wanted such as 90s, 5m or 1h30m")
    seconds = math.floor(sum(float(number) * _SECONDS[unit] for number, unit in (part.groups() for part in parts)))
    if not 1 <= seconds <= _LONGEST_EVERY:
        raise ValueError(f"@every {text[:40]} is {seconds} seconds: wanted 1 second to 366 days")
    return float(seconds)
