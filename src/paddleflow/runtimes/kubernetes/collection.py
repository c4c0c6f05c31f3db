"""Logs, statistics and warnings of pods, as the kubelets give them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from random import Random
from typing import Any

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.kube.queue import Backoff
from paddleflow.kube.resources import EVENTS, NODES, PODS, View
from paddleflow.runtimes.kubernetes.pods import CONTAINER
from paddleflow.runtimes.log_folder import LogFolder
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.spec.operator_kinds import kind_of

REFUSED_PAUSE = 1.0, 30.0  #: seconds before a node that gave no log is asked for one again: at first, and at most
LOGS_AT_ONCE = 8  #: that are asked for: a server that starts wants the logs of all pods at once, and the API server's time for other things
LOG_TURN = 1.0  #: seconds that asking for one may hold up the next: a node may be silent
NODES_AT_ONCE = 8  #: asked for statistics: those that do not answer must not hold all connections
EVENTS_AT_ONCE = 16  #: pods whose events are read by one check
MOST_PODS_LOGGED = 50  #: of an operator's object, at its end
_LINES = 10_000  #: of the log of each
#: the kubelet's words, in place of the log of a container that is gone, or is just going
_NO_LOG = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ")
_PROBE = "Unhealthy"  #: reason of events about probes: of what has started, or is about to
_log = Log("runtimes.kubernetes")


def task_of(attempt: AttemptId) -> TaskAddress:
    job, key, _ = parse_attempt(attempt)
    return TaskAddress(job, *key)


class Turns:
    """So many ask at once, each for a short time at most."""

    def __init__(self, count: int = LOGS_AT_ONCE, seconds: float = LOG_TURN) -> None:
        self._free, self._seconds = asyncio.Semaphore(count), seconds

    async def take(self) -> Callable[[], None]:
        """Wait for a turn. What is returned ends it, once; it also ends by itself."""
        await self._free.acquire()
        over = False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                timer.cancel()
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, end)
        return end


class Kubelets:
    """Which nodes give no logs now. Such a node is asked again after a pause, for one pod; all others there wait for what it says: a
    thousand that ask in vain would keep the API server from its work."""

    def __init__(self) -> None:
        self._refusing: dict[str, tuple[float, Backoff]] = {}  # by node: when it may be asked again
        self.turns = Turns()
        self._random = Random()  # noqa: S311  spreading load needs no secrets

    def pause(self, node: str, now: float) -> float:
        """Seconds for which this node is not to be asked. 0: whoever hears it asks, and if it refused before, nobody else meanwhile."""
        if (refusing := self._refusing.get(node)) is None:
            return 0.0
        due, backoff = refusing
        if now < due:
            return (due - now) * (1 + self._random.random() / 10)  # so that it is not always the same who asks
        self._refusing[node] = now + backoff.next(), backoff
        return 0.0

    def answers(self, node: str) -> None:
        self._refusing.pop(node, None)

    def refuses(self, node: str, now: float) -> None:
        if node not in self._refusing:
            backoff = Backoff(*REFUSED_PAUSE)
            self._refusing[node] = now + backoff.next(), backoff


async def copy_log(
    client: Client,
    logs: LogFolder,
    attempt: AttemptId,
    name: str,
    space: str,
    begun: Callable[[], None] = lambda: None,
) -> None:
    """Append what is not there yet of a container's log, until it ends. A stream may break anywhere: the next call goes on. `begun` is
    called when there is one."""
    position, have = 0, await asyncio.to_thread(logs.begin, task_of(attempt), attempt)
    async with aclosing(client.follow_log(name, space, container=CONTAINER)) as parts:
        async for part in parts:
            begun()
            if not position and part.startswith(_NO_LOG):
                continue
            fresh = part[max(have - position, 0) :]
            position += len(part)
            if fresh:
                await asyncio.to_thread(logs.append, task_of(attempt), fresh)
                have += len(fresh)


async def copy_in_turn(
    client: Client, logs: LogFolder, attempt: AttemptId, name: str, space: str, kubelets: Kubelets, node: str
) -> None:
    """The same of a pod on a node. Its turn is over as soon as the log can be had: it may go on for days."""
    end_turn = await kubelets.turns.take()

    def begun() -> None:
        kubelets.answers(node)
        end_turn()

    try:
        await copy_log(client, logs, attempt, name, space, begun)
    finally:
        end_turn()


async def copy_logs_of_object(client: Client, logs: LogFolder, attempt: AttemptId, found: View) -> None:
    """Copy the logs of the pods of an operator's object, which has ended, one after the other."""
    metadata, kind = found["metadata"], kind_of(found)
    assert kind is not None, "only objects of operators have other pods"
    task, space = task_of(attempt), metadata["namespace"]
    try:
        if not await asyncio.to_thread(logs.begin, task, attempt):
            members = (await client.list(PODS, space, labels=f"{kind.pods}={metadata['name']}")).items
            for each in members[:MOST_PODS_LOGGED]:
                name = each["metadata"]["name"]
                names = [container["name"] for container in each["spec"]["containers"]]
                chosen = CONTAINER if CONTAINER in names else names[0]
                with suppress(PaddleFlowError):  # one that never ran has none
                    text = await client.log(name, space, container=chosen, lines=_LINES)
                    await asyncio.to_thread(logs.append, task, f"==> {name} <==\n{text}".encode())
        await asyncio.to_thread(logs.touch, task)
    except (OSError, PaddleFlowError) as error:  # the job has ended: it does so without its log
        _log.error("log not written", attempt=attempt, error=str(error))


