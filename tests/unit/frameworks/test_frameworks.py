"""The framework tables: rules, and what every plan of every framework must be true of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Invalid
from paddleflow.frameworks.catalogue import FRAMEWORKS, find
from paddleflow.frameworks.framework import Framework, LaunchPlan, PlacedMember
from paddleflow.spec.document import parse
from paddleflow.spec.job import DistributedJob, SingleJob

EXAMPLES = Path(__file__).parents[3] / "examples"
#: What a confused user might set: who they are is not theirs to say.
LIES = {
    "PADDLE_TRAINER_ID": "99",
    "TRAINING_ROLE": "NOBODY",
    "PADDLE_PSERVERS_IP_PORT_LIST": "1.1.1.1:1",
    "RANK": "99",
    "MASTER_ADDR": "1.1.1.1",
    "PET_NODE_RANK": "99",
    "TF_CONFIG": "{}",
    "RAY_ADDRESS": "1.1.1.1:1",
    "DMLC_ROLE": "nobody",
    "PF_JOB_MODE": "None",
}


def gang(
    replicas: Mapping[str, int], *, hosts: bool = False, env: Mapping[str, str] | None = None
) -> list[PlacedMember]:
    """Members as an engine places them: ports of their own, on one machine or each on another."""
    framework_ports = max(role.ports for framework in FRAMEWORKS.values() for role in framework.roles)
    members: list[PlacedMember] = []
    for role, count in replicas.items():
        for index in range(count):
            number = len(members)
            members.append(
                PlacedMember(
                    role,
                    index,
                    f"10.0.0.{number}" if hosts else "127.0.0.1",
                    tuple(range(20000 + number * framework_ports, 20000 + (number + 1) * framework_ports)),
                    ("sh", "-c", "train"),
                    env or {},
                    folder="/jobs/job-1",
                )
            )
    return members


def planned(name: str, members: Sequence[PlacedMember]) -> Sequence[LaunchPlan]:
    """As the engine calls it: each member has as many ports as its role asked for."""
    framework = find(name)
    needed = {role.name: role.ports for role in framework.roles}
    return framework.plan("job-1", trimmed(members, needed))


def trimmed(members: Sequence[PlacedMember], needed: Mapping[str, int]) -> list[PlacedMember]:
    return [
        PlacedMember(m.role, m.index, m.host, m.ports[: needed[m.role]], m.argv, m.env, m.cpu, m.devices, m.folder)
        for m in members
    ]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Framework, list[PlacedMember]]:
    """A framework and members that it allows."""
    framework = draw(st.sampled_from(list(FRAMEWORKS.values())))
    drawn = {role.name: draw(st.integers(0, role.most or 4)) for role in framework.roles}
    replicas = {role: count for role, count in drawn.items() if count}
    if framework.check(replicas):
        replicas = {role.name: min(2, role.most or 2) for role in framework.roles}
    assert framework.check(replicas) == []
    env = draw(st.sampled_from([{}, {"MINE": "kept"}, {**LIES, "MINE": "kept"}]))
    needed = {role.name: role.ports for role in framework.roles}
    return framework, trimmed(gang(replicas, hosts=draw(st.booleans()), env=env), needed)


@given(jobs())
def test_plans_are_whole_and_the_same_each_time(job: tuple[Framework, list[PlacedMember]]) -> None:
    framework, members = job
    plans = framework.plan("job-1", members)
    assert plans == framework.plan("job-1", members)
    assert len(plans) == len(members)
    for member, plan in zip(members, plans, strict=True):
        assert all(isinstance(text, str) for item in plan.env.items() for text in item)
        assert all(isinstance(word, str) for word in plan.argv)
        assert all("/" not in name and text.endswith("\n") for name, text in plan.files.items())
        assert plan.ready_port is None or plan.ready_port in member.ports
        assert plan.env.get("MINE") == member.env.get("MINE")
    assert any(not plan.passive for plan in plans)


@given(jobs())
def test_every_endpoint_told_is_the_port_of_one_member(job: tuple[Framework, list[PlacedMember]]) -> None:
    framework, members = job
    owned = {f"{member.host}:{port}" for member in members for port in member.ports}
    assert len(owned) == sum(len(member.ports) for member in members)
    told: dict[str, PlacedMember] = {}
    for member, plan in zip(members, framework.plan("job-1", members), strict=True):
        added = {name: value for name, value in plan.env.items() if member.env.get(name) != value}
        for value in added.values():
            assert set(re.findall(r"(?<![\w.-])[\d.]+:\d+", value)) <= owned, value
        port = plan.env.get("PADDLE_PORT")
        if port is not None:
            assert int(port) in member.ports
            assert told.setdefault(f"{member.host}:{port}", member) is member


@given(jobs())
def test_all_members_are_told_the_same(job: tuple[Framework, list[PlacedMember]]) -> None:
    framework, members = job
    plans = framework.plan("job-1", members)
    for name in _SHARED:
        assert len({plan.env[name] for plan in plans if name in plan.env}) <= 1, name


#: Variables that must say the same to every member that has them.
_SHARED = (
    "PF_JOB_MODE",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINERS",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_MASTER",
    "PADDLE_NNODES",
    "PADDLE_GLOO_HTTP_ENDPOINT",
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RAY_ADDRESS",
    "DMLC_PS_ROOT_PORT",
)
#: Variables in which a framework's members are told who they are: ours, whatever the user says.
_OWNED: Mapping[str, tuple[str, ...]] = {
    "standalone": (),
    "paddle": ("PADDLE_TRAINER_ID", "TRAINING_ROLE"),
    "aitj": ("PADDLE_TRAINER_ID", "TRAINING_ROLE"),
    "pytorch": ("RANK", "PET_NODE_RANK", "MASTER_ADDR"),
    "tensorflow": ("TF_CONFIG",),
    "mpi": ("PF_JOB_MODE",),
    "ray": ("RAY_ADDRESS",),
    "spark": ("PF_JOB_MODE",),
    "mxnet": ("DMLC_ROLE",),
}
#: What makes a member different from all others of its job.
_RANK: Mapping[str, tuple[str, ...]] = {
    "paddle": ("TRAINING_ROLE", "PADDLE_TRAINER_ID"),
    "aitj": ("TRAINING_ROLE", "PADDLE_TRAINER_ID"),
    "pytorch": ("RANK",),
    "tensorflow": ("TF_CONFIG",),
    "mxnet": ("DMLC_ROLE", "DMLC_WORKER_ID", "DMLC_SERVER_ID"),
}


@given(jobs())
def test_every_member_has_a_rank_of_its_own(job: tuple[Framework, list[PlacedMember]]) -> None:
    framework, members = job
    if framework.name not in _RANK:
        return
    plans = framework.plan("job-1", members)
    ranks = [tuple(plan.env.get(name, "") for name in _RANK[framework.name]) for plan in plans]
    assert len(set(ranks)) == len(members)
    for plan in plans:
        assert all(plan.env[name] != LIES[name] for name in _OWNED[framework.name])


@given(jobs())
def test_paddle_endpoints_are_in_the_order_of_ranks(job: tuple[Framework, list[PlacedMember]]) -> None:
    framework, members = job
    if framework.name != "paddle":
        return
    for plan in framework.plan("job-1", members):
        env = plan.env
        listed = "PADDLE_PSERVERS_IP_PORT_LIST" if env["TRAINING_ROLE"] == "PSERVER" else "PADDLE_TRAINER_ENDPOINTS"
        own = f"{env['POD_IP']}:{env['PADDLE_PORT']}"
        assert env["PADDLE_CURRENT_ENDPOINT"] == own == env[listed].split(",")[int(env["PADDLE_TRAINER_ID"])]
        assert int(env["PADDLE_TRAINERS_NUM"]) == len(env["PADDLE_TRAINER_ENDPOINTS"].split(","))


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_tables_are_consistent(framework: Framework) -> None:
    names = [role.name for role in framework.roles]
    assert sorted(role for stage in framework.stages for role in stage) == sorted(names)
    spoken = [word for role in framework.roles for word in (role.name, *role.aliases)]
    assert len(set(spoken)) == len(spoken)
    assert framework.completing(names) <= set(names)
    assert framework.completing(names)
    assert FRAMEWORKS[framework.name] is framework
    if "worker" in names:
        role = framework.role("pworker")
        assert role is not None
        assert role.name == "worker"
    assert framework.role("nobody") is None


@pytest.mark.parametrize(
    ("framework", "replicas", "message"),
    [
        ("mpi", {"pserver": 1, "master": 1, "worker": 1}, "the role[pserver] for framework mpi is not supported"),
        ("mpi", {"worker": 2}, "framework mpi needs at least 1 master, found 0"),
        ("mpi", {"master": 1}, "framework mpi needs at least 1 worker, found 0"),
        ("mpi", {"master": 2, "worker": 1}, "framework mpi takes at most 1 master, found 2"),
        ("paddle", {"worker": 1}, "Collective mode needs at least 2 worker, found 1"),
        ("paddle", {"pserver": 1}, "parameter server mode needs at least 1 worker, found 0"),
        ("paddle", {"driver": 1, "worker": 2}, "the role[driver] for framework paddle is not supported"),
        ("aitj", {"driver": 1, "worker": 2}, "the role[driver] for framework aitj is not supported"),
        ("ray", {"worker": 1}, "framework ray needs at least 1 master, found 0"),
        ("ray", {"master": 1}, "framework ray needs at least 1 worker, found 0"),
        ("spark", {"executor": 2}, "framework spark needs at least 1 driver, found 0"),
        ("tensorflow", {"pserver": 2}, "framework tensorflow needs at least one master or worker, found none"),
        ("standalone", {"worker": 2}, "framework standalone takes at most 1 worker, found 2"),
    ],
)
def test_refused(framework: str, replicas: Mapping[str, int], message: str) -> None:
    assert [fault.message for fault in find(framework).check(replicas)] == [message]


@pytest.mark.parametrize(
    ("framework", "replicas"),
    [
        ("paddle", {"worker": 2}),
        ("paddle", {"pworker": 2}),
        ("paddle", {"pserver": 1, "worker": 1}),
        ("paddle", {"master": 1, "worker": 1}),
        ("pytorch", {"worker": 1}),
        ("pytorch", {"master": 1, "worker": 3}),
        ("tensorflow", {"pserver": 1, "worker": 2}),
        ("mpi", {"master": 1, "pworker": 2}),
        ("spark", {"driver": 1}),
        ("ray", {"master": 1, "worker": 1}),
        ("mxnet", {"master": 1, "pserver": 1, "worker": 1}),
        ("standalone", {"worker": 1}),
    ],
)
def test_allowed(framework: str, replicas: Mapping[str, int]) -> None:
    assert find(framework).check(replicas) == []


def test_all_faults_at_once() -> None:
    faults = find("mpi").check({"pserver": 1, "driver": 1})
    assert len(faults) == 4
    assert find("mpi").check({"mastr": 1, "worker": 1})[0].hint == "did you mean master?"


def test_an_unknown_framework_is_told_the_nearest() -> None:
    with pytest.raises(Invalid, match=r"framework\[padle\] is not supported") as caught:
        find("padle")
    assert caught.value.hint == "did you mean paddle?"


def test_paddle_mode_follows_the_roles() -> None:
    collective = planned("paddle", gang({"worker": 2}))
    assert {plan.env["PF_JOB_MODE"] for plan in collective} == {"Collective"}
    assert all(plan.ready_port is None for plan in collective)
    served = planned("paddle", gang({"pserver": 2, "worker": 1}))
    assert {plan.env["PF_JOB_MODE"] for plan in served} == {"PS"}
    assert [plan.env["TRAINING_ROLE"] for plan in served] == ["PSERVER", "PSERVER", "TRAINER"]
    paddle = find("paddle")
    assert paddle.completing({"pserver", "worker"}) == {"worker"}
    assert [role.name for word in ("master", "pserver") if (role := paddle.role(word))] == ["pserver", "pserver"]


def test_workers_wait_for_paddle_servers_unless_these_wait_for_them() -> None:
    """With gloo the first server opens its port only after the workers came: to wait for it would be a deadlock."""
    members = gang({"pserver": 2, "worker": 1})
    assert [plan.ready_port for plan in planned("paddle", members)] == [None, members[1].ports[0], None]
    plain = gang({"pserver": 2, "worker": 1}, env={"PADDLE_WITH_GLOO": "0"})
    assert [plan.ready_port for plan in planned("paddle", plain)] == [plain[0].ports[0], plain[1].ports[0], None]


def test_the_paddle_launcher_counts_every_worker_of_one_machine_as_a_node() -> None:
    for hosts in (False, True):
        (plan, _, _) = planned("paddle", gang({"worker": 3}, hosts=hosts))
        listed = plan.env.get("DISTRIBUTED_TRAINER_ENDPOINTS", plan.env["PADDLE_TRAINER_ENDPOINTS"]).split(",")
        assert len({entry.split(":")[0] for entry in listed}) == 3
        assert (listed[0] == plan.env["PADDLE_MASTER"]) is not hosts


def test_devices_of_paddle_are_counted_from_the_first_visible_one() -> None:
    members = [
        PlacedMember("worker", n, "127.0.0.1", (20000 + n, 21000 + n), ("x",), {}, devices=("2", "5")) for n in (0, 1)
    ]
    for plan in find("paddle").plan("job-1", members):
        assert plan.env["FLAGS_selected_gpus"] == "0,1"
        assert "PADDLE_DISTRI_BACKEND" not in plan.env


def test_tuning_is_the_users() -> None:
    mine = {"PADDLE_WITH_GLOO": "0", "PADDLE_LOG_DIR": "/logs", "PYTHONUNBUFFERED": "", "GLOO_SOCKET_IFNAME": "eth0"}
    for plan in planned("paddle", gang({"worker": 2}, env=mine)):
        assert {name: plan.env[name] for name in mine} == mine


def test_tensorflow_tells_all_of_the_same_cluster() -> None:
    members = gang({"pserver": 1, "master": 1, "worker": 2})
    configs = [json.loads(plan.env["TF_CONFIG"]) for plan in planned("tensorflow", members)]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    for config in configs:
        task = config["task"]
        assert config["cluster"][task["type"]][task["index"]]
    assert [config["task"]["type"] for config in configs] == ["ps", "chief", "worker", "worker"]
    assert find("tensorflow").completing({"pserver", "master", "worker"}) == {"master"}
    assert find("tensorflow").completing({"pserver", "worker"}) == {"worker"}


def test_mpi_gives_a_slot_for_each_worker() -> None:
    master, *workers = planned("mpi", gang({"master": 1, "worker": 3}))
    assert master.files == {"hostfile": "127.0.0.1 slots=3\n"}
    assert master.env["OMPI_MCA_orte_default_hostfile"] == "/jobs/job-1/hostfile"
    assert [plan.passive for plan in (master, *workers)] == [False, True, True, True]
    apart, *others = planned("mpi", gang({"master": 1, "worker": 2}, hosts=True))
    assert apart.files == {"hostfile": "10.0.0.1 slots=1\n10.0.0.2 slots=1\n"}
    assert "OMPI_MCA_plm" not in apart.env
    assert not any(plan.passive for plan in others)


def test_ray_head_runs_the_entry_point_and_offers_all_cores() -> None:
    env = {"RAY_JOB_ENTRY_POINT": "python app.py", "RAY_JOB_HEADER_START_PARAMS_OBJECT_STORE_MEMORY": "100"}
    head, *workers = planned("ray", gang({"master": 1, "worker": 2}, env=env))
    assert head.argv[-3:] == ("sh", "-c", "python app.py")
    script = head.argv[2]
    assert "--head" in script
    assert "--num-cpus=3" in script
    assert "--object-store-memory=100" in script
    start = next(line for line in script.splitlines() if line.startswith("ray start"))
    assert start.endswith(" --block $client &")
    assert "client-server" not in start, "only a Ray that has its client takes that"
    assert all(plan.passive for plan in workers)
    _, worker = planned("ray", gang({"master": 1, "worker": 1}, hosts=True))
    assert not worker.passive
    assert worker.argv[:2] == ("ray", "start")
    assert f"--address={worker.env['RAY_ADDRESS']}" in worker.argv


def test_spark_submits_the_file_that_the_variables_name() -> None:
    env = {
        "PF_JOB_SPARK_MAIN_FILE": "app.jar",
        "PF_JOB_SPARK_MAIN_CLASS": "org.Main",
        "PF_JOB_SPARK_ARGUMENTS": "one 'two three'",
    }
    driver, *executors = planned("spark", gang({"driver": 1, "executor": 2}, env=env))
    assert driver.argv[:3] == ("spark-submit", "--master", "local[2]")
    assert driver.argv[-5:] == ("--class", "org.Main", "app.jar", "one", "two three")
    assert all(plan.passive for plan in executors)
    (alone,) = planned("spark", gang({"driver": 1}))
    assert alone.argv == ("sh", "-c", "train")
    assert alone.env["MASTER"] == "local[1]"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/job.json")), ids=lambda path: path.parent.name)
def test_examples_are_documents_that_the_platform_takes(path: Path) -> None:
    data = json.loads(path.read_text("utf-8"))
    if "framework" not in data:
        assert parse(SingleJob, data).command
        return
    document = parse(DistributedJob, data)
    assert find(document.framework).check({member.role: member.replicas for member in document.members}) == []
    for member in document.members:
        assert member.image
        assert member.fs is None or (EXAMPLES / member.fs.sub_path).is_dir()
