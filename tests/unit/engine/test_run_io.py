"""The I/O of runs: outputs that are missing or cannot be read fail their step with words, and never serve another run."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.objects.store import ObjectStore
from paddleflow.runs import files
from paddleflow.runs.facts import Measurement
from paddleflow.runs.files import measure
from paddleflow.runs.fingerprints import OUTPUTS_UNREADABLE
from paddleflow.runs.runs import stop_run
from paddleflow.spec.pipeline.model import CONTINUE, Cache, Retry, Step
from paddleflow.storage.file_pool import SlicedWork
from paddleflow.store.bus import JOBS
from paddleflow.store.connection import open_database
from paddleflow.store.statements import compose
from tests.patience import soon
from tests.run_scene import CONTENT, OK, WRITES_NOTHING, RunScene, maker, pipeline


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[RunScene]:
    database = await open_database("", tmp_path, durable=False)
    scene = RunScene(database, tmp_path)
    await scene.prepare()
    yield scene
    await database.close()


def reader(name: str = "read", **more: object) -> Step:
    inputs = {"data": "{{ make.out }}"}
    return Step(name, "read", env=OK, deps=("make",), inputs=inputs, cache=Cache(enable=True), **more)  # type: ignore[arg-type]  # fields by name


async def test_an_output_that_was_never_written_fails_its_step_by_name_and_is_not_kept(scene: RunScene) -> None:
    async with scene.engine():
        row, steps = await scene.end_of(pipeline(maker(cached=True, env={WRITES_NOTHING: "1"})))
        assert row.status == "failed"
        assert "output artifact[out] was not written" in steps["make"].message
        assert "fs[store]" in steps["make"].message
        row, steps = await scene.end_of(pipeline(maker(cached=True, env={WRITES_NOTHING: "1"})))
        assert steps["make"].reused_run == ""


async def test_a_step_whose_output_is_missing_is_tried_again_as_its_retry_says(scene: RunScene) -> None:
    async with scene.engine():
        step = maker(env={WRITES_NOTHING: "1"}, retry=Retry(times=1, delay=0.001))
        row, steps = await scene.end_of(pipeline(step))
    assert (row.status, steps["make"].tries) == ("failed", 2)
    assert "try 2 of 2" in steps["make"].message


async def test_a_result_of_an_earlier_release_whose_output_was_never_there_serves_nobody(scene: RunScene) -> None:
    """Its row has an output without a hash."""
    async with scene.engine():
        _, steps = await scene.end_of(pipeline(maker(cached=True)))
        made = next(scene.folder.rglob("out"))
        poisoned = "update run_caches set outputs = :outputs"
        outputs = json.dumps({"out": [str(made.relative_to(scene.folder)), ""]})
        await scene.database.write(lambda tx: tx.run(compose(poisoned), outputs=outputs))
        made.unlink()
        row, steps = await scene.end_of(pipeline(maker(cached=True)))
    assert (row.status, steps["make"].reused_run) == ("succeeded", "")


async def start(scene: RunScene, run: str, step: str) -> AttemptId:
    """The attempt of a step, once it runs."""

    def found() -> AttemptId | None:
        mine = (each.attempt for each in scene.world.launched if each.attempt.startswith(f"job-{run}-{step}-"))
        return next(mine, None)

    attempt = await soon(found, f"{step} of {run} runs")
    assert attempt is not None
    return attempt


def output_of(scene: RunScene, run: str, step: str) -> Path:
    return next((scene.folder / ".pipeline" / run).rglob(f"{step}-*")) / "out"


async def test_an_output_that_is_no_file_fails_its_step_and_delays_nobody(scene: RunScene) -> None:
    async with scene.engine():
        run = await scene.submit(pipeline(Step("bad", "x", outputs=("out",)), maker("good"), strategy=CONTINUE))
        attempt = await start(scene, run, "bad")
        pipe = output_of(scene, run, "bad")
        pipe.unlink()
        os.mkfifo(pipe)
        scene.runtime.finish(attempt, 0)
        await scene.until(run, "failed")
        steps = await scene.steps(run)
    assert "output artifact[out] cannot be read" in steps["bad"].message
    assert "neither a file nor a folder" in steps["bad"].message
    assert steps["good"].status == "succeeded"


async def test_a_cached_step_with_an_input_that_cannot_be_read_fails_with_words(
    scene: RunScene, tmp_path: Path
) -> None:
    """And a result is not used when its own outputs cannot be read: they may be anything."""
    (tmp_path / "secret").write_text("secret")
    async with scene.engine():
        first, steps = await scene.end_of(pipeline(maker(cached=True), reader()))
        _, steps = await scene.end_of(pipeline(maker(cached=True), reader()))
        assert [steps[name].reused_run for name in ("make", "read")] == [first.id, first.id]
        made = output_of(scene, first.id, "make")
        made.unlink()
        made.symlink_to(tmp_path / "secret")
        again, steps = await scene.end_of(pipeline(maker(cached=True), reader()))
        assert (again.status, steps["make"].reused_run) == ("succeeded", "")
        assert json.loads(steps["make"].misses) == [OUTPUTS_UNREADABLE]

        run = await scene.submit(pipeline(Step("make", "x", outputs=("out",)), reader(), parallelism=1))
        attempt = await start(scene, run, "make")
        real = output_of(scene, run, "make")

        def swap_between(store: ObjectStore, path: str) -> SlicedWork[Measurement]:
            found = yield from measure(store, path)
            if real.exists() and not real.is_symlink():
                real.unlink()
                real.symlink_to(tmp_path / "secret")
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(files, "measure", swap_between)
            scene.runtime.finish(attempt, 0)
            await scene.until(run, "failed")
        steps = await scene.steps(run)
    assert "could not be read" in steps["read"].message
    assert "leads out of the store" in steps["read"].message


async def test_a_stop_gives_up_an_output_of_eight_terabytes(scene: RunScene) -> None:
    async with scene.engine():
        run = await scene.submit(pipeline(Step("huge", "x", outputs=("out",)), maker("small")))
        attempt = await start(scene, run, "huge")
        with output_of(scene, run, "huge").open("wb") as file:
            file.truncate(8 * 2**40)
        scene.runtime.finish(attempt, 0)
        other, _ = await scene.end_of(pipeline(maker(env={CONTENT: "other"})))
        assert other.status == "succeeded", "other runs do not wait for it"
        await scene.database.write(stop_run, run, False, "stopped", scene.clock.now())
        scene.bus.wake(JOBS)
        await scene.until(run, "terminated")
        assert "while its outputs were being read" in (await scene.steps(run))["huge"].message


async def test_a_fault_of_the_server_while_it_reads_files_fails_that_step_only(scene: RunScene) -> None:
    def faulty(store: ObjectStore, path: str) -> SlicedWork[Measurement]:
        if "bad-" in path:
            raise RuntimeError("boom")
        return (yield from measure(store, path))

    async with scene.engine():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(files, "measure", faulty)
            row, steps = await scene.end_of(pipeline(maker("bad"), maker("good"), strategy=CONTINUE))
    assert (row.status, steps["good"].status) == ("failed", "succeeded")
    assert "RuntimeError" in steps["bad"].message
