"""The commands that submit, follow and wait."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from paddleflow.base.host import host_fingerprint
from paddleflow.cli import progress
from paddleflow.cli.job_run import exit_code
from paddleflow.cli.progress import FOLLOWERS
from paddleflow.sdk.jobs import JobRecord, Task
from tests.client_stub import Answer, Shell, Stub


def frame(seq: int, status: str, message: str = "", **more: object) -> bytes:
    data = json.dumps({"at": "2026-11-16T10:00:00Z", "status": status, "message": message, **more})
    return f"id: {seq}\nevent: status\ndata: {data}\n\n".encode()


def over(status: str, code: int, message: str = "") -> dict[str, object]:
    return {
        "id": "x",
        "name": "n",
        "status": status,
        "message": message,
        "runtime": {"role": "worker", "exitCode": code},
    }


def test_create_says_the_id(stub: Stub, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"id": "job-1", "command": "true"}))
    stub.on("POST /job/single", {"id": "job-1"})
    assert shell("job", "create", "single", str(file)).stdout == "job create success, id[job-1]\n"
    assert stub.requests[0].body == {"id": "job-1", "command": "true"}


def test_submit_prints_the_id_and_guesses_the_kind(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/distributed", {"id": "d"})
    document = json.dumps({"id": "d", "framework": "paddle", "members": [{"role": "worker"}]})
    assert shell("job", "submit", "-", input=document).stdout == "d\n"
    assert stub.requests[0].path == "/job/distributed"


def test_submit_takes_yaml(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/single", {"id": "y"})
    assert shell("job", "submit", "-", input="id: y\ncommand: echo hi\nenv: {A: '1'}\n").stdout == "y\n"
    assert stub.requests[0].body == {"id": "y", "command": "echo hi", "env": {"A": "1"}}


def test_submit_takes_a_list(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/batch", {"ids": ["a", "b"]})
    many = json.dumps([{"id": "a", "command": "1"}, {"id": "b", "command": "2"}])
    assert shell("job", "submit", "-", input=many).stdout == "a\nb\n"
    assert json.loads(shell("job", "submit", "-", "--json", input=many).stdout) == [{"id": "a"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "error: <stdin> is not a JSON or YAML document"),
        ("3", "error: <stdin> contains neither a job document nor a list of them"),
    ],
)
def test_a_file_that_is_no_job(stub: Stub, shell: Shell, text: str, message: str) -> None:
    assert shell("job", "submit", "-", input=text, code=1).stderr.startswith(message)
    assert stub.requests == []


def test_a_file_that_is_not_there(shell: Shell) -> None:
    result = shell("job", "create", "single", "/absent.json", code=2)
    assert "No such file" in result.stderr
    assert result.stdout == ""


def test_update_without_a_change_is_a_wrong_call(shell: Shell) -> None:
    assert "nothing to change" in shell("job", "update", "j", code=2).stderr


def test_an_unknown_field_names_the_nearest(shell: Shell) -> None:
    assert "did you mean status?" in shell("job", "list", "-fl", "id,stats", code=2).stderr


def test_logs(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/j/log", Answer(b"one\ntwo"))
    assert shell("job", "logs", "j").stdout == "one\ntwo"
    assert json.loads(shell("job", "logs", "j", "--json").stdout) == {"id": "j", "log": "one\ntwo"}
    stub.on("GET /job/j", {"id": "j", "status": "succeeded"})
    shell("job", "logs", "j", "-f", "--task", "worker-1")
    asked = [seen.query for seen in stub.requests if seen.path.endswith("/log")]
    assert asked[-1] == {"follow": "true", "task": "worker-1", "offset": "0"}


@pytest.mark.parametrize(
    ("words", "follows", "framework"),
    [
        ("-f", True, None),
        ("--follow", True, None),
        ("-f paddle", False, "paddle"),
        ("--framework paddle", False, "paddle"),
        ("", False, None),
    ],
)
def test_log_job_knows_both_meanings_of_f(
    stub: Stub, shell: Shell, words: str, follows: bool, framework: str | None
) -> None:
    stub.on("GET /job/j/log", Answer(b"live\n"))
    stub.on("GET /job/j", {"id": "j", "status": "succeeded"})
    stub.on("GET /log/job", {"jobID": "j"})
    for call in (["-j", "j", *words.split()], [*words.split(), "-j", "j"]):
        stub.requests.clear()
        printed = shell("log", "job", *call).stdout
        assert (printed == "live\n") is follows
        asked = next(seen for seen in stub.requests if seen.path in {"/job/j/log", "/log/job"})
        assert asked.path == ("/job/j/log" if follows else "/log/job")
        assert asked.query.get("framework") == framework


def test_log_job_by_limits(stub: Stub, shell: Shell) -> None:
    info = {"logContent": "hello\n", "hasNextPage": False, "truncated": True}
    stub.on("GET /log/job", {"jobID": "j", "taskList": [{"taskID": "t", "logInfo": info}], "eventList": ["e1"]})
    printed = shell("log", "job", "-j", "j", "-r", "-l", "5", "-s", "1M").stdout
    assert printed == "eventList:\ne1\nlogs:\njobid:j\ttaskid:t\thas_next_page:False\ttruncated:True\nhello\n"
    assert stub.requests[0].query == {"jobID": "j", "readFromTail": "true", "lineLimit": "5", "sizeLimit": "1M"}
    assert json.loads(shell("log", "job", "-j", "j", "--json").stdout)["jobID"] == "j"


def test_events(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/j/events", Answer(chunks=[frame(1, "init"), frame(2, "failed", "why", task="worker-0")]))
    printed = shell("job", "events", "j", "-o", "text").stdout
    assert printed == (
        "1\t2026-11-16T10:00:00.000Z\tstatus\tinit\t\t\n2\t2026-11-16T10:00:00.000Z\tstatus\tfailed\tworker-0\twhy\n"
    )
    assert shell("job", "events", "j", "-f", "-o", "text").stdout == printed
    head, *rows = shell("job", "events", "j").stdout.splitlines()
    assert head.split() == ["SEQ", "TIME", "STATUS", "TASK", "MESSAGE"]
    assert "2026-11-16 " in rows[0]
    assert rows[1].endswith("worker-0  why")
    lines = shell("job", "events", "j", "-f", "--json").stdout.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["init", "failed"]
    assert [seen.query["follow"] for seen in stub.requests] == ["false", "true", "false", "true"]


def test_wait_shows_changes_and_ends_by_the_result(stub: Stub, shell: Shell) -> None:
    for job, status in (("a", "succeeded"), ("b", "failed")):
        stub.on(f"GET /job/{job}/events", Answer(chunks=[frame(1, "pending", "waits for 2 cpu"), frame(2, status)]))
        stub.on(f"GET /job/{job}", {"id": job, "name": f"name {job}", "status": status})
    assert shell("job", "wait", "a", "-o", "text").stdout == "a\tname a\tsucceeded\t\n"
    result = shell("job", "wait", "a", "b", "-o", "text", code=1)
    assert result.stdout == "a\tname a\tsucceeded\t\nb\tname b\tfailed\t\n"
    # in the order in which they end, and after the states that were seen before
    assert {"a succeeded", "b failed"} <= set(result.stderr.splitlines())


def test_wait_has_an_end(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/a/events", Answer(chunks=[frame(1, "running")]))
    stub.on("GET /job/a", {"id": "a", "status": "running"})
    result = shell("job", "wait", "a", "--timeout", "0.05", code=1)
    assert "error: job[a] is still running after 0.05 s\n" in result.stderr


def test_waiting_for_a_job_that_is_not_there(stub: Stub, shell: Shell) -> None:
    stub.refuse("GET /job/a/events", 404, "JobNotFound", "job[a] is not there")
    assert "error: job[a] is not there" in shell("job", "wait", "a", code=1).stderr


def test_many_jobs_are_waited_for(stub: Stub, shell: Shell) -> None:
    names = [f"j{n}" for n in range(FOLLOWERS + 4)]
    for name in names:
        stub.on(f"GET /job/{name}/events", Answer(chunks=[frame(1, "succeeded")]))
        stub.on(f"GET /job/{name}", {"id": name, "status": "succeeded"})
    rows = shell("job", "wait", *names, "-o", "text").stdout.splitlines()
    assert [row.split("\t")[0] for row in rows] == names


def test_a_live_display_draws(stub: Stub) -> None:
    import paddleflow

    with paddleflow.connect(stub.url, token="t") as pf, progress.Live() as shown:
        shown.draw([progress.Watched(pf.jobs.handle(f"job-{n}")) for n in range(25)])


def test_each_of_several_jobs_has_a_line(stub: Stub) -> None:
    import paddleflow

    with paddleflow.connect(stub.url, token="t") as pf:
        watched = [progress.Watched(pf.jobs.handle(f"job-{n}")) for n in range(25)]
    for number, one in enumerate(watched):
        one.status, one.reason, one.since, one.ended = "succeeded", "", 10.0, 15.0 if number < 22 else None
    watched[23].status, watched[23].reason, watched[23].ended = "failed", "out of \x1bmemory", 75.0
    watched[24].status, watched[24].reason, watched[24].since = "pending", "no room", time.monotonic()
    watched[22].status, watched[22].since = "running", time.monotonic() - 60
    lines = progress.screen(watched, 5)
    assert lines == [
        "job-22  running      1m",
        "job-24  pending      0s       no room",
        "job-0   succeeded    5s",
        "job-1   succeeded    5s",
        "23 of 25 finished",
    ]
    assert progress.screen(watched[23:24], 5) == ["job-23  failed       1m5s     out of \\x1bmemory"]


RUN = "/job/single"


def prepared(stub: Stub, status: str, code: int, *events: bytes, message: str = "") -> None:
    """Answers for a job whatever its id: the client makes it."""
    stub.on(f"POST {RUN}", {})
    stub.on("GET /whoami", {"name": "root", "host": host_fingerprint()})
    stub.on("GET /job/*/log", Answer(chunks=[b"hello\n", b"world"]))
    stub.on("GET /job/*/events", Answer(chunks=[*events, frame(9, status, message)]))
    stub.on("GET /job/*", over(status, code, message))


def test_run_shows_the_log_and_ends_with_the_job_s_code(stub: Stub, shell: Shell) -> None:
    prepared(stub, "failed", 3, message="exit code 3")
    words = ("--queue", "q", "-e", "A=b=c,d", "--no-code", "--", "python", "-c", "print(1)", "--x")
    result = shell("job", "run", *words, code=3)
    assert result.stdout == "hello\nworld"
    body = stub.requests[0].body
    job = body.pop("id")
    assert body == {
        "name": "python",
        "labels": {},
        "schedulingPolicy": {"queue": "q"},
        "env": {"A": "b=c,d"},
        "command": ["python", "-c", "print(1)", "--x"],
    }
    assert f"{job} submitted\n" in result.stderr
    assert f"{job} failed: exit code 3\n" in result.stderr


def test_run_of_one_word_is_for_the_shell(stub: Stub, shell: Shell) -> None:
    prepared(stub, "succeeded", 0)
    result = shell("job", "run", "--quiet", "/bin/echo a && echo b")
    assert (result.stdout, result.stderr) == ("hello\nworld", "")
    body = submitted(stub)
    assert (body["command"], body["name"]) == ("/bin/echo a && echo b", "echo")


def submitted(stub: Stub) -> Any:
    """The job that was sent."""
    return next(seen.body for seen in stub.requests if seen.method == "POST")


def test_run_uses_the_caller_s_folder_and_programs(
    stub: Stub, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(stub, "succeeded", 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    shell("job", "run", "--workdir", "sub", "-e", "PATH=/mine", "--", "python", "train.py")
    body = submitted(stub)
    assert body["code"] == {"path": str(tmp_path), "workdir": "sub"}
    assert (body["env"]["VIRTUAL_ENV"], body["env"]["PATH"]) == ("/venv", "/mine")


@pytest.mark.parametrize("array", [(), ("--array", "1-2")])
def test_a_queue_whose_nodes_do_not_see_the_folder_is_sent_a_snapshot(
    stub: Stub, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, array: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    where = "jobs[0].code.path" if array else "code.path"
    refusal = {"code": "JobInvalidField", "message": "no", "details": [{"where": where, "message": "no"}]}
    route = "POST /job/batch" if array else f"POST {RUN}"
    stub.on("GET /whoami", {"name": "root", "host": host_fingerprint()})
    stub.on(route, Answer(refusal, 400), {})
    stub.on("POST /code/missing", {"missing": []})
    stub.on("POST /code", {"id": "code-1", "files": 0, "size": 0})
    shell("job", "run", "-d", "-q", "far", *array, "--", "true")
    first, second = (
        seen.body["jobs"][0] if array else seen.body for seen in stub.requests if f"{seen.method} {seen.path}" == route
    )
    assert (first["code"], first["env"]["VIRTUAL_ENV"]) == ({"path": str(tmp_path)}, "/venv")
    assert "snapshot" in second["code"]
    assert "VIRTUAL_ENV" not in second.get("env", {}), "programs of this machine"


def test_an_unknown_queue_is_said_when_jobs_are_listed(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job", {"jobList": []})
    stub.on("GET /queue/known", {"name": "known"})
    stub.refuse("GET /queue/knwon", 404, "QueueNameNotFound", "queue[knwon] does not exist", hint="did you mean known?")
    assert "No jobs found." in shell("job", "list", "-q", "known").stderr
    said = shell("job", "list", "-q", "knwon", code=1).stderr
    assert said == "error: queue[knwon] does not exist\nhint: did you mean known?\n"


@pytest.mark.parametrize("command", ["show", "logs", "why", "events", "eta"])
def test_a_command_for_one_job_says_that_an_array_is_several(shell: Shell, command: str) -> None:
    assert shell("job", command, "array-1", code=1).stderr == (
        "error: array-1 is an array of jobs\nhint: name one of them: paddleflow job list --array array-1\n"
    )


def test_an_array_of_one_job_is_one_job(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/batch", {})
    assert ": 1 job submitted\n" in shell("job", "run", "--no-code", "-d", "--array", "7", "true").stderr
    assert ": 2 jobs submitted\n" in shell("job", "run", "--no-code", "-d", "--array", "7-8", "true").stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--cpu 2 --gpu 1 true", {"flavour": {"cpu": "2", "mem": "1Gi", "scalarResources": {"nvidia.com/gpu": "1"}}}),
        ("--timeout 5m sleep 9", {"command": ["timeout", "--kill-after=10", "5m", "sleep", "9"]}),
        ("--retries 3 true", {"env": {"PF_JOB_RETRIES": "3"}}),
        ("--retries 0 true", {"env": {"PF_JOB_RETRIES": "0"}}),
        ("--flavour f --priority high true", {"flavour": {"name": "f"}, "schedulingPolicy": {"priority": "high"}}),
    ],
)
def test_options_of_run(stub: Stub, shell: Shell, words: str, wanted: dict[str, Any]) -> None:
    prepared(stub, "succeeded", 0)
    shell("job", "run", "--no-code", "-d", *words.split())
    assert {key: submitted(stub).get(key) for key in wanted} == wanted


@pytest.mark.parametrize("value", ["soon", "1h30m", "-5", "0", ""])
def test_a_timeout_that_is_none_is_refused(shell: Shell, value: str) -> None:
    refused = shell("job", "run", "--no-code", "--timeout", value, "true", code=2)
    assert "is not of the form 90s, 30m, 2h or 1d" in refused.stderr


def test_run_with_workers_is_a_distributed_job(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/distributed", {})
    shell("job", "run", "--no-code", "-d", "--framework", "pytorch", "--workers", "4", "--", "python", "t.py")
    body = submitted(stub)
    assert (body["framework"], body["members"]) == (
        "pytorch",
        [{"role": "worker", "replicas": 4, "command": ["python", "t.py"]}],
    )
    assert "--workers needs --framework" in shell("job", "run", "--no-code", "--workers", "2", "true", code=2).stderr


def test_an_array_is_one_request(stub: Stub, shell: Shell) -> None:
    stub.on("POST /job/batch", {})
    ids = shell("job", "run", "--no-code", "-d", "--array", "1-2,7", "--name", "sweep", "echo $PF_ARRAY_INDEX").stdout
    jobs = submitted(stub)["jobs"]
    assert [job["name"] for job in jobs] == ["sweep-1", "sweep-2", "sweep-7"]
    assert [job["env"]["PF_ARRAY_INDEX"] for job in jobs] == ["1", "2", "7"]
    assert ids.split() == [job["id"] for job in jobs]
    assert "is not of the form" in shell("job", "run", "--array", "x", "true", code=2).stderr


def test_variables_of_a_file(stub: Stub, shell: Shell, tmp_path: Path) -> None:
    prepared(stub, "succeeded", 0)
    (tmp_path / "env").write_text("# comment\nA=1\nexport B='two words'\n\nC=x=y\n")
    shell("job", "run", "--no-code", "-d", "--env-file", str(tmp_path / "env"), "-e", "A=9", "true")
    assert submitted(stub)["env"] == {"A": "9", "B": "two words", "C": "x=y"}
    (tmp_path / "env").write_text("nonsense\n")
    refused = shell("job", "run", "--env-file", str(tmp_path / "env"), "true", code=2).stderr
    assert "line 1 is not of the form NAME=value" in refused


def test_run_as_json(stub: Stub, shell: Shell) -> None:
    prepared(stub, "succeeded", 0)
    result = shell("--output", "json", "job", "run", "--quiet", "true")
    found = json.loads(result.stdout)
    assert (found["status"], found["runtime"]["exitCode"]) == ("succeeded", 0)
    assert result.stderr == "hello\nworld"


def test_run_detached_prints_the_id(stub: Stub, shell: Shell) -> None:
    prepared(stub, "succeeded", 0)
    assert shell("job", "run", "--no-code", "-d", "true").stdout.strip() == stub.requests[0].body["id"]
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("status", "codes", "wanted"),
    [
        ("succeeded", [0], 0),
        ("failed", [0, 7], 7),
        ("failed", [-9], 137),
        ("failed", [], 1),
        ("terminated", [0], 1),
        ("failed", [700], 255),
    ],
)
def test_exit_codes(status: str, codes: list[int], wanted: int) -> None:
    assert exit_code(JobRecord(status=status, tasks=[Task(exit_code=code) for code in codes])) == wanted


def test_options_behind_the_command_are_explained(stub: Stub, shell: Shell) -> None:
    done = shell("job", "run", "echo $SEED", "--env", "SEED=1", code=2)
    assert "options go before the command" in done.stderr
    assert not [seen for seen in stub.requests if seen.method == "POST"]


def test_a_job_after_others_whatever_became_of_them(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job", {"jobList": [{"id": "job-a1"}, {"id": "job-a2"}]})
    stub.on("POST /job/single", {"id": "job-b"})
    shell("job", "run", "-d", "--no-code", "--after", "any:array-1", "--after", "job-c", "--", "true")
    sent = next(seen.body for seen in stub.requests if seen.method == "POST")
    assert sent["after"] == ["any:job-a2", "any:job-a1", "job-c"]


def test_a_group_has_the_age_of_its_first_job(stub: Stub, shell: Shell) -> None:
    times = {
        "acceptTime": "2026-01-01 00:00:00",
        "startTime": "2026-01-01 00:00:05",
        "finishTime": "2026-01-01 00:02:05",
    }
    group = {"id": "array-1", "jobs": {"succeeded": 2}, **times}
    newest = {
        "id": "job-2",
        "array": "array-1",
        "name": "a-2",
        "status": "succeeded",
        "acceptTime": "2026-01-01 00:01:00",
    }
    stub.on("GET /job", {"jobList": [{**newest, "group": group}]})
    header, row = shell("job", "list", "-o", "wide").stdout.splitlines()
    assert row[header.index("SUBMITTED") :].startswith("2026-01-01 00:00:00  2026-01-01 00:00:05  2026-01-01 00:02:05")
    assert row[header.index("TIME") :].startswith("2m")
