"""Users of one server, root's and an ordinary account's: each job sees its own files and nothing of the others', through all that the
platform does."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.errors import PaddleFlowError
from paddleflow.fs import device
from paddleflow.objects.s3 import S3Store
from paddleflow.runtimes.local.procfs import pids
from paddleflow.sdk.client import PaddleFlow
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.keeper_scene import kill_keeper
from tests.mounts import needs_fuse
from tests.ordinary_account import UID, needs_root
from tests.patience import PATIENCE, eventually
from tests.s3_servers import KEYS, versitygw

pytestmark = needs_root
TINY = {"cpu": "100m", "mem": "64Mi"}
assert PADDLEFLOW


@pytest.fixture
def users(server: ServerProcess) -> dict[str, PaddleFlow]:
    found = {}
    for name in ("alice", "bobby"):
        server.connect().users.create(name, f"{name}-secret1")
        found[name] = server.connect()
        found[name].login(name, f"{name}-secret1")
    return found


def test_a_job_reads_neither_the_server_s_token_nor_another_s_storage(
    server: ServerProcess, users: dict[str, PaddleFlow], tmp_path: Path
) -> None:
    if "isolation of users: by user" not in server.log.read_text():
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    area = server.data / "storage"
    users["alice"].storages.create("files", f"local://{area}/alice/files")
    users["bobby"].storages.create("files", f"local://{area}/bobby/files")
    (area / "alice" / "files" / "there").write_text("of-alice\n")
    (area / "bobby" / "files" / "there").write_text("of-bobby\n")
    script = (
        f"id -u; cat /home/paddleflow/storage/mnt/fs-alice-files/there; cat {server.data}/client-token {area}/bobby/files/there;"
        " echo made > /home/paddleflow/storage/mnt/fs-alice-files/new; exit 0"
    )
    job = users["alice"].jobs.submit({"command": script, "flavour": TINY, "fs": {"name": "files"}})
    job.wait(PATIENCE)
    text = "".join(job.logs())
    assert job.status == "succeeded", f"{job.record.message} {text}"
    assert text.splitlines()[:2] == ["200000", "of-alice"]
    assert server.token not in text
    assert "of-bobby" not in text
    made = area / "alice" / "files" / "new"
    assert (made.read_text(), made.stat().st_uid) == ("made\n", 0)


def test_a_storage_at_the_top_folder(server: ServerProcess, users: dict[str, PaddleFlow]) -> None:
    if "isolation of users: by user" not in server.log.read_text():
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    alice, folder = users["alice"], server.data / "storage" / "alice" / "files"
    alice.storages.create("files", f"local://{folder}")
    fs = {"name": "files", "mountPath": "/paddleflow-data"}
    job = alice.jobs.submit({"command": "echo made > /paddleflow-data/new; ls -d /tmp /usr", "flavour": TINY, "fs": fs})
    job.wait(PATIENCE)
    assert job.status == "succeeded", f"{job.record.message} {''.join(job.logs())}"
    assert (folder / "new").read_text() == "made\n"
    assert not Path("/paddleflow-data").exists()


@needs_fuse
def test_a_bucket_is_the_user_s_own_inside_the_job(server: ServerProcess, users: dict[str, PaddleFlow]) -> None:
    if "isolation of users: by user" not in server.log.read_text():
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    alice = users["alice"]
    with versitygw() as s3:
        bucket = s3.bucket()
        store = S3Store(bucket)
        store.write("in/there", b"of-alice\n")
        keys = {"endpoint": bucket.endpoint, "accessKey": KEYS.access_key, "secretKey": KEYS.secret_key}
        alice.storages.create("bucket", f"s3://{bucket.name}/{bucket.prefix}", properties=keys)
        script = (
            "set -e; id -u; cat in/there; stat -c %u in/there; mkdir out; echo made > out/new; echo more >> in/there;"
            " stat -c %u:%g out out/new; mv out/new out/moved; chmod 600 out/moved; ln -s moved out/link; cat out/link;"
            " chown 0 out/moved 2>/dev/null || echo refused"
        )
        try:
            job = alice.jobs.submit(
                {"command": script, "flavour": TINY, "fs": {"name": "bucket", "mountPath": "/data"}}
            )
            job.wait(PATIENCE)
            text = "".join(job.logs())
            assert job.status == "succeeded", f"{job.record.message} {text}"
            inside = "200000"
            owners = f"{inside}:{inside}"
            assert text.split() == [inside, "of-alice", inside, owners, owners, "made", "refused"]
            assert store.read("in/there", size=99) == b"of-alice\nmore\n"
            assert store.stat("out/moved").metadata["pf-uid"] == "0", "in the store it is the storage's owner"
        finally:
            for folder in device.mounted_folders():
                if Path(folder).is_relative_to(server.data.resolve()):
                    device.unmount(Path(folder), force=True)


@pytest.fixture(params=["root", "ordinary"])
def shared(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server of that account, on which others than root have accounts, too."""
    with tempfile.TemporaryDirectory() as name:
        folder, account = Path(name), list[str]()
        folder.chmod(0o755)
        if request.param == "ordinary":
            os.chown(folder, UID, UID)
            account = [sys.executable, "-m", "tests.ordinary_account", name]
        path = {"PYTHONPATH": str(Path(__file__).parents[2])}
        server = ServerProcess(folder / "data", path, account).start()
        eventually(lambda: "isolation of users: " in server.log.read_text(), "the log says what is in force")
        yield server
        server.end()


