"""A mount in a process of its own: started, and given another program. The process itself is `fs.mount.main`.

The interface for other packages is `start_mount` (returns when the mount answers requests, or raises in words when it does not come to
that), `reload_mount` and `device.unmount`. Light on purpose: the server of a machine without mounts imports nothing that serves one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from paddleflow.errors import BY_STATUS, Conflict, PaddleFlowError, Unavailable
from paddleflow.fs import device
from paddleflow.fs.control import ask_stats, control_path
from paddleflow.fs.options import MountOptions, dump_options


def start_mount(options: MountOptions, seconds: float | None = None) -> int:
    """Mount in a process of its own; the id of its supervisor. Returns when the mount answers, or after `seconds` raises."""
    file = log_path(options.folder)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = "mounts keep their logs below the home folder: set HOME to one that can be written"
        raise Unavailable(f"{file.parent} cannot be made: {error.strerror}", hint=hint) from error
    receiver, sender = os.pipe()
    options_fd = os.memfd_create("paddleflow options")
    os.write(options_fd, dump_options(options).encode())
    try:
        written = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(  # it forks and leaves at once, so that nobody has to wait for the supervisor
                main_command(str(options_fd), str(sender)),
                stdin=subprocess.DEVNULL, stdout=written, stderr=written,
                pass_fds=[options_fd, sender], start_new_session=True, cwd="/",
            )  # fmt: skip
        finally:
            os.close(written)
    finally:
        os.close(options_fd)
        os.close(sender)
    with open(receiver, "rb", buffering=0) as pipe:
        in_time = bool(select.select([pipe], [], [], seconds)[0])
        if not in_time:
            _give_up(process.pid, options.folder)
        said = pipe.read() if in_time else b""
    process.wait()
    if not in_time:
        hint = "see whether the store is reachable and answers"
        raise Unavailable(f"{options.url} did not answer within {seconds:g} s", hint=hint)
    if not said:
        raise Unavailable(
            f"the process that mounts on {options.folder} ended without a word", hint=f"see {log_path(options.folder)}"
        )
    answer = json.loads(said)
    if "pid" in answer:
        return int(answer["pid"])
    raise BY_STATUS.get(int(answer["status"]), PaddleFlowError)(
        answer["message"], code=answer["code"], hint=answer["hint"]
    )


def _give_up(group: int, folder: Path) -> None:
    """End a mount that does not come up: its whole session, and what it may have mounted."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    with suppress(PaddleFlowError):
        device.unmount(folder, force=True)


def reload_mount(folder: Path) -> None:
    """Replace the program behind a mount by the one that is installed now. Whoever uses the mount notices nothing."""
    found = ask_stats(folder)
    asked = subprocess.run(main_command("--layout"), capture_output=True, text=True, check=False)
    if asked.stdout.strip() != str(found["layout"]):
        hint = f"paddleflow fs umount {folder}, and mount it again"
        raise Conflict(f"the mount on {folder} cannot be taken over by the program that is installed", hint=hint)
    if not found["resend"]:
        raise Conflict(f"the mount on {folder} cannot be taken over: that needs Linux 6.9")
    os.kill(int(str(found["pid"])), signal.SIGHUP)


def main_command(*words: str) -> list[str]:
    """Calls `main` of the program that is installed where this one is, in a process of its own."""
    begin = (
        "import sys; sys.path.append(sys.argv[1]); from paddleflow.fs.mount import main; sys.exit(main(sys.argv[2:]))"
    )
    return [sys.executable, "-c", begin, str(Path(__file__).parents[2]), *words]


def log_path(folder: Path) -> Path:
    return control_path(folder).with_suffix(".log")
