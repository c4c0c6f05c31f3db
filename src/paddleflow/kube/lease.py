"""One leader among several processes, by a Lease of coordination.k8s.io.

`Election` is the pure core. Clocks of machines are never compared: a process counts the seconds since *it* saw the record
change, on its own monotonic clock, and takes the lease when that is longer than the holder promised to renew it. The holder
in turn stops by its own clock well before that (`renew_within` < `duration`): while a holder believes that it leads, nobody
else can have begun. `Lease.check` is the fence that a `Client` asks before each write.

A candidate that `goes_first` writes its name into an annotation of the record; whoever holds it then gives it back, and others leave
it to that candidate for as long as a holder would have had to renew it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound, PaddleFlowError, Temporary
from paddleflow.kube import resources
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import LEASES, Object, View

WANTED_BY = "paddleflow.org/wanted-by"  #: annotation of a lease: the candidate that others make way for
_log = Log("kube.lease")


class LeaseLost(Temporary):
    """This process leads no more: whatever it was about to write is another's to write."""

    default_code = "LeaseLost"


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """`duration`: seconds after which others may take it. `renew_within`: seconds without a renewal after which the holder
    stops by itself. `every`: seconds between two tries."""

    duration: int = 15
    renew_within: float = 10.0
    every: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.every < self.renew_within < self.duration:
            raise ValueError(f"0 < every < renew_within < duration must hold, found {self}")


class Election:
    """What one candidate knows. Moments are of its own monotonic clock."""

    def __init__(self, identity: str, terms: LeaseTiming) -> None:
        self.identity = identity
        self.terms = terms
        self._seen: object = None  # the record as last seen
        self._seen_at = 0.0
        self._promised = float(terms.duration)
        self._free = False
        self.wanted_by = ""  #: another candidate that goes first
        self._renewed_at: float | None = None

    def observe(self, lease: View | None, now: float) -> None:
        """Notes the record as it is at the API server; None: there is none."""
        spec = (lease or {}).get("spec") or {}
        record = (resources.uid(lease), resources.version(lease)) if lease is not None else None
        if record != self._seen or record is None:
            self._seen, self._seen_at = record, now
        self._promised = float(spec.get("leaseDurationSeconds") or self.terms.duration)
        holder = spec.get("holderIdentity") or ""
        self._free = not holder or holder == self.identity
        wanted_by = (((lease or {}).get("metadata") or {}).get("annotations") or {}).get(WANTED_BY) or ""
        self.wanted_by = "" if wanted_by == self.identity else wanted_by

    def may_take(self, now: float) -> bool:
        patience = self.terms.duration if self._free and self.wanted_by else self._promised
        return (self._free and not self.wanted_by) or now - self._seen_at >= patience

    @property
    def must_yield(self) -> bool:
        """Whether we hold it and another goes first."""
        return bool(self.wanted_by) and self._renewed_at is not None

    def renewed(self, sent_at: float) -> None:
        """The record has our name since a write that was sent at this moment (not when its answer came)."""
        self._renewed_at = sent_at

    def resigned(self) -> None:
        self._renewed_at = None

    def leads(self, now: float) -> bool:
        return self._renewed_at is not None and now - self._renewed_at < self.terms.renew_within


def claim(lease: View | None, name: str, namespace: str, election: Election, wall: str) -> Object:
    """The record with our name in it; `transitions` counts how often the holder changed."""
    obj: Object = dict(lease) if lease is not None else LEASES.object(name, namespace)
    metadata = obj["metadata"]
    if WANTED_BY in (metadata.get("annotations") or {}):  # granted, or whoever wanted it is not there any more
        kept = {key: value for key, value in metadata["annotations"].items() if key != WANTED_BY}
        obj["metadata"] = {**metadata, "annotations": kept}
    old = obj.get("spec") or {}
    same = old.get("holderIdentity") == election.identity
    obj["spec"] = {
        "holderIdentity": election.identity,
        "leaseDurationSeconds": election.terms.duration,
        "acquireTime": old.get("acquireTime") or wall if same else wall,
        "renewTime": wall,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if same or lease is None else 1),
    }
    return obj


