"""``kill -9`` of the server at each transition of a run with a loop, the cache, a retry and a post-process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import FINAL, call, create, statuses
from tests.patience import eventually

#: In each of the first four lives of the server something happens, and what comes next waits for the next life: however
#: slow the machine is, the run does not end between two looks of the test.
YAML = """
name: killed
docker_env: x
fs_options: {main_fs: {name: store}}
failure_options: {strategy: continue}
entry_points:
  make:
    command: 'echo make >> ran; until [ -e life-2 ]; do sleep 0.05; done; echo "[1, 2]" > {{list}}'
    artifacts: {output: [list]}
    cache: {enable: true}
  each:
    deps: make
    command: 'echo each $PF_LOOP_ARGUMENT >> ran; until [ -e life-4 ]; do sleep 0.05; done'
    loop_argument: '{{list}}'
    artifacts: {input: {list: '{{make.list}}'}}
  again:
    command: 'echo again >> ran; until [ -e life-3 ]; do sleep 0.05; done; exit 3'
    retry: {times: 1, delay: 0.2}
  never: {command: echo no, deps: again}
post_process:
  last: {command: 'echo last >> ran'}
"""
EXPECTED = {
    "make": "succeeded", "each": "succeeded", "each-1": "succeeded", "again": "failed", "never": "cancelled", "last": "succeeded",
}  # fmt: skip


def events(server: ServerProcess, run: str) -> int:
    """How many changes of the run have been told."""
    request = Request(f"{server.url}/api/paddleflow/v1/run/{run}/events?follow=false")
    request.add_header("x-pf-authorization", server.token)
    with urlopen(request, timeout=30) as answer:
        return int(answer.read().count(b"event: "))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_the_end_is_the_same_however_often_the_server_dies(
    engine: str, tmp_path: Path, new_server: Callable[..., ServerProcess], request: pytest.FixtureRequest
) -> None:
    settings = (
        {"PADDLEFLOW_DATABASE_URL": request.getfixturevalue("postgres_url_factory")()} if engine == "postgres" else {}
    )
    server = new_server(**settings)
    store = tmp_path / "store"
    store.mkdir()
    call(server, "POST", "/fs", {"name": "store", "url": f"local://{store}"})
    run = create(server, YAML)
    seen = kills = 0
    while True:
        eventually(lambda known=seen: events(server, run) > known, "something more happens")  # type: ignore[misc]
        seen = events(server, run)  # before the status: the run may end in between, and then nothing more would happen
        if call(server, "GET", f"/run/{run}")["status"] in FINAL:
            break
        server.kill()
        kills += 1
        (store / f"life-{kills + 1}").touch()
        server.start()
    view = call(server, "GET", f"/run/{run}")
    assert (view["status"], statuses(view)) == ("failed", EXPECTED)
    assert Counter((store / "ran").read_text().splitlines()) == {
        "make": 1, "each 1": 1, "each 2": 1, "again": 2, "last": 1,
    }  # fmt: skip
    assert kills > 2
