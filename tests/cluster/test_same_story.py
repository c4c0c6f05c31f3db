"""The same job files on one machine and on a cluster: states, events, messages, exit codes and logs are the same.

Each of `SPECS` runs on both, all at once. Where the two differ there is an entry in `DIFFERENT`, and a row in the table of
docs/guides/clusters.md.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from paddleflow.sdk.jobs import Job
from tests.cluster.test_server_jobs import SMALL, Scene
from tests.cluster.test_server_jobs import scene as scene
from tests.patience import eventually

RETRY = {"PF_JOB_RESTART_POLICY": "OnFailure", "PF_JOB_MAX_RETRIES": "2"}
GANG_FAILS = "[ $RANK = 1 ] || { touch first; exec sleep 1000; }; until [ -e first ]; do sleep 1; done; sleep 1; exit 4"
COUNT = "echo x >> {file}; test $(wc -l < {file}) -ge {times}"


def single(command: Any, **fields: Any) -> dict[str, Any]:
    return {"command": command, "flavour": SMALL, **fields}


def gang(framework: str, command: str, fs: dict[str, str] | None = None, **roles: int) -> dict[str, Any]:
    member = {"command": command, "flavour": SMALL, **({"fs": fs} if fs else {})}
    return {"framework": framework, "members": [{"role": role, "replicas": n, **member} for role, n in roles.items()]}


SPECS: Mapping[str, dict[str, Any]] = {
    "succeeds": single("true"),
    "fails": single("exit 3"),
    "kills itself": single("kill -9 $$"),
    "ends on its own signal": single("kill -15 $$; sleep 5"),
    "says something": single("echo out; echo more"),
    "says nothing": single(":"),
    "says much": single("i=0; while [ $i -lt 3000 ]; do echo line $i of a log that is longer than one page; i=$((i+1)); done"),
    "has no last newline": single("printf end"),
    "speaks other languages": single("echo 深度学习 ünïcode"),
    "a list of words": single(["sh", "-c", 'echo "$0 $1"', "a  b", "c"]),
    "arguments": single("echo", args=["one word", "$HOME", "'quoted'"]),
    "variables": single('echo "$COLOUR/$EMPTY/$SPACED"', env={"COLOUR": "blue", "EMPTY": "", "SPACED": " a  b "}),
    "knows who it is": single('echo "$PF_JOB_NAME $PF_ROLE $PF_ROLE_INDEX $PF_JOB_ATTEMPT $PF_USER_NAME"', name="who"),
    "no such program": single(["no-such-program"]),
    "no such program in the shell": single("no-such-program 2> /dev/null"),
    "not executable": single(["/etc/hostname"]),
    "its input is empty": single("cat; echo over"),
    "can write where it is": single("echo x > file && cat file"),
    "has shared memory": single("echo y > /dev/shm/conformance-$PF_JOB_ID && cat /dev/shm/conformance-$PF_JOB_ID"),
    "a storage": single("cat hello", fs={"name": "gates"}),
    "part of a storage": single("cat inner", fs={"name": "gates", "subPath": "sub", "mountPath": "/inside"}),
    "a storage that is read only": single("touch new 2> /dev/null || exit 9", fs={"name": "gates", "readOnly": True}),
    "starts again": single(COUNT.format(file="again", times=2), env=RETRY, fs={"name": "gates"}),
    "starts again in vain": single(COUNT.format(file="vain", times=9), env=RETRY, fs={"name": "gates"}),
    "memory": single("x=12345678; while true; do x=$x$x; done"),
    "a limit above the request": single("echo fits", limitFlavour={"cpu": "100m", "mem": "64Mi"}),
    "paddle": gang("paddle", 'echo "$PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM"', worker=2),
    "paddle with servers": gang("paddle", 'echo "$TRAINING_ROLE $PADDLE_TRAINERS_NUM"; [ $PF_ROLE = worker ] || exec sleep 1000', pserver=1, worker=2),
    "pytorch": gang("pytorch", 'echo "$RANK of $WORLD_SIZE"', master=1, worker=2),
    "tensorflow": gang("tensorflow", 'echo "$TF_CONFIG" | grep -o \'"task": {[^}]*}\'', pserver=1, worker=2),
    "one of a gang fails": gang("pytorch", GANG_FAILS, {"name": "gates"}, worker=2),
}  # fmt: skip
#: what differs, by the spec and the part of its story
DIFFERENT = {("not executable", "message"): "the kernel's words for a file that is no program depend on who asks it"}


@dataclass(frozen=True, slots=True)
class Story:
    """What a person can know of a job."""

    states: list[str]
    message: str
    members: list[tuple[str, str, int | None]]
    log: list[str]


def told(scene: Scene, job: Job) -> Story:
    record = scene.client.jobs.get(job.id).record
    states: list[str] = []
    for event in job.events(follow=False):
        if event.type == "status" and (not states or states[-1] != event.status):
            states.append(event.status)
    members = sorted((task.name.removeprefix(f"{job.id}-"), task.status, task.exit_code) for task in record.tasks)
    return Story(states, plain(record.message, job), members, sorted("".join(job.logs()).splitlines()))


def finished(scene: Scene, job: Job) -> bool:
    return scene.client.jobs.get(job.id).finished


def plain(message: str, job: Job) -> str:
    return re.sub(r"node\d|" + re.escape(job.id), "X", message)


@pytest.mark.timeout(400)
def test_the_same_files_tell_the_same_story(scene: Scene) -> None:
    scene.client.storages.create("elsewhere", f"local://{_folder(scene, 'one machine')}")
    for place in (scene.folder, scene.folder / "one machine"):
        (place / "hello").write_text("hello\n")
        (place / "sub").mkdir(mode=0o777)
        (place / "sub" / "inner").write_text("inner\n")
    jobs = {
        (name, where): scene.client.jobs.submit(placed(spec, where)) for name, spec in SPECS.items() for where in ("one machine", "cluster")
    }  # fmt: skip
    for (name, where), job in jobs.items():
        eventually(functools.partial(finished, scene, job), f"the end of '{name}' on the {where}: {job.id}")
    differences = {}
    for name in SPECS:
        one, other = told(scene, jobs[name, "one machine"]), told(scene, jobs[name, "cluster"])
        for part in Story.__dataclass_fields__:
            if getattr(one, part) != getattr(other, part):
                differences[name, part] = f"{getattr(one, part)} | {getattr(other, part)}"
    unexpected = [f"{key}: {text}" for key, text in differences.items() if key not in DIFFERENT]
    assert not unexpected, "\n".join(unexpected)
    assert set(DIFFERENT) <= set(differences), "what does not differ any more is no exception"


def _folder(scene: Scene, name: str) -> str:
    made = scene.folder / name
    made.mkdir(mode=0o777)
    made.chmod(0o777)
    return str(made)


def placed(spec: dict[str, Any], where: str) -> dict[str, Any]:
    """The same document, for the queue of one machine or of the cluster; each has its own copy of the files."""
    made = json.loads(
        json.dumps({**spec, "schedulingPolicy": {"queue": "q" if where == "cluster" else "default-queue"}})
    )
    for part in (made, *made.get("members", ())):
        if "fs" in part and where == "one machine":
            part["fs"]["name"] = "elsewhere"
    document: dict[str, Any] = made
    return document
