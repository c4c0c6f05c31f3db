"""The API server's clock beside ours. Machines do not agree about the time, and pods carry the API server's and the kubelets' moments.

What is older than so many seconds is asked of the API server's clock, whose moments are compared; what is reported to the platform is
translated into ours, and never lies in the future.
"""

from __future__ import annotations

from dataclasses import replace

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.runtimes.runtime import Ended

SAME = 2.0  #: seconds of difference that are none: the API server says whole seconds, and its answer was on its way
COMPARE_EVERY = 60.0  #: seconds
_log = Log("runtimes.kubernetes")


class ServerClock:
    def __init__(self, clock: Clock, cluster: str) -> None:
        self._clock, self._cluster = clock, cluster
        self._ahead = 0.0  # seconds by which the API server's clock is ahead of ours
        self._compare_at = 0.0

    def now(self) -> float:
        """The moment as the API server has it."""
        return self._clock.now() + self._ahead

    def ours(self, moment: float) -> float:
        """A moment of the cluster on our clock; those of nodes that are ahead are now at the latest."""
        return min(moment - self._ahead, self._clock.now())

    def ours_of(self, end: Ended) -> Ended:
        started = None if end.started_at is None else self.ours(end.started_at)
        return replace(end, at=max(self.ours(end.at), started or 0.0), started_at=started)

    async def compare(self, client: Client) -> None:
        """Ask the API server for the time, now and then."""
        if self._clock.monotonic() < self._compare_at:
            return
        try:
            theirs = await client.server_time()
        except PaddleFlowError:
            return  # the next check asks again
        ahead = theirs - self._clock.now()
        ahead = ahead if abs(ahead) > SAME else 0.0
        if abs(ahead - self._ahead) > SAME:
            _log.warning("clocks differ", cluster=self._cluster, api_server_ahead_seconds=round(ahead))
        self._ahead, self._compare_at = ahead, self._clock.monotonic() + COMPARE_EVERY
