"""The words of the command line that existing scripts use: groups, commands, options and positionals of the reference."""

from __future__ import annotations

import click
import pytest

from paddleflow.cli.main import root

#: group command → positionals in their order, options
WORDS = {
    "user list": ("", "-m"),
    "user add": ("USERNAME PASSWORD", ""),
    "user set": ("USERNAME PASSWORD", ""),
    "user delete": ("USERNAME", ""),
    "queue list": ("", "-m -mk"),
    "queue show": ("QUEUENAME", ""),
    "queue create": (
        "NAME NAMESPACE MAXCPU MAXMEM",
        "--maxscalar --mincpu --minmem --minscalar --policy --location --quota --clustername",
    ),
    "queue update": (
        "NAME",
        "--maxcpu --maxmem --maxscalar --mincpu --minmem --minscalar --policy --location",
    ),
    "queue delete": ("QUEUENAME", ""),
    "queue grant": ("USERNAME QUEUENAME", ""),
    "queue ungrant": ("USERNAME QUEUENAME", ""),
    "queue grantlist": ("", "-m -u"),
    "flavour list": ("", "-m --marker"),
    "flavour show": ("NAME", ""),
    "flavour create": ("NAME", "-c -m -s"),
    "flavour update": ("NAME", "-c -m -s"),
    "flavour delete": ("NAME", ""),
    "fs list": ("", "-u -m"),
    "fs create": ("FSNAME URL", "-u -o"),
    "fs show": ("FSNAME", "-u"),
    "fs delete": ("FSNAME", "-u"),
    "cluster list": ("", "-m -mk -cn -cs"),
    "cluster show": ("CLUSTERNAME", ""),
    "cluster create": ("CLUSTERNAME ENDPOINT CLUSTERTYPE", "-c -d --source --setting --status -ns --version"),
    "cluster update": ("CLUSTERNAME", "-e -c -t -d --source --setting --status -ns --version"),
    "cluster delete": ("CLUSTERNAME", ""),
    "cluster resource": ("", "-cn"),
    "cluster statistic": ("", "--pageno --pagesize -cn -q -l"),
    "job create": ("JOBTYPE JSONPATH", ""),
    "job list": ("", "-s -t -st -q -l -m -mk -fl"),
    "job show": ("JOBID", ""),
    "job update": ("JOBID", "-p -l -a"),
    "job stop": ("JOBID...", ""),
    "job delete": ("JOBID...", ""),
    "run create": ("FILE", "-f -n -d -u -p -yp -yr -pplid -pplver --disabled -de"),
    "run list": ("", "-f -u -r -n -s -m -mk"),
    "run show": ("RUNID", ""),
    "run stop": ("RUNID", "-f"),
    "run retry": ("RUNID", ""),
    "run delete": ("RUNID", "-not-cc"),
    "run listcache": ("", "-u -f -r -m -mk"),
    "run showcache": ("CACHEID", ""),
    "run deletecache": ("CACHEID", ""),
    "run listartifact": ("", "-u -f -r -t -p -m -mk"),
    "pipeline create": ("FS_NAME", "-yp -d -u"),
    "pipeline list": ("", "-u -n -m -mk"),
    "pipeline show": ("PIPELINE_ID", "-f -m -mk"),
    "pipeline update": ("PIPELINE_ID FS_NAME YAML_PATH", "-u -d"),
    "pipeline delete": ("PIPELINE_ID", ""),
    "pipeline showversion": ("PIPELINE_ID VERSION_ID", ""),
    "pipeline deleteversion": ("PIPELINE_ID VERSION_ID", ""),
    "schedule create": ("NAME PPL_ID PPL_VER_ID CRONTAB", "-d -s -e -c -cp -ei --catchup -u"),
    "schedule list": ("", "-u -n -p -pv -s -m -mk"),
    "schedule show": ("SCHEDULE_ID", "-r -s -m -mk"),
    "schedule stop": ("SCHEDULE_ID", ""),
    "schedule delete": ("SCHEDULE_ID", ""),
    "log run": ("RUNID", "-j -ps -pn -fp"),
    "log job": ("", "-j -f -r -l -s"),
    "statistics job": ("JOBID", "-d -s -e -st"),
    "statistics card-time": ("", "-q -s -e"),
    "version": ("", ""),
}


def found(words: str) -> click.Command:
    command: click.Command = root
    for word in words.split():
        assert isinstance(command, click.Group)
        inner = command.get_command(click.Context(command), word)
        assert inner is not None, words
        command = inner
    return command


@pytest.mark.parametrize("words", WORDS)
def test_a_command_has_its_words(words: str) -> None:
    command = found(words)
    positionals, options = WORDS[words]
    names = [param.human_readable_name for param in command.params if isinstance(param, click.Argument)]
    assert names == positionals.split()
    known = {name for param in command.params if isinstance(param, click.Option) for name in param.opts}
    assert set(options.split()) <= known


def test_the_global_options_come_before_the_group() -> None:
    known = {name for param in root.params for name in param.opts}
    assert {"--pf_config", "--output"} <= known