async def last_warning(client: Client, found: View) -> str:
    """What the kubelet or anybody else complained about last: a volume that cannot be mounted, a missing secret."""
    metadata = found["metadata"]
    chosen = f"involvedObject.uid={metadata['uid']},type=Warning"
    try:
        seen = (await client.list(EVENTS, metadata["namespace"], fields=chosen)).items
    except PaddleFlowError:
        return ""  # without the right to read events there are none
    seen = [each for each in seen if each.get("reason") != _PROBE]
    last = max(seen, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""), default=None)
    return "" if last is None else f"{last.get('reason')}: {last.get('message')}"


async def last_warnings(client: Client, pods: Mapping[AttemptId, View]) -> Mapping[AttemptId, str]:
    """The same for those of many pods that have one. The API server looks through all events for those of a pod, so when a thousand
    pods do not start, each call asks about others of them."""
    chosen = Random().sample(list(pods), min(len(pods), EVENTS_AT_ONCE))  # noqa: S311  whoever comes first
    found = await asyncio.gather(*(last_warning(client, pods[each]) for each in chosen))
    return {attempt: why for attempt, why in zip(chosen, found, strict=True) if why}


async def samples(
    client: Client, running: Mapping[tuple[str, str], AttemptId], now: float
) -> Mapping[AttemptId, Sample]:
    """What attempts use, by the node and uid of their pods."""
    nodes, turns = sorted({node for node, _ in running}), asyncio.Semaphore(NODES_AT_ONCE)
    pages = await asyncio.gather(*(_summary(client, node, turns) for node in nodes))
    found: dict[AttemptId, Sample] = {}
    for node, page in zip(nodes, pages, strict=True):
        for each in page.get("pods") or ():
            attempt = running.get((node, each.get("podRef", {}).get("uid", "")))
            measured = (each.get("memory") or {}).get("workingSetBytes")  # not in the first seconds
            if attempt is not None and measured:
                found[attempt] = _sample(each, now)
    return found


async def _summary(client: Client, node: str, turns: asyncio.Semaphore) -> View:
    """What the kubelet of a node counts; empty when it does not answer, or the role may not ask."""
    try:
        async with turns:
            return await client.raw(f"{NODES.path(name=node)}/proxy/stats/summary?only_cpu_and_memory=true")
    except PaddleFlowError:
        return {}


def _sample(each: Mapping[str, Any], now: float) -> Sample:
    cpu, memory = (each.get(name) or {} for name in ("cpu", "memory"))
    return Sample(
        at=now,
        cpu_seconds=int(cpu.get("usageCoreNanoSeconds") or 0) / 1e9,
        memory=int(memory.get("workingSetBytes") or 0),
    )
