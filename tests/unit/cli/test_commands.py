"""Each command: the request it makes, and what it prints, to the letter where scripts read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

import paddleflow
from tests.client_stub import Shell, Stub

Line = tuple[str, str, dict[str, str], Any]


#: words → (request, answer, what is printed)
MESSAGES: dict[str, tuple[Line, Any, str]] = {
    "user add alice secret1": (
        ("POST", "/user", {}, {"username": "alice", "password": "secret1"}),
        {"username": "alice"},
        "user[alice] add success\n",
    ),
    "user set alice secret2": (
        ("PUT", "/user/alice", {}, {"password": "secret2"}),
        None,
        "user[alice] update success\n",
    ),
    "user delete alice": (("DELETE", "/user/alice", {}, None), None, "user[alice] delete success\n"),
    "queue create q default 4 8Gi --maxscalar a=1,b=2 --mincpu 1 --policy priority --location x=y --clustername c": (
        (
            "POST",
            "/queue",
            {},
            {
                "name": "q",
                "namespace": "default",
                "clusterName": "c",
                "maxResources": {"cpu": "4", "mem": "8Gi", "scalarResources": {"a": "1", "b": "2"}},
                "minResources": {"cpu": "1"},
                "schedulingPolicy": ["priority"],
                "location": {"x": "y"},
            },
        ),
        {"name": "q"},
        "queue[q] create success\n",
    ),
    "queue update q --maxcpu 5 --location x=": (
        ("PUT", "/queue/q", {}, {"maxResources": {"cpu": "5"}, "location": {"x": ""}}),
        {"name": "q"},
        "queue[q] update success\n",
    ),
    "queue update q --parent lab --weight 2 --order drf": (
        ("PUT", "/queue/q", {}, {"parent": "lab", "weight": 2, "order": "drf"}),
        {"name": "q"},
        "queue[q] update success\n",
    ),
    "queue update q --status closed": (
        ("PUT", "/queue/q", {}, {"status": "closed"}),
        {"name": "q"},
        "queue[q] update success\n",
    ),
    "queue create q default 4 8Gi --parent lab --weight 2 --order fair": (
        (
            "POST",
            "/queue",
            {},
            {
                "name": "q",
                "namespace": "default",
                "maxResources": {"cpu": "4", "mem": "8Gi"},
                "parent": "lab",
                "weight": 2,
                "order": "fair",
            },
        ),
        {"name": "q"},
        "queue[q] create success\n",
    ),
    "queue delete q": (("DELETE", "/queue/q", {}, None), None, "queue[q] delete success\n"),
    "queue grant alice q": (
        ("POST", "/grant", {}, {"userName": "alice", "resourceType": "queue", "resourceID": "q"}),
        {"grantID": "g"},
        "queue[q] add username[alice] success\n",
    ),
    "queue ungrant alice q": (
        ("DELETE", "/grant", {"username": "alice", "resourceType": "queue", "resourceID": "q"}, None),
        None,
        "queue[q] delete username[alice] success\n",
    ),
    "flavour create f -c 1 -m 1Gi -s g=1": (
        ("POST", "/flavour", {}, {"name": "f", "cpu": "1", "mem": "1Gi", "scalarResources": {"g": "1"}}),
        {"name": "f"},
        "flavour[f] create success\n",
    ),
    "flavour update f -c 2": (("PUT", "/flavour/f", {}, {"cpu": "2"}), {"name": "f"}, "update [f] success\n"),
    "flavour delete f": (("DELETE", "/flavour/f", {}, None), None, "flavour[f] delete success\n"),
    "cluster create c e Local -d words -ns a,b": (
        (
            "POST",
            "/cluster",
            {},
            {
                "clusterName": "c",
                "endpoint": "e",
                "clusterType": "Local",
                "description": "words",
                "namespaceList": ["a", "b"],
            },
        ),
        {"id": "cluster-1"},
        "cluster[c] create  success, id[cluster-1]\n",
    ),
    "cluster update c --status offline -c aGk=": (
        ("PUT", "/cluster/c", {}, {"status": "offline", "credential": "aGk="}),
        {"id": "cluster-1"},
        "cluster[c] update success, id[cluster-1]\n",
    ),
    "cluster delete c": (("DELETE", "/cluster/c", {}, None), None, "cluster[c] delete success\n"),
    "fs create data local:///d -o a=b -o c=d,e": (
        ("POST", "/fs", {}, {"name": "data", "url": "local:///d", "properties": {"a": "b", "c": "d,e"}}),
        {"fsName": "data", "fsID": "fs-root-data"},
        "fs[data] create success\n",
    ),
    "fs delete data -u alice": (
        ("DELETE", "/fs/data", {"username": "alice"}, None),
        None,
        "fs[data] delete success\n",
    ),
    "job update j -p high -l a=b": (
        ("PUT", "/job/j", {"action": "modify"}, {"priority": "high", "labels": {"a": "b"}}),
        None,
        "jobid[j] update success\n",
    ),
    "job stop j": (("PUT", "/job/j", {"action": "stop"}, None), None, "jobid[j] stop success\n"),
    "job delete j": (("DELETE", "/job/j", {}, None), None, "job[j] delete success\n"),
}


@pytest.mark.parametrize("words", MESSAGES)
def test_what_is_done_is_said_to_the_letter(stub: Stub, shell: Shell, words: str) -> None:
    line, answer, printed = MESSAGES[words]
    stub.on(f"{line[0]} {line[1]}", answer)
    result = shell(*words.split())
    assert (result.stdout, result.stderr) == (printed, "")
    assert stub.lines() == [line]
    name = shell("--output", "name", *words.split()).stdout
    assert name.rstrip("\n") in words.split()


@pytest.mark.parametrize(
    ("words", "routes", "wanted"),
    [
        ("queue create q default 4 8Gi", ["POST /queue", "GET /queue/q"], {"name": "q", "status": "open"}),
        ("job stop j", ["PUT /job/j", "GET /job/j"], {"id": "j", "status": "terminating"}),
        ("run stop run-000001", ["PUT /run/run-000001", "GET /run/run-000001"], {"id": "run-000001", "status": "x"}),
    ],
)
def test_json_after_an_action_is_the_object(
    stub: Stub, shell: Shell, words: str, routes: list[str], wanted: dict[str, str]
) -> None:
    raw = {"runID": wanted["id"], "status": "x"} if words.startswith("run") else wanted
    for route in routes:
        stub.on(route, raw)
    assert json.loads(shell(*words.split(), "-o", "json").stdout) == wanted


PAGE = {"isTruncated": True, "nextMarker": "m2"}
JOB = {"id": "job-1", "name": "train", "schedulingPolicy": {"queue": "q"}, "status": "running", "acceptTime": "t1"}

#: words → (request, answer, table)
LISTS: dict[str, tuple[Line, Any, str]] = {
    "user list": (
        ("GET", "/user", {"maxKeys": "100"}, None),
        {"userList": [{"name": "alice", "createTime": "t"}]},
        "name|create time\nalice|t\n",
    ),
    "queue list -m 5 -mk m1": (
        ("GET", "/queue", {"maxKeys": "5", "marker": "m1"}, None),
        {"queueList": [{"name": "q", "namespace": "n", "status": "open", "clusterName": "c"}], **PAGE},
        "name|namespace|status|cluster name|create time|update time\nq|n|open|c||\nmarker: m2\n",
    ),
    "queue grantlist -u alice": (
        ("GET", "/grant", {"username": "alice", "maxKeys": "100"}, None),
        {"grantList": [{"userName": "alice", "resourceType": "queue", "resourceID": "q"}]},
        "user name|queue name\nalice|q\n",
    ),
    "flavour list": (
        ("GET", "/flavour", {"maxKeys": "100"}, None),
        {"flavourList": [{"name": "f", "cpu": "1", "mem": "1Gi", "scalarResources": {"g": "1"}}]},
        'name|cpu|mem|scalarResources|clusterName\nf|1|1Gi|{"g": "1"}|\nmarker: None\n',
    ),
    "flavour show f": (
        ("GET", "/flavour/f", {}, None),
        {"name": "f", "cpu": 1, "mem": "1Gi"},
        "name|cpu|mem|scalarResources|clusterName\nf|1|1Gi||\n",
    ),
    "cluster list -cn a,b -cs online": (
        ("GET", "/cluster", {"clusterNames": "a,b", "clusterStatus": "online", "maxKeys": "100"}, None),
        {"clusterList": [{"id": "i", "clusterName": "a", "clusterType": "Local", "status": "online"}]},
        "cluster id|cluster name|description|cluster type|version|status|create time|update time\n"
        "i|a||Local||online||\nmarker: None\n",
    ),
    "fs list -u alice -m 7": (
        ("GET", "/fs", {"username": "alice", "maxKeys": "7"}, None),
        {"fsList": [{"name": "d", "username": "alice", "type": "local", "serverAddress": "", "subPath": "/d"}]},
        "name|owner|type|server address|sub path|properties\nd|alice|local||/d|\n",
    ),
    "fs show d": (
        ("GET", "/fs/d", {}, None),
        {"name": "d", "username": "root", "type": "local", "properties": {"a": "b"}},
        'name|owner|type|server address|sub path|properties\nd|root|local|||{"a": "b"}\n',
    ),
    "job list -s running,pending -t 5 -q q -l a=b -m 3": (
        (
            "GET",
            "/job",
            {"status": "running,pending", "timestamp": "5", "queue": "q", "labels": '{"a": "b"}', "maxKeys": "3"},
            None,
        ),
        {"jobList": [JOB], **PAGE},
        "job id|job name|queue|status|accept time|start time|finish time\njob-1|train|q|running|t1||\nmarker: m2\n",
    ),
    "job list -fl id,port,labels": (
        ("GET", "/job", {"maxKeys": "50"}, None),
        {"jobList": [{**JOB, "port": 8080, "labels": {"a": "b"}}]},
        'job id|port|labels\njob-1|8080|{"a": "b"}\nmarker: None\n',
    ),
    "statistics job j": (
        ("GET", "/statistics/job/j", {}, None),
        {"metricsInfo": {"cpu_usage_rate": "1.00%", "memory_usage": "5(Bytes)"}},
        "cpu usage rate|memory usage\n1.00%|5(Bytes)\n",
    ),
    "statistics job j -d -s 1 -e 9 -st 2": (
        ("GET", "/statistics/jobDetail/j", {"start": "1", "end": "9", "step": "2"}, None),
        {
            "result": [
                {
                    "taskName": "worker-0",
                    "taskInfo": [
                        {"metric": "cpu_rate", "values": [[10, 1], [2, 0.5]]},
                        {"metric": "mem", "values": [[10, 7]]},
                    ],
                },
                {"taskName": "worker-1", "taskInfo": [{"metric": "mem", "values": [[2, 8]]}]},
            ]
        },
        "timestamp|cpu rate|mem|task name\n2|0.5|N/A|worker-0\n10|1|7|worker-0\n2|N/A|8|worker-1\n",
    ),
    "statistics card-time -q q,r -s a -e b": (
        ("POST", "/statistics/cardTime", {}, {"queueNames": ["q", "r"], "startTime": "a", "endTime": "b"}),
        {
            "data": [
                {
                    "queueName": "q",
                    "cardTime": 1.5,
                    "deviceType": "nvidia.com/gpu",
                    "detail": [{"userName": "alice", "jobCount": 2, "totalCardTime": 1.5}],
                },
                {"queueName": "r", "cardTime": 0},
            ]
        },
        "queue name|card time|device type|user name|job count|total card time\n"
        "q|1.5|nvidia.com/gpu|alice|2|1.5\nr|0.0||||\n",
    ),
    "whoami": (
        ("GET", "/whoami", {}, None),
        {"name": "alice", "root": False, "expires": "2026-12-01T00:00:00Z"},
        "name|root|expires|server\nalice|no|2026-12-01T00:00:00Z|URL\n",
    ),
}


def cells(grid: str) -> str:
    """A grid without its lines."""
    rows = [line for line in grid.splitlines() if not line.startswith("+")]
    return "".join(
        "|".join(c.strip() for c in row.strip("|").split("|")) + "\n" if "|" in row else row + "\n" for row in rows
    )


@pytest.mark.parametrize("words", LISTS)
def test_compat_prints_the_tables_of_the_original_client(stub: Stub, shell: Shell, words: str) -> None:
    line, answer, wanted = LISTS[words]
    stub.on(f"{line[0]} {line[1]}", answer)
    printed = shell("--output", "compat", *words.split()).stdout
    assert cells(printed).replace(stub.url, "URL") == wanted
    assert stub.lines() == [line]
    headers = wanted.split("\n", 1)[0].split("|")
    text = shell("--output", "text", *words.split()).stdout.splitlines()
    rows = [row for row in text if not row.startswith("marker: ")]
    assert [len(row.split("\t")) for row in rows] == [len(headers)] * len(rows)


@pytest.mark.parametrize("words", LISTS)
def test_no_table_has_rules_or_json(stub: Stub, shell: Shell, words: str) -> None:
    line, answer, _ = LISTS[words]
    stub.on(f"{line[0]} {line[1]}", answer)
    stub.on("GET /fs/d/mounts", {"mountList": [], "cacheList": []})
    for format in ("table", "wide"):
        printed = shell(*words.split(), "-o", format).stdout
        assert not {"|", "{", '"'} & set(printed)
    assert json.loads(shell(*words.split(), "--json").stdout)


@pytest.mark.parametrize(
    ("words", "route", "said"),
    [
        ("user list", "GET /user", "no users found \n"),
        ("queue list", "GET /queue", "no queue found \nmarker: None\n"),
        ("queue grantlist", "GET /grant", "no grantlist found \n"),
        ("flavour list", "GET /flavour", "not find flavour\nmarker: None\n"),
        ("cluster list", "GET /cluster", "no cluster found \nmarker: None\n"),
        ("fs list", "GET /fs", "no fs found \n"),
    ],
)
def test_nothing_found(stub: Stub, shell: Shell, words: str, route: str, said: str) -> None:
    stub.on(route, {})
    assert shell(*words.split(), "-o", "compat").stdout == said
    empty = shell(*words.split())
    assert (empty.stdout, empty.stderr.startswith("No ")) == ("", True)
    assert json.loads(shell("--output", "json", *words.split()).stdout) == []


def test_a_cut_list_says_how_to_go_on(stub: Stub, shell: Shell) -> None:
    stub.on("GET /user", {"userList": [{"name": "a"}], **PAGE})
    assert shell("user", "list").stderr == "hint: more users follow; use --all, or --marker m2\n"


def test_all_pages_are_listed(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job", {"jobList": [JOB], **PAGE}, {"jobList": [{**JOB, "id": "job-2"}]})
    result = shell("job", "list", "--all", "-o", "name")
    assert (result.stdout, result.stderr) == ("job-1\njob-2\n", "")
    assert [seen.query for seen in stub.requests] == [{"maxKeys": "500"}, {"maxKeys": "500", "marker": "m2"}]


def test_lists_in_every_format(stub: Stub, shell: Shell) -> None:
    stub.on("GET /run", {"runList": [{"runID": "run-000001", "name": "n", "status": "failed", "runMsg": "why"}]})
    assert json.loads(shell("run", "list", "-o", "json").stdout) == [
        {"id": "run-000001", "name": "n", "status": "failed", "runMsg": "why"}
    ]
    assert shell("run", "list", "-o", "yaml").stdout == snapshot("""\
