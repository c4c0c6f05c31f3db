"""The help of the command line: it is part of the product."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from paddleflow.cli.main import COMMANDS, root


def shown(*words: str) -> str:
    result = CliRunner().invoke(root, [*words, "--help"], prog_name="paddleflow", terminal_width=100)
    assert result.exit_code == 0
    return result.stdout


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


EVERY = dict(commands(root))


@pytest.mark.parametrize("words", EVERY)
def test_every_command_and_option_says_what_it_is_for(words: str) -> None:
    command = EVERY[words]
    assert command.help
    silent = [param.opts for param in command.params if isinstance(param, click.Option) and not param.help]
    assert silent == []
    assert shown(*words.split()).startswith(f"Usage: paddleflow {words}")


def test_every_command_takes_output_behind_its_name() -> None:
    for words, command in EVERY.items():
        if not isinstance(command, click.Group):
            known = {name for param in command.params for name in param.opts}
            assert {"--output", "--json"} <= known, words


def test_the_commands_are_those_of_the_table() -> None:
    assert {words for words in EVERY if " " not in words} == set(COMMANDS)


def test_help_of_a_group() -> None:
    assert shown("job") == snapshot("""\
Usage: paddleflow job [OPTIONS] COMMAND [ARGS]...

  Submit, list, follow and stop jobs.

Options:
  -h, --help  Show this message and exit.

Commands:
  code    Download the code that a job ran with.
  create  Submit the job document in the JSON file JSONPATH, or "-" for standard input.
  delete  Delete finished jobs and their logs.
  eta     Estimate when a pending job will start.
  events  Show the events of a job.
  exec    Run a command inside a running job.
  get     Download a file that a job wrote.
  list    List jobs, newest first.
  logs    Print or follow the log of a job.
  run     Run a command as a job, print its log and exit with its exit code.
  shell   Open a shell inside a running job.
  show    Show a job: its request, its state and its tasks.
  stop    Stop pending or running jobs.
  submit  Submit the job document in FILE and print the job's id.
  top     Show the CPU and memory usage of running jobs.
  update  Change the priority, labels or annotations of a job.
  wait    Wait until jobs have finished.
  why     Explain why a job is pending, and what would start it now.
""")


def test_help_of_a_command() -> None:
    assert shown("job", "run") == snapshot("""\
Usage: paddleflow job run [OPTIONS] COMMAND...

  Run COMMAND as a job, print its log and exit with its exit code. Ctrl-C stops the job.

  The job runs with the code of the current folder: in the folder itself, with your PATH and virtual
  environment, if you are root of a server that runs on this machine under your account; otherwise
  in a snapshot of it, of which only changed files are sent. .gitignore and .paddleflowignore are
  respected.

  A COMMAND of several words is executed directly; a single word is passed to the shell.

  Examples:
    paddleflow job run -- python train.py --epochs 3
    paddleflow job run --gpu 1 --mem 16Gi -e SEED=1 'python a.py && python b.py'
    paddleflow job run --framework pytorch --workers 4 -- python train.py
    paddleflow job run --array 1-20 'python train.py --seed $PF_ARRAY_INDEX'

