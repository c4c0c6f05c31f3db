"""What a step may ask for beyond a command: tries, time, jobs of any kind; and what it leaves, as a client fetches it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import call, create, ended, statuses

pytestmark = pytest.mark.timeout(120)


def run(server: ServerProcess, steps: str, head: str = "") -> dict[str, Any]:
    return ended(server, create(server, f"name: steps\ndocker_env: none\n{head}\nentry_points:\n{steps}"))


def fetched(server: ServerProcess, path: str) -> bytes:
    request = Request(f"{server.url}{path}", headers={"x-pf-authorization": server.token})
    with urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
        return content


def test_a_step_that_takes_too_long_is_ended_and_says_so(server: ServerProcess) -> None:
    view = run(server, "  slow: {command: sleep 600, timeout: 0.2}\n  after: {command: 'true', deps: slow}\n")
    assert view["status"] == "failed"
    assert statuses(view) == {"slow": "failed", "after": "cancelled"}
    assert "0.2" in view["runtime"]["slow"][0]["jobMessage"], view["runtime"]["slow"]


def test_a_step_is_tried_again_after_the_exit_codes_that_it_names(server: ServerProcess, tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    count = f"echo x >> {tried}-$PF_STEP_NAME; n=$(wc -l < {tried}-$PF_STEP_NAME)"
    view = run(
        server,
        f"  flaky:\n    command: '{count}; [ $n -ge 3 ] || exit 75'\n    retry: {{times: 3, delay: 0, exit_codes: [75]}}\n"
        f"  wrong:\n    command: '{count}; exit 2'\n    retry: {{times: 3, delay: 0, exit_codes: [75]}}\n",
        "failure_options: {strategy: continue}",
    )
    assert statuses(view) == {"flaky": "succeeded", "wrong": "failed"}
    assert [len(Path(f"{tried}-{step}").read_text().split()) for step in ("flaky", "wrong")] == [3, 1]


def test_the_job_of_a_step_tells_how_its_process_ended(server: ServerProcess) -> None:
    view = run(server, "  good: {command: 'true'}\n  bad: {command: exit 3, deps: good}\n")
    jobs = [call(server, "GET", f"/job/{view['runtime'][step][0]['jobID']}") for step in ("good", "bad")]
    assert [(job["attempt"], job["runtime"]["status"], job["runtime"]["exitCode"]) for job in jobs] == [
        (1, "succeeded", 0),
        (1, "failed", 3),
    ]
    assert all(job["runtime"]["startTime"] and job["runtime"]["finishTime"] for job in jobs)


def test_a_step_may_be_a_job_of_many_members(server: ServerProcess, tmp_path: Path) -> None:
    script = f"echo $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM, $given > {tmp_path}/$PADDLE_TRAINER_ID"
    flavour = "{cpu: 100m, mem: 64Mi}"
    view = run(
        server,
        "  train:\n    parameters: {word: hello}\n    env: {given: '{{word}}'}\n"
        f"    job: {{framework: paddle, members: [{{role: worker, replicas: 2, command: '{script}', flavour: {flavour}}}]}}\n",
    )
    assert statuses(view) == {"train": "succeeded"}
    assert sorted(file.read_text() for file in tmp_path.glob("[01]")) == ["0 of 2, hello\n", "1 of 2, hello\n"]
    job = call(server, "GET", f"/job/{view['runtime']['train'][0]['jobID']}")
    assert (job["framework"], job["members"][0]["replicas"]) == ("paddle", 2)


def test_variables_make_a_step_a_ray_job(server: ServerProcess, tmp_path: Path) -> None:
    ray = tmp_path / "ray"  # the real one is the business of the tests of frameworks
    healthy = f'[ "$1" = health-check ] && exec grep -q ^start {tmp_path}/called'  # not before it was started
    ray.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n{healthy}\nexec sleep 600\n')
    ray.chmod(0o755)
    env = "PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: ray, RAY_JOB_WORKER_REPLICAS: '1'"
    env = f"{{{env}, RAY_JOB_HEADER_START_PARAMS_NUM_CPUS: '1', PATH: '{tmp_path}:/usr/bin:/bin'}}"
    view = run(server, f"  tune: {{command: 'echo tuned > {tmp_path}/result', env: {env}}}\n")
    assert statuses(view) == {"tune": "succeeded"}
    assert (tmp_path / "result").read_text() == "tuned\n"
    assert "start --num-cpus=1" in (tmp_path / "called").read_text()
    job = call(server, "GET", f"/job/{view['runtime']['tune'][0]['jobID']}")
    assert (job["framework"], [member["role"] for member in job["members"]]) == ("ray", ["master", "worker"])


def test_a_folder_comes_as_a_tar_file_and_the_metrics_count_the_steps(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    call(server, "POST", "/fs", {"name": "store", "url": f"local://{folder}"})
    head = "fs_options: {main_fs: {name: store}}\ncache: {enable: true}"
    step = "  make:\n    command: 'mkdir -p {{out}}/deep && echo one > {{out}}/a && echo two > {{out}}/deep/b'\n"
    step += "    artifacts: {output: [out]}\n"
    path = run(server, step, head)["runtime"]["make"][0]["artifacts"]["output"]["out"]
    content = fetched(server, f"/api/paddleflow/v1/artifact/content?fsname=store&path={path}")
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {item.name: tar.extractfile(item) for item in tar if item.isfile()}
        assert {name: file.read() for name, file in files.items() if file} == {"a": b"one\n", "deep/b": b"two\n"}
    run(server, step, head)
    told = fetched(server, "/metrics").decode()
    for line in (
        'pf_metric_runs_ended_total{status="succeeded"} 2.0',
        "pf_metric_steps_started_total 1.0",
        'pf_metric_steps_ended_total{status="succeeded"} 1.0',
        'pf_metric_steps_ended_total{status="reused"} 1.0',
        "pf_metric_steps_waiting 0.0",
    ):
        assert line in told.splitlines()
