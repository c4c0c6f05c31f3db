"""The nodes of the runtime in memory; all else is in `tests/contract`."""

from __future__ import annotations

from dataclasses import replace

from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.runtimes.runtime import Ended, Launch, NodeChanged, NodeInfo, NodeRemoved, Observation, Ready, Started

A, B = (NodeInfo(name, f"10.0.0.{number}", Resources.of(4000, 2**30)) for number, name in enumerate("ab"))
ONE = AttemptId("job-1.worker-0.1")


async def observed(runtime: MemoryRuntime) -> list[Observation]:
    async for batch in runtime.observe():
        return list(batch)
    raise AssertionError("a runtime observes as long as it is open")


async def test_nodes_that_come_change_and_go_are_observed() -> None:
    runtime = MemoryRuntime(ManualClock())
    runtime.set_nodes([A, B])
    assert await observed(runtime) == [NodeChanged(A), NodeChanged(B), NodeRemoved("memory")]
    assert list(await runtime.nodes()) == [A, B]
    cordoned, larger = replace(A, schedulable=False), replace(B, capacity=Resources.of(8000, 2**31))
    runtime.set_nodes([cordoned, B])
    runtime.set_nodes([cordoned, larger])
    assert await observed(runtime) == [NodeChanged(cordoned), NodeChanged(larger)]


async def test_what_ran_on_a_node_that_is_gone_is_lost() -> None:
    runtime = MemoryRuntime(ManualClock())
    runtime.set_nodes([A, B])
    await runtime.start(
        [Launch(ONE, ("x",), {}, node="a"), Launch(AttemptId("job-2.worker-0.1"), ("x",), {}, node="b")]
    )
    await observed(runtime)
    runtime.set_nodes([B])
    removed, end = await observed(runtime)
    assert removed == NodeRemoved("a")
    assert isinstance(end, Ended)
    assert (end.attempt, end.exit_code, end.message) == (ONE, None, "lost with node a")


async def test_a_launch_for_a_node_that_is_not_there_ends_at_once() -> None:
    runtime = MemoryRuntime(ManualClock())
    await runtime.start([Launch(ONE, ("x",), {}, node="nowhere")])
    [end] = await observed(runtime)
    assert isinstance(end, Ended)
    assert (end.exit_code, end.message) == (None, "there is no node nowhere")
    await runtime.start([Launch(AttemptId("job-2.worker-0.1"), ("x",), {}, node="memory")])
    assert [type(seen) for seen in await observed(runtime)] == [Started, Ready]
