"""Who calls, for every request, without asking the database each time; and logins.

Guarantees:

* A token ended here (logout, password change, deleted user) does not count any more when the call that ended it
  returns. Ended by another replica, it counts for at most `TTL` seconds more.
* Failed logins of one name from one address, and of all names from one address, make the next attempt wait, twice as
  long each time; they are counted in the database, so over all replicas. Attempts on one name from one address wait for
  each other, so that many at once cannot slip under the limit. Nobody can lock out somebody who comes from elsewhere.
* A stream ends with its token: at once when that was ended here, within `CHECK_EVERY` seconds otherwise.
* A login of an unknown user takes as long as one with a wrong password, and is refused with the same words.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from weakref import WeakValueDictionary

from paddleflow.access import tokens, users
from paddleflow.access.callers import ROOT, Caller, is_root
from paddleflow.access.passwords import UNKNOWN, Passwords
from paddleflow.base import names
from paddleflow.base.clock import Clock
from paddleflow.base.values import dataclass
from paddleflow.errors import TooMany, Unauthenticated
from paddleflow.settings import AccessSettings
from paddleflow.store.database import Database, Tx

TTL = 2.0  #: seconds that an answer of the database is believed
CHECK_EVERY = 10.0  #: seconds between two checks of a stream's token; another server may have ended it
LONGEST_PAUSE = 60.0  #: seconds between two attempts, however many failed
NAMES_PER_ADDRESS = 10  #: failures of one address over all names, as a multiple of those of one name
MOST_PENDING = 16  #: logins of one address at once: a hash takes 40 ms of a processor
_MOST = 50_000  #: tokens remembered


@dataclass(frozen=True, slots=True)
class Session:
    """A token that counts."""

    caller: Caller
    expires_at: float
    until: float  #: ask the database again from then on


class Sessions:
    """One per server: the memory of valid tokens, and the logins that make new ones."""

    def __init__(self, database: Database, clock: Clock, settings: AccessSettings) -> None:
        self.passwords = Passwords()
        self._database = database
        self._clock = clock
        self._settings = settings
        self._known: dict[str, Session] = {}
        self._changes = 0  # a look-up that began before a change must not be remembered
        self._changed = asyncio.Event()  #: set and replaced at each change
        self._logins: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._pending: Counter[str] = Counter()  #: logins in work, by address

    def cached(self, token: str) -> Caller | None:
        """The caller, if the token was looked up a moment ago."""
        session = self._known.get(tokens.digest(token))
        return session.caller if session is not None and self._clock.now() < session.until else None

    async def look_up(self, token: str) -> Session:
        """The session of a token; Unauthenticated when it does not count."""
        token_hash = tokens.digest(token)
        changes = self._changes
        row = await self._database.read(tokens.find, token_hash)
        now = self._clock.now()
        if row is None or row.expires_at <= now:
            self._known.pop(token_hash, None)
            raise Unauthenticated("the token is invalid or has expired", code="AuthInvalidToken", hint="log in again")
        # The token of a mount is good for one storage, whoever it belongs to.
        caller = Caller(row.user_name, is_root(row.user_name) and ":" not in row.scope, row.scope, row.user_id)
        session = Session(caller, row.expires_at, min(row.expires_at, now + TTL))
        if changes == self._changes:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[token_hash] = session
        return session

    def forget(self) -> None:
        """Tokens may have ended: believe nothing that was looked up before. Call it after the write."""
        self._changes += 1
        self._known.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    async def ended(self, token: str) -> None:
        """Return when the token counts no more: for streams, which must not outlive it."""
        while True:
            try:
                session = await self.look_up(token)
            except Unauthenticated:
                return
            changes = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(CHECK_EVERY, session.expires_at - self._clock.now()))):
                    await changes.wait()

    async def login(self, name: str, password: str, address: str = "") -> str:
        """A new token. Unauthenticated AuthFailed when name and password do not fit, TooMany when it is too early."""
        user = users.canonical(name)
        if self._pending[address] >= MOST_PENDING:
            raise _too_early("too many logins at once from this address", 1)
        self._pending[address] += 1
        try:
            async with self._logins.setdefault((user, address), asyncio.Lock()):
                stored = await self._database.read(_attempt, user, address, self._clock.now(), self._settings)
                if not await self.passwords.matches(stored or UNKNOWN, password) or not stored:
                    if not names.USER.fault(user):
                        await self._database.write(_failed, user, address, self._clock.now(), self._settings)
                    raise _refused()
                return await self._database.write(_succeeded, user, stored, self._clock.now(), self._settings)
        finally:
            self._pending[address] -= 1
            if not self._pending[address]:
                del self._pending[address]

    async def logout(self, token: str) -> None:
        await self._database.write(tokens.end, tokens.digest(token))
        self.forget()


def _attempt(tx: Tx, user: str, address: str, now: float, settings: AccessSettings) -> str:
    """The password's hash to compare with, empty for an unknown user; TooMany when it is too early for another attempt.

    Failures count by name and address, and by address for whoever tries many names. So nobody can keep somebody else out
    who comes from elsewhere, and who guesses waits twice as long after each further failure.
    """
    since, free = now - settings.login_window, settings.login_attempts
    of_name = tx.one(users.SQL["failures_of_name"], user_name=user, address=address, since=since)
    of_address = tx.one(users.SQL["failures_of_address"], address=address, since=since)
    for row, most in ((of_name, free), (of_address, free * NAMES_PER_ADDRESS)):
        if row is not None and row["failures"] >= most:
            pause = min(2.0 ** min(row["failures"] - most, 30), LONGEST_PAUSE, settings.login_window)
            if (left := row["last_at"] + pause - now) > 0:
                raise _too_early(f"too many failed logins of user[{user[:80]}] from here", max(1, math.ceil(left)))
    found = users.by_name(tx, user)
    return found.password_hash if found else ""


def _too_early(message: str, seconds: int) -> TooMany:
    refusal = TooMany(message, code="AuthFailed", hint=f"try again in {seconds} seconds")
    refusal.retry_after = seconds
    return refusal


def _failed(tx: Tx, user: str, address: str, now: float, settings: AccessSettings) -> None:
    tx.run(users.SQL["remove_old_failures"], since=now - settings.login_window)
    tx.run(users.SQL["add_failure"], user_name=user, address=address, now=now)


def _succeeded(tx: Tx, user: str, verified: str, now: float, settings: AccessSettings) -> str:
    found = users.by_name(tx, user)
    if found is None or found.password_hash != verified:
        raise _refused()  # changed while we compared
    tx.run(users.SQL["remove_failures_of"], user_name=user)
    return tokens.issue(tx, user, now, settings.token_hours)


def _refused() -> Unauthenticated:
    hint = "a forgotten one is set anew by root: paddleflow user set NAME"
    return Unauthenticated("user name or password is wrong", code="AuthFailed", hint=hint)


async def ensure_root(database: Database, clock: Clock, password: str, *, fixed: bool = False) -> bool:
    """Make root if there is none; True when it was made. `fixed`: an existing root gets this password as well."""
    passwords = Passwords()
    row = await database.peek(users.by_name, ROOT)
    if row is None:
        password_hash = await passwords.hash(password)
        return await database.write(_make_root, password_hash, clock.now())
    if fixed and not await passwords.matches(row.password_hash, password):
        await database.write(users.set_password, ROOT, await passwords.hash(password), clock.now())
    return False


def _make_root(tx: Tx, password_hash: str, now: float) -> bool:
    return tx.run(users.SQL["add_user"], name=ROOT, password_hash=password_hash, now=now) == 1
