"""`paddleflow`: the root command. Turns errors into messages and exit codes.

Exit codes: 0 success, 1 error or failed job, 2 wrong usage, 130 interrupted. `job run` exits with the job's own code.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from paddleflow import __version__
from paddleflow.cli.lazy import FORMATS, Group, LazyCommand
from paddleflow.cli.session import Session

INTERRUPTED = 130
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})  #: how writing the output fails

COMMANDS = {
    "artifact": LazyCommand(
        "artifact:artifact", "List, download and trace artifacts, the inputs and outputs of steps."
    ),
    "audit": LazyCommand("token:audit", "Show who changed what."),
    "cluster": LazyCommand("cluster:cluster", "Manage clusters and show their resources."),
    "completion": LazyCommand("completion:completion", "Print the completion script for bash, zsh or fish."),
    "context": LazyCommand("context:context", "Manage contexts, the servers you work with."),
    "flavour": LazyCommand("flavour:flavour", "Manage flavours, the named sizes of jobs."),
    "fs": LazyCommand("fs:fs", "Manage storages, mount them, and copy their files."),
    "job": LazyCommand("job:job", "Submit, list, follow and stop jobs."),
    "log": LazyCommand("log:log", "Print logs, with the options of the original client."),
    "login": LazyCommand("account:login", "Log in to a server."),
    "logout": LazyCommand("account:logout", "Log out of a server."),
    "operator": LazyCommand("operator:operator", "Run the Kubernetes operator for PaddleJobs."),
    "pipeline": LazyCommand("pipeline:pipeline", "Check, register, version and export pipelines."),
    "queue": LazyCommand("queue:queue", "Manage queues, who may use them, and what-if questions."),
    "run": LazyCommand("run:run", "Start, watch, stop, retry and compare runs of pipelines."),
    "schedule": LazyCommand("schedule:schedule", "Run pipelines on a schedule."),
    "scheduler": LazyCommand(
        "scheduler:scheduler", "Run the pod scheduler on a Kubernetes cluster, or replay its decisions."
    ),
    "secret": LazyCommand("secret:secret", "Manage secrets that jobs use."),
    "server": LazyCommand("server:server", "Start a server on this machine."),
    "statistics": LazyCommand("statistics:statistics", "Show resource usage of jobs and accelerator hours."),
    "token": LazyCommand("token:token", "Manage access tokens for scripts."),
    "top": LazyCommand("top:top", "Show nodes, queues, running and pending jobs on one screen."),
    "user": LazyCommand("account:user", "Manage users."),
    "version": LazyCommand("version:version", "Print the versions of client and server."),
    "whoami": LazyCommand("account:whoami", "Show the current user."),
}


class Root(Group):
    """The top group. It handles errors here, so that every way to call it (also a test's) sees the same."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        extra["complete_var"] = complete_var
        sys.exit(self._run(args, prog_name, {**extra, "standalone_mode": False}))

    def _run(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        try:
            result = super().main(args, prog_name, **extra)
            sys.stdout.flush()  # here, so that a reader that went away is noticed by click and not at exit
            return result if isinstance(result, int) else 0
        except click.Abort as abort:
            if isinstance(abort.__cause__ or abort.__context__, EOFError):
                click.echo("\nerror: the prompt got no answer: standard input has ended", err=True)
                return 1
            return INTERRUPTED
        except click.ClickException as error:
            _usage(error)
            return error.exit_code
        except TimeoutError as error:
            click.echo(f"error: {error}", err=True)
            return 1
        except BrokenPipeError:
            sys.stdout = None  # nobody reads: nothing to flush at exit either
            return 1
        except OSError as error:
            if error.errno not in UNWRITABLE or error.filename is not None:
                raise
            sys.stdout = None  # what is left in its buffer cannot be written at exit either
            click.echo(f"error: the output could not be written: {error.strerror}", err=True)
            return 1
        except Exception as error:
            from paddleflow.cli.errors import report  # not at the top, so that help is quick
            from paddleflow.errors import PaddleFlowError

            if not isinstance(error, PaddleFlowError):
                raise
            report(error)
            return 1


def _usage(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(context.get_usage(), err=True)
    click.echo(f"error: {' '.join(error.format_message().split())}", err=True)
    if context is not None:
        click.echo(f"hint: {context.command_path} --help", err=True)


@click.group(
    cls=Root,
    lazy=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "PADDLEFLOW",
        "max_content_width": 110,
    },
)
@click.option(
    "--pf_config",
    type=click.Path(dir_okay=False),
    help="INI file of the original client, with server, user and password.",
)
@click.option(
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    metavar="FORMAT",
    help=f"Output format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; also after the command, as -o FORMAT.",
)
@click.option(
    "--server", metavar="URL", allow_from_autoenv=False, help="Server address. [default: that of the context]"
)
@click.option("--context", metavar="NAME", allow_from_autoenv=False, help="Context to use. [default: the current one]")
@click.version_option(__version__, prog_name="paddleflow", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, pf_config: str | None, output: str, server: str | None, context: str | None) -> None:
    """Run AI jobs and pipelines: on a laptop, on a server for a team, on Kubernetes.

    \b
    Examples:
      paddleflow server                              start a server on this machine
      paddleflow job run -- python train.py          run a job, print its log, exit with its exit code
      paddleflow job list -s running,pending         list running and pending jobs
      paddleflow job logs -f @latest                 follow the log of the newest job
      paddleflow run create run.yaml --watch         run a pipeline and watch it
    """
    ctx.obj = Session(output, pf_config, server, context)


def main() -> None:
    _prepare_streams()
    root.main(prog_name="paddleflow")


def _prepare_streams() -> None:
    """Output to a closed descriptor goes nowhere, and a character that the encoding lacks is escaped."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: without this the next opened file or socket would get its number
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
        elif name == "stdout" and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