- id: run-000001
  name: n
  status: failed
  runMsg: why
""")
    assert shell("run", "list", "-o", "name").stdout == "run-000001\n"
    assert shell("run", "list").stdout == snapshot("""\
ID          NAME  USER  STATUS  AGE  TIME  MESSAGE
run-000001  n           failed             why
""")


def test_show_queue(stub: Stub, shell: Shell) -> None:
    raw = {"name": "q", "status": "open", "maxResources": {"cpu": "4", "memory": "24684100Ki"}, "location": {}}
    stub.on("GET /queue/q", raw)
    assert shell("queue", "show", "q").stdout == snapshot("""\
Name:       q
Status:     open
Guarantee:  none
Maximum:    cpu 4, memory 23.5 GiB
Used:       nothing
Weight:     1
""")
    assert shell("queue", "show", "q", "-o", "compat").stdout.replace(": \n", ":~\n") == snapshot("""\
+------+-----------+--------+------------+--------------+-------------+-------------+
| name | namespace | status | quota type | cluster name | create time | update time |
+======+===========+========+============+==============+=============+=============+
| q    |           | open   |            |              |             |             |
+------+-----------+--------+------------+--------------+-------------+-------------+
queue info:~
[
    {
        "max resources": {
            "cpu": "4",
            "memory": "24684100Ki"
        }
    }
]
""")
    assert json.loads(shell("queue", "show", "q", "-o", "json").stdout) == raw


def test_show_job(stub: Stub, shell: Shell) -> None:
    raw = {**JOB, "message": "waits", "runtime": {"role": "worker", "index": 0, "status": "failed", "exitCode": 3}}
    stub.on("GET /job/job-1", {**raw, "command": ["a", "b c"]})
    assert shell("job", "show", "job-1").stdout == snapshot("""\