#: Each says so if it gets anywhere. What `tests/unit/runtimes/test_isolation.py` tries is not repeated here.
ESCAPES = r"""
got() { echo "ESCAPED by $1"; }
for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do (: >> $f) 2>&1 && got $f; done
for f in /sys/fs/cgroup/*/release_agent /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do (: >> $f) 2>&1 && got $f; done
mkdir /sys/fs/cgroup/mine 2>&1 && got cgroup
mount -t tmpfs none /mnt 2>&1 && got mount
unshare -Urm sh -c 'mount -t tmpfs none /mnt && mknod /mnt/disk b 8 0' 2>&1 && got device
ls /proc/1/root/ /proc/1/fd/ 2>&1 && [ "$(stat -c %u /proc/1)" != "$(id -u)" ] && got /proc/1
nsenter -t 1 -m true 2>&1 && [ "$(stat -c %u /proc/1)" != "$(id -u)" ] && got nsenter
for d in / /etc /etc/cron.d /usr /opt /srv /var/spool /run /boot; do touch $d/escaped 2>&1 && got $d; done
renice -n -20 $$ 2>&1 && got renice
chrt -f 50 true 2>&1 && got chrt
cat /etc/shadow 2>&1 && got shadow
cat /tmp/of-bobby /dev/shm/of-bobby 2>&1 && got /tmp
python3 -c 'import fcntl, os, termios
for path in ("/dev/tty", "/dev/console", "/dev/tty0"):
    try: fcntl.ioctl(os.open(path, os.O_RDWR | os.O_NONBLOCK), termios.TIOCSTI, b"x")
    except OSError: continue
    print("ESCAPED by", path)'
mkfifo fifo; ln -s /etc/shadow shadow; ln -s /proc/self/root/root root; ln -s ../../../../client-token token
echo tried
"""


def test_ways_out_of_a_sandbox(shared: ServerProcess) -> None:
    if "isolation of users: by " not in shared.log.read_text():
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    bobby, alice = _user_of(shared, "bobby"), _user_of(shared, "alice")
    other = bobby.jobs.submit(
        {"command": "echo x | tee /tmp/of-bobby > /dev/shm/of-bobby; exec sleep 7358", "flavour": TINY}
    )
    job = alice.jobs.submit({"command": ESCAPES, "flavour": TINY})
    job.wait(PATIENCE)
    text = "".join(job.logs())
    assert text.endswith("tried\n"), text
    assert [line for line in text.splitlines() if "ESCAPED" in line] == []
    assert other.refresh().status in {"running", "pending"}
    for name in (
        "shadow",
        "root",
        "token",
        "fifo",
    ):  # the server follows no link out of the job's folder, and waits for no pipe
        with pytest.raises(PaddleFlowError):
            b"".join(job.read_file(name))


