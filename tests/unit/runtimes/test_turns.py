"""Short time slices, and that neither children nor other threads inherit them."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, os, struct, threading
from paddleflow.runtimes.local.turns import take_short_turns

def slice_of(thread):
    found = ctypes.create_string_buffer(48)
    number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]  # sched_getattr
    assert ctypes.CDLL(None).syscall(number, thread, found, 48, 0) == 0
    return struct.unpack("=IIQiIQQQ", found)[5]

before = slice_of(0)
take_short_turns()
found = [slice_of(0)]
thread = threading.Thread(target=lambda: found.append(slice_of(threading.get_native_id())))
thread.start()
thread.join()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, str(slice_of(0)).encode())
    os._exit(0)
print(os.nice(0), before, *found, os.read(reader, 100).decode())
"""


@pytest.mark.parametrize("nice", [0, 7])
def test_one_thread_alone_has_short_slices_and_its_niceness_stays(nice: int) -> None:
    ran = subprocess.run(["nice", "-n", str(nice), sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    after, before, mine, other, child = map(int, ran.stdout.split())
    if not before:
        pytest.skip("this kernel says nothing of time slices (Linux before 6.12)")
    assert (mine, other, child) == (100_000, before, before)
    assert after >= nice