class Lease:
    """The lease `name` as used by one candidate. Give `check` to the client that writes as the leader; the lease's own
    client must have no fence."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        terms: LeaseTiming | None = None,
        *,
        goes_first: bool = False,
    ) -> None:
        self._client = client
        self._goes_first = goes_first
        self._name = name
        self._namespace = namespace
        self._clock = clock
        self._election = Election(identity, terms or LeaseTiming())
        self._record: Object | None = None

    @property
    def leads(self) -> bool:
        return self._election.leads(self._clock.monotonic())

    @property
    def holder(self) -> str:
        """Who holds it, as far as this process has seen; empty: nobody."""
        return str(((self._record or {}).get("spec") or {}).get("holderIdentity") or "")

    @property
    def standing(self) -> str:
        """Who leads, in words."""
        if self.leads:
            return f"leads by the lease {self._namespace}/{self._name}"
        return f"stands by: {self.holder or 'nobody yet'} holds the lease {self._namespace}/{self._name}"

    def check(self) -> None:
        """Raises `LeaseLost` unless this process leads."""
        if not self.leads:
            raise LeaseLost(f"{self._election.identity} does not hold the lease {self._namespace}/{self._name}")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, then works until the work ends, or the lease is lost: then the work is cancelled and
        `LeaseLost` raised. Given back in the end, so that the next one need not wait."""
        await self._acquire()
        _log.info("leading", lease=self._name, identity=self._election.identity)
        lost = ""
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew())
                await work()
                renewing.cancel()
        except* LeaseLost:
            lost = f"{self._election.identity} lost the lease {self._namespace}/{self._name}"
            if self._election.wanted_by:
                lost += f": {self._election.wanted_by} goes first"
        finally:
            await self._release()
        if lost:
            raise LeaseLost(lost)

    async def _acquire(self) -> None:
        said = ""
        while not await self._try():
            if self.holder not in (said, self._election.identity):
                said = self.holder
                _log.info("stands by", lease=self._name, holder=said)
            await asyncio.sleep(self._election.terms.every)

    async def _renew(self) -> None:
        """Ends by raising `LeaseLost`."""
        while True:
            await asyncio.sleep(self._election.terms.every)
            try:
                async with asyncio.timeout(self._election.terms.renew_within):
                    await self._try()
            except TimeoutError:
                _log.warning("lease not renewed in time", lease=self._name)
            if self._election.must_yield:
                raise LeaseLost(f"{self._election.wanted_by} takes the lease {self._namespace}/{self._name}")
            self.check()

    async def _try(self) -> bool:
        """One attempt to take or renew; whether it worked."""
        election = self._election
        try:
            if self._record is None:
                await self._read()
            if election.must_yield:
                return False
            now = self._clock.monotonic()
            if not election.may_take(now):
                await self._read()
                if not election.may_take(self._clock.monotonic()):
                    await self._ask_for_it()
                    return False
            wish = claim(self._record, self._name, self._namespace, election, self._moment())
            write = self._client.create if self._record is None else self._client.update
            sent_at = self._clock.monotonic()
            self._record = await write(LEASES, wish)
            election.observe(self._record, self._clock.monotonic())
            election.renewed(sent_at)
            return True
        except (Conflict, AlreadyExists, NotFound):
            self._record = None  # somebody was faster, or took it away: read it again
        except PaddleFlowError as error:
            _log.warning("lease not reached", lease=self._name, error=error.message)
        return False

    async def _ask_for_it(self) -> None:
        """Whoever holds it is to make way for us."""
        annotations = ((self._record or {}).get("metadata") or {}).get("annotations") or {}
        if self._goes_first and self._record is not None and annotations.get(WANTED_BY) != self._election.identity:
            body = {"metadata": {"annotations": {WANTED_BY: self._election.identity}}}
            self._record = await self._client.patch(LEASES, self._name, self._namespace, body=body)

    async def _read(self) -> None:
        try:
            self._record = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            self._record = None
        self._election.observe(self._record, self._clock.monotonic())
        if self._record is not None and self._record["spec"].get("holderIdentity") != self._election.identity:
            self._election.resigned()  # another holds it: no use in believing otherwise

    async def _release(self) -> None:
        """Lets others in at once; if that fails they wait until our promise is over."""
        held, self._record = self._record, None
        leads = self.leads
        self._election.resigned()
        if not leads or held is None:
            return
        given_back = {**held, "spec": {**held["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        with suppress(PaddleFlowError, TimeoutError):
            async with asyncio.timeout(self._election.terms.every):
                await self._client.update(LEASES, given_back)

    def _moment(self) -> str:
        return rfc3339(self._clock.now())[:-1] + "000Z"  # the API wants microseconds