ID:         job-1
Name:       train
Queue:      q
Status:     running
Message:    waits
Submitted:  t1
Command:    a 'b c'
Tasks:      worker-0  failed  exit code 3
""")
    printed = shell("job", "show", "job-1", "-o", "compat").stdout
    assert "job config and runtime info: \n" in printed
    (rest,) = json.loads(printed.partition("info: \n")[2])
    assert rest == {"command": ["a", "b c"], "message": "waits", "runtime": raw["runtime"]}


def test_cluster_resource(stub: Stub, shell: Shell) -> None:
    node = {"nodeName": "n1", "total": {"cpu": "4", "memory": "8Gi"}, "idle": {"cpu": "1", "memory": "512Mi"}}
    raw = {"c": {"summary": {"total": {"cpu": "4"}}, "nodeList": [node]}}
    stub.on("GET /cluster/resource", raw)
    assert shell("cluster", "resource").stdout == snapshot("""\
CLUSTER  NODE  TOTAL                FREE
c        n1    cpu 4, memory 8 GiB  cpu 1, memory 512 MiB
""")
    assert '"cpu": "4"' in shell("cluster", "resource", "-o", "compat").stdout
    assert json.loads(shell("cluster", "resource", "--json").stdout) == raw
    stub.on("POST /cluster/resource", {"c": {"capacity": {"n1": {"cpu": "4"}}, "allocatable": {"n1": {"cpu": "1"}}}})
    assert shell("cluster", "statistic", "-cn", "c", "-q", "q").stdout == snapshot("""\
