"""A small process that stays while workers come and go: it keeps the mount's descriptors, and replaces a worker that was killed.

Worker and supervisor share one table of descriptors (clone with CLONE_FILES). So the device, the clones of it on which
requests wait, open files and nodes are still open when a worker is killed at any line, under the same numbers. The next worker
reads from `state` what they are, and asks the kernel to send requests without an answer again: programs wait for a moment, and
see no error. The supervisor itself opens nothing and has no threads. On SIGHUP it kills its worker and executes the program
as it is installed now, which takes everything over: a mount survives an upgrade. On SIGUSR1 either process writes the stacks of its
threads to the log.

Called by `mount`, which knows what a worker does.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from paddleflow.fs.state import State, StateFiles

log = logging.getLogger(__name__)
MOST_FAILURES = 5  #: workers in a row that end before they serve; then the supervisor gives up
PAUSE = 1.0  #: seconds before the next worker, when the last one did not serve
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}  #: number of the system call
_CLONE_FILES = 0x400
_process = ctypes.PyDLL(None, use_errno=True)

#: Serves until the mount is gone. Gets the state and what to call when requests are answered.
Work = Callable[[State, Callable[[], None]], None]


def fork_sharing_descriptors() -> int:
    """As `os.fork`, but parent and child have one table of descriptors: what one opens, the other has."""
    number = _CLONE.get(platform.machine())
    if number is None:
        return os.fork()  # the mount then ends with its worker
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    zero = ctypes.c_long(0)
    child = int(
        _process.syscall(ctypes.c_long(number), ctypes.c_long(_CLONE_FILES | signal.SIGCHLD), zero, zero, zero, zero)
    )
    error = ctypes.get_errno()
    if child == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if child < 0:
        raise OSError(error, os.strerror(error))
    return child


class Supervisor:
    """Keeps one worker at work until the mount is gone."""

    def __init__(
        self, work: Work, files: StateFiles, keep: tuple[int, ...] = (), reload: Callable[[], None] = lambda: None
    ) -> None:
        self._work, self._files, self._keep, self._reload = work, files, keep, reload
        self._worker = 0
        self._ending = self._reloading = False

    def run(self) -> int:
        """The exit code of the last worker."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._ask_reload)
        faulthandler.register(signal.SIGUSR1, 2)  # workers inherit it
        failures = 0
        while True:
            before = self._restarts()
            code = self._run_worker()
            if code == 0 or self._ending or not self._can_go_on():
                return code
            failures = 0 if self._restarts() > before else failures + 1
            if self._reloading:
                self._reloading = False
                self._reload()
            elif failures == MOST_FAILURES:
                log.error("%s workers in a row ended before they served: giving up", failures)
                return code
            elif failures:
                time.sleep(PAUSE)

    def _run_worker(self) -> int:
        child = fork_sharing_descriptors()
        if child == 0:
            self._be_worker()
        self._worker = child
        while True:
            with suppress(InterruptedError):
                _, status = os.waitpid(child, 0)
                break
        self._worker = 0
        code = os.waitstatus_to_exitcode(status)
        if code < 0 and not self._reloading:
            log.warning("worker %s was killed by signal %s", child, -code)
        return code

    def _be_worker(self) -> None:
        """In the child; does not return."""
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # until the worker has its own
            known = State(self._files)
            keep = {*known.descriptors(), *self._keep, 0, 1, 2}
            known.unmap()  # a map has a descriptor of its own
            if known.agreed.device >= 0:
                close_others(keep)
            state = State(self._files)
            self._work(state, lambda: _count_start(state))
            code = 0
        except BaseException:
            log.exception("worker ended")
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _restarts(self) -> int:
        text = os.pread(self._files.agreed, 65_536, 0).rstrip(b"\0")
        return int(json.loads(text)["restarts"]) if text else -1

    def _can_go_on(self) -> bool:
        text = os.pread(self._files.agreed, 65_536, 0).rstrip(b"\0")
        return bool(text) and bool(json.loads(text)["resend"])

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True
        self._signal(signal.SIGTERM)

    def _ask_reload(self, number: int, frame: FrameType | None) -> None:
        self._reloading = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._worker:
            with suppress(ProcessLookupError):
                os.kill(self._worker, number)


def _count_start(state: State) -> None:
    state.agreed.restarts += 1
    state.save_agreed()


def close_others(keep: set[int]) -> int:
    """Close what a killed worker had open and nobody knows any more; how many that were."""
    closed = 0
    for each in open_descriptors():
        if each not in keep:
            with suppress(OSError):
                os.close(each)
                closed += 1
    return closed


def open_descriptors() -> list[int]:
    return [int(path.name) for path in list(Path("/proc/self/fd").iterdir())]
