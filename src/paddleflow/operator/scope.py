"""Operators whose scopes overlap warn: two that reconcile the same job would undo each other's work.

Each operator that leads announces its scope (a namespace, or all) by a Lease, in the namespace that it works on or, for all
of them, beside itself. It renews the Lease, and reads the others' that it may see. One whose Lease changed between two reads is
alive; clocks of machines are not compared. An overlap is logged, counted (`paddleflow_operator_overlaps`), and recorded as an
event of both Leases, because an operator of one namespace cannot see that of all. Nobody stops: which one is wanted is for
people to say.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress

from paddleflow.base.clock import Clock, rfc3339
from paddleflow.base.log import Log
from paddleflow.errors import Conflict, Forbidden, NotFound, PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import LEASES, Object, View, key, labels, uid, version

INTERVAL = 30.0  #: seconds between two reads
MOST_READ = 100  #: announcements that are read; a cluster has a handful
LABEL, SCOPE, INSTALLATION = "paddleflow.org/operator-scope", "paddleflow.org/scope", "paddleflow.org/installation"
_log = Log("operator.scope")


def overlap(one: str, other: str) -> bool:
    """Whether two scopes have a namespace in common; empty is all of them."""
    return not one or not other or one == other


class Scope:
    """One operator's announcement, and what it knows of others."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        *,
        installation: str,
        namespace: str,
        home: str,
        leads: Callable[[], bool],
        interval: float = INTERVAL,
    ) -> None:
        """`installation` is the same for all replicas of one operator; `namespace` is what it works on, `home` where it is."""
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._installation = installation
        self._namespace = namespace
        self._place = namespace or home
        self._leads = leads
        self._interval = interval
        self._name = f"paddleflow-operator-{hashlib.sha256(installation.encode()).hexdigest()[:8]}"
        self._seen: dict[str, str] = {}  # versions of others, by uid
        self._announced = False
        self.overlaps: list[str] = []  #: installations that work on the same namespaces

    async def run(self) -> None:
        """Announces and reads until it is cancelled; then the announcement is taken back."""
        try:
            while True:
                if self._leads():
                    try:
                        await self.check()
                    except Forbidden as error:
                        _log.warning("overlapping operators are not looked for", error=error.message)
                        return
                    except PaddleFlowError as error:
                        _log.warning("scope not announced", error=error.message)
                await asyncio.sleep(self._interval)
        finally:
            if self._announced:
                await self._withdraw()

    async def check(self) -> None:
        """One announcement and one read."""
        own = await self._announce()
        self._announced = True
        listed = await self._client.list(LEASES, self._namespace, labels=f"{LABEL}=true")
        alive = []
        for lease in listed.items[:MOST_READ]:
            before, self._seen[uid(lease)] = self._seen.get(uid(lease), ""), version(lease)
            if (
                uid(lease) != uid(own)
                and before
                and before != version(lease)
                and overlap(self._namespace, _scope(lease))
            ):
                alive.append(lease)
        self._seen = {uid(lease): version(lease) for lease in listed.items[:MOST_READ]}
        self.overlaps = [_annotation(lease, INSTALLATION) for lease in alive]
        for lease in alive:
            self._warn(own, lease)

    def _warn(self, own: View, other: View) -> None:
        message = (
            f"operators {self._installation} (namespace {self._namespace or 'all'}) and {_annotation(other, INSTALLATION)} "
            f"(namespace {_scope(other) or 'all'}) work on the same PaddleJobs; stop one, or give them different --namespace"
        )
        _log.warning("scopes overlap", message=message)
        for lease in (own, other):
            self._recorder.record(
                {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.kind}, "ScopesOverlap", message, warning=True
            )

    async def _announce(self) -> Object:
        moment = rfc3339(self._clock.now())[:-1] + "000Z"
        spec = {
            "holderIdentity": self._installation,
            "leaseDurationSeconds": int(3 * self._interval) or 1,
            "renewTime": moment,
        }
        try:
            found = await self._client.get(LEASES, self._name, self._place)
        except NotFound:
            found = LEASES.object(self._name, self._place)
            found["metadata"]["labels"] = {LABEL: "true", "app.kubernetes.io/name": "paddleflow-operator"}
            found["metadata"]["annotations"] = {SCOPE: self._namespace, INSTALLATION: self._installation}
            return await self._client.create(LEASES, {**found, "spec": spec})
        return await self._client.update(LEASES, {**found, "spec": spec})

    async def _withdraw(self) -> None:
        with suppress(PaddleFlowError, TimeoutError, Conflict):
            async with asyncio.timeout(2.0):
                found = await self._client.get(LEASES, self._name, self._place)
                if LABEL in labels(found):
                    await self._client.delete(LEASES, self._name, self._place, uid=uid(found))
                    _log.info("scope withdrawn", lease=key(found))


def _annotation(lease: View, name: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(name, ""))


def _scope(lease: View) -> str:
    return _annotation(lease, SCOPE)