def test_sandboxes_end_without_the_keeper_when_nothing_runs_in_them(shared: ServerProcess) -> None:
    """Nobody comes to take them over: one that is idle ends at once, one with a job when that has ended."""
    said = shared.log.read_text()
    if "isolation of users: by " not in said:
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    running, done = (
        _user_of(shared, name).jobs.submit({"command": command, "flavour": TINY})
        for name, command in (("alice", "exec sleep 7357"), ("bobby", "true"))
    )
    done.wait(PATIENCE)
    eventually(lambda: running.refresh().status == "running", "the job runs")
    data = shared.data.stat()
    keeper = f"PADDLEFLOW_KEEPER={data.st_dev:x}-{data.st_ino:x}"

    def processes() -> tuple[list[int], list[int]]:
        """Those of the job, and those that hold sandboxes."""
        found = {pid: _words(pid, "environ") for pid in pids()}
        ours = {pid: words for pid, words in found.items() if keeper in words}
        holders = [pid for pid, words in ours.items() if any(word.startswith("PADDLEFLOW_SANDBOX=") for word in words)]
        return [pid for pid in ours if pid not in holders and "7357" in _words(pid, "cmdline")], holders

    eventually(lambda: processes()[0], "the job's process is there")
    shared.kill()
    kill_keeper(shared.data.parent)
    eventually(lambda: len(processes()[1]) == 1, "only the job's sandbox is left")
    left, _ = processes()
    assert left, "the job goes on"
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: processes()[1] == [], "no sandbox is left")


def _user_of(server: ServerProcess, name: str) -> PaddleFlow:
    server.connect().users.create(name, f"{name}-secret1")
    user = server.connect()
    user.login(name, f"{name}-secret1")
    return user


def _words(pid: int, file: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace").split("\0")
    except OSError:
        return []


def test_what_people_do_with_jobs_works_in_isolation(shared: ServerProcess, tmp_path: Path) -> None:
    """The caller's machine account is the server's in one case, and still its folders are not those of its platform user's jobs."""
    said = shared.log.read_text()
    if "isolation of users: by " not in said:
        pytest.skip("this machine lets nobody be isolated: see the log of the server")
    shared.connect().users.create("alice", "alice-secret1")
    alice = shared.connect()
    alice.login("alice", "alice-secret1")
    token = alice.tokens.create("cli", scope="admin").token
    who = {"PADDLEFLOW_SERVER": shared.url, "PADDLEFLOW_TOKEN": token, "PADDLEFLOW_HOME": str(tmp_path / "home")}
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(
        "import os, signal, sys, helper\n"
        "secret = open(os.environ['PF_SECRETS_DIR'] + '/key').read()\n"
        "print(helper.WORD, len(secret), os.environ['RANK'], os.environ['MASTER_ADDR'])\n"
        "open('made-' + os.environ['RANK'], 'w').write('result\\n')\n"
        "sys.stdout.flush()\n"
        "while os.environ['RANK'] == '0': signal.pause()\n"
    )
    (project / "helper.py").write_text("WORD = 'mine'\n")
    (project / "none.txt").write_text("# nothing\n")

    def cli(*words: str, stdin: str = "") -> str:
        return shared.cli(*words, stdin=stdin, cwd=project, environment=who).stdout

    cli("secret", "set", "key", stdin="sixteen-letters!")
    options = ("--framework", "pytorch", "--workers", "2", "--cpu", "100m", "--mem", "128Mi", "--secret", "key=@key")
    job = cli("job", "run", "-d", "--requirements", "none.txt", *options, "--", "python", "train.py").strip()
    eventually(lambda: "mine 16 0 127.0.0.1" in cli("job", "logs", job), "both members have said who they are")
    eventually(lambda: "mine 16 1 127.0.0.1" in cli("job", "logs", job), "the same")
    assert cli("job", "get", job, "made-1", "--to", "-") == "result\n"
    assert job in cli("job", "top")
    inside = cli("job", "exec", job, "--", "sh", "-c", "cat train.py | head -1; ls /home; echo done")
    assert inside.splitlines() == ["import os, signal, sys, helper", "done"]
    cli("job", "stop", job)
