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

  Submit jobs, look at them, follow and stop them.

Options:
  -h, --help  Show this message and exit.

Commands:
  create  Submit the job in the JSON file JSONPATH (- for standard input).
  delete  Delete jobs that are over, and their logs.
  eta     When a waiting job will probably start.
  events  What happened to a job, and why it waits.
  list    List jobs.
  logs    Print or follow a job's log.
  run     Run a command as a job: see its log, end with its exit code.
  show    Show a job: what it was asked to do, how it is and why.
  stop    Stop jobs that wait or run.
  submit  Submit the job in a JSON FILE (- for standard input) and print its id.
  update  Change a job's priority, labels or annotations.
  wait    Wait until jobs are over.
  why     Why a job waits, and what would start it now.
""")


def test_help_of_a_command() -> None:
    assert shown("job", "run") == snapshot("""\
Usage: paddleflow job run [OPTIONS] COMMAND...

  Run COMMAND as a single job: see its log here, end with its exit code. Ctrl-C stops the job.

  A COMMAND of several words is run as it is; one word is read by the shell.

  Examples:
    paddleflow job run -- python train.py --epochs 3
    paddleflow job run --flavour flavour1 -e SEED=1 'python a.py && python b.py'

Options:
  --name TEXT                     Name of the job; the command's first word if not given.
  -q, --queue TEXT                Queue; the server's default if not given.
  --flavour TEXT                  Flavour: how much of cores and memory.
  --priority TEXT                 very_low, low, normal, high or very_high.
  -e, --env TEXT                  A variable: NAME=value. Repeatable.
  -l, --label TEXT                A label: name=value. Repeatable.
  --fs TEXT                       A storage that the job sees.
  --image TEXT                    Image, where the cluster runs containers.
  -d, --detach                    Only submit, and print the id.
  --quiet                         Nothing but the job's own output.
  -o, --output [table|json|text]  How to print: table, json or text.
  --json                          Short for --output json.
  -h, --help                      Show this message and exit.
""")


def test_help_of_the_whole() -> None:
    assert shown() == snapshot("""\
Usage: paddleflow [OPTIONS] COMMAND [ARGS]...

  Run AI jobs for teams: queues, single and distributed jobs, from a laptop to a cluster.

  Examples:
    paddleflow server                              start a server on this machine
    paddleflow job run -- python train.py          run a job, see its log, end with its exit code
    paddleflow job list -s running,pending         what runs and what waits
    paddleflow job logs -f JOB                     follow a log
    paddleflow --output json queue list            for scripts

Options:
  --pf_config FILE            An ini file with server, user and password, instead of a context.
  --output [table|json|text]  How to print. Also possible behind a command: -o json, --json.
                              [default: table]
  --server URL                The server, instead of the context's.
  --context NAME              The context, instead of the current one.
  --version                   Show the version and exit.
  -h, --help                  Show this message and exit.

Commands:
  artifact    Artifacts: what steps of runs took in and left behind.
  cluster     Clusters, and what they have free.
  completion  Shell completion for bash, zsh and fish.
  context     The servers that you work with.
  flavour     Named amounts of resources.
  fs          Storages that jobs see at a path.
  job         Submit jobs, look at them, follow and stop them.
  log         Logs of jobs and runs.
  login       Log in to a server and remember it as a context.
  logout      End the token of the context in use.
  operator    Look after PaddleJobs on Kubernetes.
  pipeline    Pipeline documents: check, register, export; their versions.
  queue       Queues, and who may use them.
  run         Runs of pipelines: start, watch, stop, try again, compare.
  schedule    Pipelines that are run by the clock.
  scheduler   What the scheduler decided, and whether it would again.
  server      Start the server on this machine.
  statistics  What jobs used, and card time.
  user        Users and their passwords.
  version     Versions of client and server.
  whoami      Who you are to the server.
""")


def test_the_reference_page_is_what_the_commands_say() -> None:
    script = Path(__file__).resolve().parents[3] / "docs" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
