"""Logs, statistics and warnings of pods, as the kubelets give them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.kube.client import Client
from paddleflow.kube.resources import EVENTS, NODES, PODS, View
from paddleflow.runtimes.kubernetes.pods import CONTAINER
from paddleflow.runtimes.log_folder import LogFolder
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.spec.operator_kinds import kind_of

MOST_PODS_LOGGED = 50  #: of an operator's object, at its end
_LINES = 10_000  #: of the log of each
#: the kubelet's words, in place of the log of a container that is gone, or is just going
_NO_LOG = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ")
_PROBE = "Unhealthy"  #: reason of events about probes: of what has started, or is about to
_log = Log("runtimes.kubernetes")


def task_of(attempt: AttemptId) -> TaskAddress:
    job, key, _ = parse_attempt(attempt)
    return TaskAddress(job, *key)


async def copy_log(client: Client, logs: LogFolder, attempt: AttemptId, name: str, space: str) -> None:
    """Append what is not there yet of a container's log, until it ends. A stream may break anywhere: the next call goes on."""
    position, have = 0, await asyncio.to_thread(logs.begin, task_of(attempt), attempt)
    async with aclosing(client.follow_log(name, space, container=CONTAINER)) as parts:
        async for part in parts:
            if not position and part.startswith(_NO_LOG):
                continue
            fresh = part[max(have - position, 0) :]
            position += len(part)
            if fresh:
                await asyncio.to_thread(logs.append, task_of(attempt), fresh)
                have += len(fresh)


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


async def samples(
    client: Client, running: Mapping[tuple[str, str], AttemptId], now: float
) -> Mapping[AttemptId, Sample]:
    """What attempts use, by the node and uid of their pods."""
    nodes = sorted({node for node, _ in running})
    pages = await asyncio.gather(*(_summary(client, node) for node in nodes))
    found: dict[AttemptId, Sample] = {}
    for node, page in zip(nodes, pages, strict=True):
        for each in page.get("pods") or ():
            attempt = running.get((node, each.get("podRef", {}).get("uid", "")))
            measured = (each.get("memory") or {}).get("workingSetBytes")  # not in the first seconds
            if attempt is not None and measured:
                found[attempt] = _sample(each, now)
    return found


async def _summary(client: Client, node: str) -> View:
    """What the kubelet of a node counts; empty when it does not answer, or the role may not ask."""
    try:
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
