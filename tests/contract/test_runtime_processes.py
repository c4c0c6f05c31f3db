"""What a runtime of processes promises beyond the common contract: signals, groups, descriptors, messages. Real processes."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddleflow.runtimes.runtime import Ended, Ready, Started
from tests.patience import PATIENCE, soon
from tests.ports import free_ports
from tests.runtime_scene import Scene, lives, open_local, opened


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(open_local, tmp_path) as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_signal_is_128_and_its_number_and_is_named(scene: Scene, number: signal.Signals) -> None:
    end = await scene.run(scene.shell("one", f"kill -{int(number)} $$"))
    assert end.exit_code == 128 + number
    assert number.name in end.message


async def test_an_exit_code_above_128_is_not_taken_for_a_signal(scene: Scene) -> None:
    end = await scene.run(scene.shell("one", "exit 137"))
    assert (end.exit_code, end.message) == (137, "")


async def test_stdout_and_stderr_go_to_the_log_in_order(scene: Scene) -> None:
    launch = scene.shell("one", "echo a; echo b >&2; echo c; printf d >&2")
    await scene.run(launch)
    assert await scene.log_of(launch) == b"a\nb\nc\nd"


async def test_the_log_is_appended_to(scene: Scene) -> None:
    launch = scene.shell("one", "echo again")
    scene.log_path(launch).parent.mkdir(parents=True)
    scene.log_path(launch).write_text("before\n")
    await scene.run(launch)
    assert await scene.log_of(launch) == b"before\nagain\n"


async def test_stdin_is_empty_cwd_and_environment_are_the_launch_s(scene: Scene) -> None:
    launch = scene.shell("one", 'cat; pwd; echo "$COLOUR"; echo "${HOME-none}"', COLOUR="blå og grøn")
    assert (await scene.run(launch)).exit_code == 0
    assert (await scene.log_of(launch)).decode() == f"{launch.working_dir}\nblå og grøn\nnone\n"


async def test_signals_are_as_a_shell_would_set_them(scene: Scene) -> None:
    """Python ignores SIGPIPE and the keeper ignores SIGTERM; neither may reach a job."""
    launch = scene.shell("one", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    await scene.run(launch)
    masks = [int(row.split()[1], 16) for row in (await scene.log_of(launch)).decode().splitlines()]
    libc_s_own = 1 << 31 | 1 << 32  # signals 32 and 33, which glibc's posix_spawn always ignores
    assert [mask & ~libc_s_own for mask in masks] == [0, 0]


async def test_only_three_descriptors_are_open(scene: Scene) -> None:
    launch = scene.launch("one", "ls", "/proc/self/fd")
    await scene.run(launch)
    assert (await scene.log_of(launch)).split() == [b"0", b"1", b"2", b"3"]  # 3 is ls reading the folder


async def test_missing_executable_is_named(scene: Scene) -> None:
    end = await scene.run(scene.launch("one", "trian.py", "--fast"))
    assert (end.exit_code, end.message) == (None, "command not found: trian.py")
    assert not scene.reported(Started)


async def test_the_executable_is_looked_up_in_the_launch_s_own_path(scene: Scene) -> None:
    tools = scene.folder / "tools"
    tools.mkdir()
    (tools / "mine").write_text("#!/bin/sh\necho found\n")
    (tools / "mine").chmod(0o755)
    launch = scene.launch("one", "mine", PATH=f"/nowhere:{tools}")
    assert (await scene.run(launch)).exit_code == 0
    assert await scene.log_of(launch) == b"found\n"
    assert (await scene.run(scene.launch("two", "mine"))).message == "command not found: mine"


async def test_a_relative_executable_is_below_the_working_directory(scene: Scene) -> None:
    launch = scene.launch("one", "./run.sh")
    (Path(launch.working_dir) / "run.sh").write_text("#!/bin/sh\nexit 3\n")
    (Path(launch.working_dir) / "run.sh").chmod(0o755)
    assert (await scene.run(launch)).exit_code == 3


async def test_what_cannot_be_executed_says_why(scene: Scene) -> None:
    denied = scene.launch("denied", "./plain")
    (Path(denied.working_dir) / "plain").write_text("text")
    (Path(denied.working_dir) / "odd").write_text("#!/no/such/interpreter\n")
    (Path(denied.working_dir) / "odd").chmod(0o755)
    expected = {
        "denied": (denied, "permission denied: ./plain is not executable"),
        "folder": (scene.launch("folder", "/usr"), "permission denied: /usr is a folder"),
        "odd": (scene.launch("odd", "./odd"), "command not found: the interpreter that ./odd names in its first line"),
        "nul": (scene.launch("nul", "echo", "a\0b"), "command or environment: embedded null byte"),
        "long": (scene.launch("long", "echo", "x" * 3_000_000), "command and environment of echo are longer than"),
        "empty": (scene.launch("empty", ""), "command not found: the command is empty"),
    }
    for launch, message in expected.values():
        end = await scene.run(launch)
        assert end.exit_code is None
        assert end.message.startswith(message)


async def test_a_missing_working_directory_is_named(scene: Scene) -> None:
    launch = scene.shell("one", "true")
    Path(launch.working_dir).rmdir()
    end = await scene.run(launch)
    assert end.exit_code is None
    assert end.message == f"working directory {launch.working_dir}: no such file or directory"


async def test_stop_is_term_then_kill_for_the_whole_group(scene: Scene) -> None:
    """Neither the shell nor its children listen to SIGTERM."""
    launch = scene.shell("one", "trap '' TERM; sleep 1000 & sleep 1000 & echo $! $$ > pids; wait; wait")
    await scene.runtime.start([launch])
    pids = Path(launch.working_dir) / "pids"
    await soon(lambda: pids.exists() and pids.read_text().endswith("\n"))
    await scene.runtime.stop([launch.attempt], 0.2)
    end = await scene.end_of(launch)
    assert end.exit_code == 128 + signal.SIGKILL
    assert "stopped" in end.message
    assert end.started_at is not None
    assert end.at - end.started_at >= 0.2
    assert not any(lives(int(pid)) for pid in pids.read_text().split())


async def test_stop_leaves_time_to_end_well(scene: Scene) -> None:
    launch = scene.shell("one", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    await scene.runtime.start([launch])
    await soon(lambda: scene.log_path(launch).exists() and scene.log_path(launch).read_bytes() == b"ready\n")
    await scene.runtime.stop([launch.attempt], PATIENCE)
    end = await scene.end_of(launch)
    assert end.exit_code == 5
    assert (await scene.log_of(launch)).endswith(b"saved\n")


async def test_the_grace_is_for_the_group_not_only_for_its_leader(scene: Scene) -> None:
    """The shell dies of SIGTERM at once; its child still writes its checkpoint."""
    child = "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    launch = scene.shell("one", f'sh -c "{child}" & sleep 1000')
    await scene.runtime.start([launch])
    await soon(lambda: scene.log_path(launch).exists() and scene.log_path(launch).read_bytes() == b"ready\n")
    await scene.runtime.stop([launch.attempt], PATIENCE)
    end = await scene.end_of(launch)
    assert end.exit_code == 128 + signal.SIGTERM
    assert (await scene.log_of(launch)).endswith(b"saved\n")


async def test_a_second_stop_may_be_sooner(scene: Scene) -> None:
    launch = scene.shell("one", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    await scene.runtime.start([launch])
    await soon(lambda: scene.log_path(launch).exists() and scene.log_path(launch).read_bytes() == b"ready\n")
    await scene.runtime.stop([launch.attempt], 1000.0)
    await scene.runtime.stop([launch.attempt], 0.0)
    assert (await scene.end_of(launch)).exit_code == 128 + signal.SIGKILL


async def test_what_is_stopped_before_its_turn_never_runs(scene: Scene) -> None:
    launches = [scene.shell(f"n{i}", "echo > ran.$N; sleep 0.01", N=str(i)) for i in range(100)]
    await scene.runtime.start(launches)
    await scene.runtime.stop([launch.attempt for launch in launches], 0.0)
    await scene.until(lambda: len(scene.reported(Ended)) == len(launches))
    for end in scene.reported(Ended):
        assert "stopped" in end.message or end.exit_code == 0


async def test_background_children_do_not_outlive_the_attempt(scene: Scene) -> None:
    launch = scene.shell("one", "sleep 1000 & echo $! > pid; exit 0")
    assert (await scene.run(launch)).exit_code == 0
    pid = int((Path(launch.working_dir) / "pid").read_text())
    assert not lives(pid)


async def test_nor_do_those_that_left_the_group(scene: Scene) -> None:
    launch = scene.shell("one", "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while ! [ -s pid ]; do :; done")
    assert (await scene.run(launch)).exit_code == 0
    pid = int((Path(launch.working_dir) / "pid").read_text())
    await soon(lambda: not lives(pid))


async def test_ready_comes_when_the_port_listens(scene: Scene) -> None:
    (port,) = free_ports(1)
    code = (
        "import socket, sys, os, time\n"
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        f"s = socket.create_server(('127.0.0.1', {port}))\n"
        "print('listening', flush=True); time.sleep(1000)"
    )
    launch = scene.launch("one", sys.executable, "-S", "-c", code, port=port)
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    await scene.run(scene.shell("other", "true"))
    assert not scene.reported(Ready, launch.attempt)
    (Path(launch.working_dir) / "go").touch()
    await scene.until(lambda: bool(scene.reported(Ready, launch.attempt)))
    assert await scene.log_of(launch) in {b"", b"listening\n"}  # it listens before it can say so


async def test_five_hundred_at_once(scene: Scene) -> None:
    launches = [scene.shell(f"n{i}", "echo $N; exit $((N % 3))", N=str(i)) for i in range(500)]
    await scene.runtime.start(launches)
    await scene.until(lambda: len(scene.reported(Ended)) >= 500)
    ends = {end.attempt: end.exit_code for end in scene.reported(Ended)}
    assert ends == {launch.attempt: i % 3 for i, launch in enumerate(launches)}
    assert [scene.log_path(launch).read_text() for launch in launches] == [f"{i}\n" for i in range(500)]
    assert len(scene.reported(Started)) == len(scene.reported(Ready)) <= len(scene.reported(Ended)) == 500
    assert all(end.started_at is not None for end in scene.reported(Ended))


async def test_sample_counts_all_processes_of_an_attempt(scene: Scene) -> None:
    burn = "import time; block = bytearray(50_000_000); open('up', 'w').close()\nwhile time.process_time() < 0.3: pass"
    burn += "\nopen('burnt', 'w').close(); time.sleep(1000)"
    launch = scene.shell("one", '"$PYTHON" -S -c "$CODE" & wait', PYTHON=sys.executable, CODE=burn)
    idle = scene.shell("two", "sleep 1000")
    await scene.runtime.start([launch, idle])
    await soon((Path(launch.working_dir) / "burnt").exists)
    await scene.until(lambda: len(scene.reported(Started)) == 2)
    samples = await scene.runtime.sample()
    assert set(samples) == {launch.attempt, idle.attempt}
    assert samples[launch.attempt].cpu_seconds >= 0.25
    assert samples[launch.attempt].memory >= 50_000_000
    assert samples[idle.attempt].cpu_seconds < 0.25
    assert samples[idle.attempt].memory < 50_000_000


async def test_what_two_attempts_send_each_other_is_counted_for_each(scene: Scene) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); open('port', 'w').write(str(s.getsockname()[1]))\n"
    )
    server += "c, _ = s.accept(); c.recv(300_000, socket.MSG_WAITALL); open('heard', 'w').close(); c.recv(1)"
    client = "import socket; s = socket.create_connection(('127.0.0.1', int(open('port').read())))\n"
    client += "s.sendall(bytes(300_000)); s.recv(1)"
    hears = scene.launch("hears", sys.executable, "-S", "-c", server)
    says = scene.launch("says", sys.executable, "-S", "-c", client)
    await scene.runtime.start([hears])
    await soon(
        lambda: (Path(hears.working_dir) / "port").exists() and bool((Path(hears.working_dir) / "port").read_text())
    )
    await scene.runtime.start([says])
    await soon((Path(hears.working_dir) / "heard").exists)
    await scene.until(lambda: len(scene.reported(Started)) == 2)
    samples = await scene.runtime.sample()
    if samples[hears.attempt].net_received is None:
        pytest.skip("this kernel does not tell what goes over connections")
    assert samples[hears.attempt].net_received == 300_000
    assert samples[says.attempt].net_received == 0
    assert (samples[says.attempt].net_sent or 0) > 0  # as far as it was acknowledged by now


async def test_the_end_says_what_was_used(scene: Scene) -> None:
    code = "import time; block = bytearray(60_000_000)\nwhile time.process_time() < 0.2: pass"
    end = await scene.run(scene.launch("one", sys.executable, "-S", "-c", code))
    assert end.cpu_seconds is not None
    assert end.cpu_seconds >= 0.2
    assert end.peak_memory is not None
    assert end.peak_memory >= 60_000_000