Options:
  --name TEXT                  Name of the job. [default: the first word of the command]
  -q, --queue TEXT             Queue. [default: default-queue]
  --cluster TEXT               Name of the cluster to run on; takes a queue of it that you may use.
  --flavour TEXT               Flavour: a named size, instead of --cpu, --mem and --gpu.
  --cpu TEXT                   Cores, for example 2 or 500m. [default: 1]
  --mem TEXT                   Memory, for example 4Gi. [default: 1Gi]
  --gpu INTEGER RANGE          Number of GPUs (nvidia.com/gpu).  [x>=1]
  --priority TEXT              very_low, low, normal, high or very_high.
  -e, --env TEXT               Environment variable, NAME=value. Repeatable.
  --env-file FILE              File of NAME=value lines.
  --secret NAME[=VAR]          Secret to pass in the variable VAR (default: NAME), or with
                               NAME=@FILE in the file $PF_SECRETS_DIR/FILE. Repeatable.
  -l, --label TEXT             Label, name=value. Repeatable.
  --fs TEXT                    Storage to mount; with --no-code the job starts in it.
  --image TEXT                 Container image, on clusters that run containers.
  --code DIRECTORY             Folder with the code. [default: the current folder]
  --workdir TEXT               Working directory below the code folder.
  --no-code                    Run without a code folder.
  --requirements FILE          Requirements file; its packages are installed once and kept on the
                               node.
  --framework TEXT             Framework of a distributed job, for example pytorch, paddle or mpi.
  --workers, --nodes N         Number of workers; needs --framework.  [x>=1]
  --timeout TEXT               Stop the command after this time, for example 90s, 30m or 2h, per
                               try; it then exits with 124.
  --retries INTEGER RANGE      Restart a failed job up to this many times.  [0<=x<=100]
  --after [any:|failed:]JOBID  Start only after this job has succeeded; with any: after it has
                               finished, with failed: after it has failed. If it ends otherwise,
                               this job is cancelled. Repeatable.
  --array TEXT                 Submit one job per index, for example 1-100 or 1,5,9; the job finds
                               it in PF_ARRAY_INDEX.
  -d, --detach                 Submit the job, print its id and return.
  --quiet                      Print nothing but the output of the job.
  -o, --output FORMAT          Output format: table, wide, json, yaml, name, text or compat.
  --json                       Same as --output json.
  -h, --help                   Show this message and exit.
""")


def test_help_of_the_whole() -> None:
    assert shown() == snapshot("""\
Usage: paddleflow [OPTIONS] COMMAND [ARGS]...

  Run AI jobs and pipelines: on a laptop, on a server for a team, on Kubernetes.

  Examples:
    paddleflow server                              start a server on this machine
    paddleflow job run -- python train.py          run a job, print its log, exit with its exit code
    paddleflow job list -s running,pending         list running and pending jobs
    paddleflow job logs -f @latest                 follow the log of the newest job
    paddleflow run create run.yaml --watch         run a pipeline and watch it

Options:
  --pf_config FILE  INI file of the original client, with server, user and password.
  --output FORMAT   Output format: table, wide, json, yaml, name, text or compat; also after the
                    command, as -o FORMAT.  [default: table]
  --server URL      Server address. [default: that of the context]
  --context NAME    Context to use. [default: the current one]
  --version         Show the version and exit.
  -h, --help        Show this message and exit.

Commands:
  artifact    List, download and trace artifacts, the inputs and outputs of steps.
  audit       Show who changed what.
  cluster     Manage clusters and show their resources.
  completion  Print the completion script for bash, zsh or fish.
  context     Manage contexts, the servers you work with.
  flavour     Manage flavours, the named sizes of jobs.
  fs          Manage storages, mount them, and copy their files.
  job         Submit, list, follow and stop jobs.
  log         Print logs, with the options of the original client.
  login       Log in to a server.
  logout      Log out of a server.
  operator    Run the Kubernetes operator for PaddleJobs.
  pipeline    Check, register, version and export pipelines.
  queue       Manage queues, who may use them, and what-if questions.
  run         Start, watch, stop, retry and compare runs of pipelines.
  schedule    Run pipelines on a schedule.
  scheduler   Run the pod scheduler on a Kubernetes cluster, or replay its decisions.
  secret      Manage secrets that jobs use.
  server      Start a server on this machine.
  statistics  Show resource usage of jobs and accelerator hours.
  token       Manage access tokens for scripts.
  top         Show nodes, queues, running and pending jobs on one screen.
  user        Manage users.
  version     Print the versions of client and server.
  whoami      Show the current user.
""")


def test_the_reference_page_is_what_the_commands_say() -> None:
    script = Path(__file__).resolve().parents[3] / "docs" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
