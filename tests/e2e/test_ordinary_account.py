"""The platform under an account that is not root: storages, artifacts and caches of pipelines as they are for root."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.e2e.test_examples import FORMS, Workshop, said
from tests.ordinary_account import UID, needs_root

pytestmark = needs_root


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, UID, UID)
        account = [sys.executable, "-m", "tests.ordinary_account", name]
        path = f"{Path(PADDLEFLOW).parent}:{os.environ['PATH']}"
        environment = {"PADDLEFLOW_LOCAL_CPUS": "4", "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}
        server = ServerProcess(folder / "server", environment, account).start()
        made = Workshop(server, folder)
        for storage in ("work", "data"):
            os.chown(folder / storage, UID, UID)
        yield made
        server.end()


@pytest.mark.parametrize("form", FORMS)
def test_artifacts(workshop: Workshop, form: str) -> None:
    run = workshop.done("artifacts", form)
    assert any("the total is 55" in line for line in said(run))
    assert not any("no private mounts" in line for line in said(run))


@pytest.mark.xdist_group("mount-targets")  # the same paths of this machine, as another account
@pytest.mark.parametrize("example", ["hello-pipeline", "cache", "nested-dag", "loop", "multiple-file-systems"])
def test_examples(workshop: Workshop, example: str) -> None:
    workshop.done(example, "yaml")


def test_jobs_run_as_the_account(workshop: Workshop) -> None:
    job = workshop.client.jobs.submit(command="id -u").wait(timeout=60)
    assert "".join(job.logs()).strip() == str(UID)