CLUSTER  NODE  TOTAL  FREE
c        n1    cpu 4  cpu 1
""")
    assert stub.requests[-1].body == {"clusterNames": ["c"], "queueName": "q", "pageSize": 1000}


PREFIX = {"jobList": [{"id": "job-6afc1111"}, {"id": "job-6afc2222"}, {"id": "job-6afd3333"}]}


@pytest.mark.parametrize(
    ("given", "found"), [("job-6afd", "job-6afd3333"), ("6afc2", "job-6afc2222"), ("-", "job-6afc1111")]
)
def test_a_job_may_be_named_shortly(stub: Stub, shell: Shell, given: str, found: str) -> None:
    stub.on("GET /job", PREFIX)
    stub.on(f"GET /job/{found}/why", {"id": found})
    assert shell("job", "why", given, "-o", "json").stdout.count(found) == 1


def test_a_prefix_of_several_jobs_is_refused(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job", PREFIX)
    assert shell("job", "why", "6afc", code=1).stderr == snapshot("""\
error: 2 jobs begin with job-6afc
hint: give more of the id: job-6afc1111 or job-6afc2222, for example
""")


@pytest.mark.parametrize("given", ["7", "run-7", "run-000007", "@latest"])
def test_a_run_may_be_named_by_its_number(stub: Stub, shell: Shell, given: str) -> None:
    stub.on("GET /run", {"runList": [{"runID": "run-000007"}]})
    stub.on("GET /run/run-000007", {"runID": "run-000007", "runYaml": "name: x"})
    assert shell("run", "show", given, "--yaml").stdout == "name: x\n"


def test_a_kubeconfig_file_is_sent_as_base64(stub: Stub, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"kube")
    stub.on("PUT /cluster/c", {"id": "i"})
    shell("cluster", "update", "c", "-c", str(file))
    assert stub.requests[0].body == {"credential": "a3ViZQ=="}
    assert "does not exist" in shell("cluster", "update", "c", "-c", "/absent/config", code=2).stderr
    for value in ("lab.kubeconfig", "nothere"):
        said = shell("cluster", "update", "c", "-c", value, code=2).stderr
        assert f"{value} is neither a file nor base64" in said


@pytest.mark.parametrize("words", ["log", "job"])
def test_a_group_alone_prints_its_help_once(shell: Shell, words: str) -> None:
    printed = shell(words, code=2).stderr
    assert (printed.count("Usage: "), printed.count("error:")) == (1, 0)


def test_versions(stub: Stub, shell: Shell) -> None:
    stub.on("GET /version", {"gitVersion": "2.0", "gitCommit": "", "platform": "linux/x86_64"})
    client = f"PaddleFlow-{paddleflow.__version__}"
    assert shell("version").stdout == f"client:  {client}\nserver:  2.0, linux/x86_64\n"
    assert shell("version", "-o", "name").stdout == f"{client}\n"
    assert json.loads(shell("version", "-o", "json").stdout) == {
        "client": client,
        "server": {"gitVersion": "2.0", "gitCommit": "", "platform": "linux/x86_64"},
    }
    stub.requests.clear()
    assert shell("version", "--client").stdout == f"client:  {client}\n"
    assert json.loads(shell("version", "--client", "-o", "json").stdout) == {"client": client}
    assert stub.requests == []
