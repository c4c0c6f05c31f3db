"""Who goes first on the processors, and that children do not inherit it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.ordinary_account import needs_root

SCRIPT = """
import os, subprocess, sys, threading
from paddleflow.runtimes.local.turns import take_short_turns
take_short_turns(5)
found = [os.getpriority(os.PRIO_PROCESS, 0)]
thread = threading.Thread(target=lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
thread.start()
thread.join()
child = subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True)
print(*found, child.stdout.strip())
"""


def niceness(before: int) -> list[int]:
    """Of the thread that goes ahead, of another one, and of a child, in a process that has `before` at first."""
    ran = subprocess.run(["nice", "-n", str(before), sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [int(word) for word in ran.stdout.split()]


@needs_root
@pytest.mark.skipif(os.nice(0) != 0, reason="these tests run with another niceness")
def test_the_loop_goes_ahead_and_what_it_starts_does_not() -> None:
    assert niceness(0) == [-5, 0, 0]


@pytest.mark.skipif(os.nice(0) != 0, reason="these tests run with another niceness")
def test_who_was_told_to_be_nice_stays_so() -> None:
    assert niceness(7) == [7, 7, 7]
