"""`paddleflow job exec` and `job shell`: a further command inside a running member of a job."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import PaddleFlowError

if TYPE_CHECKING:
    from paddleflow.sdk.job_exec import JobExec

PIECE = 64 * 2**10  #: bytes of input that are sent at once
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
STDERR = 2

_MEMBER = click.option(
    "--member", "--task", "member", help="Member, for example worker-1. [default: the first that runs]"
)


@click.command("exec", cls=Command)
@click.argument("jobid")
@_MEMBER
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_session
@click.pass_context
def exec_(
    ctx: click.Context, session: Session, /, jobid: str, member: str | None, tty: bool, command: tuple[str, ...]
) -> None:
    """Run COMMAND inside a running job and exit with its exit code. Write -- before it.

    It runs as the job's own user, with the job's files, environment and limits, and ends with the job.

    \b
    Examples:
      paddleflow job exec @latest -- ps aux
      paddleflow job exec 6afc -- py-spy dump --pid 1
      cat fix.py | paddleflow job exec 6afc --member worker-1 -- tee fix.py
    """
    ctx.exit(_execute(session, jobid, command, member, tty))


@click.command(cls=Command)
@click.argument("jobid")
@_MEMBER
@pass_session
@click.pass_context
def shell(ctx: click.Context, session: Session, /, jobid: str, member: str | None) -> None:
    """Open a shell inside a running job.

    \b
    Example:
      paddleflow job shell @latest
    """
    ctx.exit(_execute(session, jobid, SHELL, member, sys.stdin.isatty()))


def _execute(session: Session, jobid: str, command: tuple[str, ...], member: str | None, wants_tty: bool) -> int:
    size = shutil.get_terminal_size()
    running = session.job(jobid).execute(command, member=member, tty=wants_tty, size=(size.lines, size.columns))
    with _raw_terminal(running) if wants_tty and sys.stdin.isatty() else contextlib.nullcontext():
        threading.Thread(target=_send_input, args=(running,), daemon=True).start()
        try:
            for stream, data in running:
                target = sys.stderr.buffer if stream == STDERR else sys.stdout.buffer
                target.write(data)
                target.flush()
        except KeyboardInterrupt:
            running.close()
            return 130
    assert running.exit_code is not None, "the output ends with the exit code"
    return running.exit_code


def _send_input(running: JobExec) -> None:
    """In a thread, since reading blocks; the process ends without waiting for it."""
    with contextlib.suppress(PaddleFlowError, OSError, ValueError):
        while data := os.read(sys.stdin.fileno(), PIECE):
            running.write(data)
        running.end_input()


@contextlib.contextmanager
def _raw_terminal(running: JobExec) -> Iterator[None]:
    """Every key goes to the command, as does a change of the window's size."""

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        with contextlib.suppress(PaddleFlowError):
            running.resize(size.lines, size.columns)

    before = termios.tcgetattr(sys.stdin)
    old = signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed already is kept
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, old)
