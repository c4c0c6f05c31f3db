"""`paddleflow`: the top of the command line. Turns errors into words and exit codes.

Exit codes: 0 done, 1 refused or failed, 2 called wrongly, 130 interrupted. `job run` ends with the job's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from paddleflow import __version__
from paddleflow.cli.lazy import FORMATS, Group, Late
from paddleflow.cli.refusals import report
from paddleflow.cli.session import Session
from paddleflow.errors import PaddleFlowError

INTERRUPTED = 130

COMMANDS = {
    "artifact": Late("artifact:artifact", "Artifacts: what steps of runs took in and left behind."),
    "cluster": Late("cluster:cluster", "Clusters, and what they have free."),
    "completion": Late("completion:completion", "Shell completion for bash, zsh and fish."),
    "context": Late("context:context", "The servers that you work with."),
    "flavour": Late("flavour:flavour", "Named amounts of resources."),
    "fs": Late("fs:fs", "Storages that jobs see at a path."),
    "job": Late("job:job", "Submit jobs, look at them, follow and stop them."),
    "log": Late("log:log", "Logs of jobs and runs."),
    "login": Late("account:login", "Log in to a server and remember it as a context."),
    "logout": Late("account:logout", "End the token of the context in use."),
    "operator": Late("operator:operator", "Look after PaddleJobs on Kubernetes."),
    "pipeline": Late("pipeline:pipeline", "Pipeline documents: check, register, export; their versions."),
    "queue": Late("queue:queue", "Queues, and who may use them."),
    "run": Late("run:run", "Runs of pipelines: start, watch, stop, try again, compare."),
    "schedule": Late("schedule:schedule", "Pipelines that are run by the clock."),
    "scheduler": Late("scheduler:scheduler", "What the scheduler decided, and whether it would again."),
    "server": Late("server:server", "Start the server on this machine."),
    "statistics": Late("statistics:statistics", "What jobs used, and card time."),
    "user": Late("user:user", "Users and their passwords."),
    "version": Late("version:version", "Versions of client and server."),
    "whoami": Late("account:whoami", "Who you are to the server."),
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
        except PaddleFlowError as error:
            report(error)
            return 1
        except click.Abort as abort:
            if isinstance(abort.__cause__ or abort.__context__, EOFError):
                click.echo("error: input ended before the question was answered", err=True)
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


def _usage(error: click.ClickException) -> None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(context.get_usage(), err=True)
    click.echo(f"error: {error.format_message()}", err=True)
    if context is not None:
        click.echo(f"hint: {context.command_path} --help", err=True)


@click.group(
    cls=Root,
    late=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "PADDLEFLOW",
        "max_content_width": 110,
    },
)
@click.option(
    "--pf_config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="An ini file with server, user and password, instead of a context.",
)
@click.option(
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to print. Also possible behind a command: -o json, --json.",
)
@click.option("--server", metavar="URL", allow_from_autoenv=False, help="The server, instead of the context's.")
@click.option("--context", metavar="NAME", allow_from_autoenv=False, help="The context, instead of the current one.")
@click.version_option(__version__, prog_name="paddleflow", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, pf_config: Path | None, output: str, server: str | None, context: str | None) -> None:
    """Run AI jobs for teams: queues, single and distributed jobs, from a laptop to a cluster.

    \b
    Examples:
      paddleflow server                              start a server on this machine
      paddleflow job run -- python train.py          run a job, see its log, end with its exit code
      paddleflow job list -s running,pending         what runs and what waits
      paddleflow job logs -f JOB                     follow a log
      paddleflow --output json queue list            for scripts
    """
    ctx.obj = Session(output, pf_config, server, context)


def main() -> None:
    root.main(prog_name="paddleflow")
