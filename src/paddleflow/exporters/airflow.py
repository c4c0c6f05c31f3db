"""A pipeline as an Airflow 3 DAG file: steps are processes of the worker (BashOperator), dags are task groups, the
post-process is a teardown.

The main storage is a folder that all workers see, named by the DAG's parameter ``shared_folder``. A condition is decided by
the task itself, in its template, just before it runs; that of a dag by every task in it. A task whose condition is false ends well
without its command, since Airflow knows no skipping where the first failure ends all. Called by ``paddleflow pipeline
export --to airflow``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddleflow.exporters import jinja
from paddleflow.exporters.placeholders import RUN, SHARED, USER, fill
from paddleflow.exporters.plan import DagGroup, ExportPlan, Node, Planner, Task
from paddleflow.spec.faults import Faults
from paddleflow.spec.pipeline.model import FAIL_FAST, Pipeline, Retry

_JINJA = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|#\}")
_SHARED = "shared_folder"
_USER = "user"
_LEFT_OUT = "echo 'left out: its condition is false'; exit 0"
_HEAD = '''\
"""The pipeline {name}, written by ``paddleflow pipeline export --to airflow``. Steps are processes of the worker.

{about}
"""

{imports}from datetime import timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TaskGroup

{helpers}with DAG(
{arguments}
) as dag:
'''


def export(pipeline: Pipeline) -> tuple[str, tuple[str, ...]]:
    """(the file, notes on what was left out); `Invalid` names everything that Airflow cannot express."""
    faults = Faults("InvalidPipeline")
    plan = Planner(pipeline, faults, jinja.write_condition).plan()
    for task in plan.tasks():
        _check_retry(task, faults)
    faults.check()
    writer = _Writer(plan)
    return writer.text(), (*plan.notes, *writer.notes())


def _check_retry(task: Task, faults: Faults) -> None:
    retry = task.retry
    if retry.times and retry.exit_codes:
        faults.add(task.full_name, "retry.exit_codes: Airflow tries again after any failure")
    if retry.times and retry.factor not in (1.0, 2.0):
        faults.add(
            task.full_name,
            f"retry.factor {retry.factor:g}: Airflow waits equally long, or twice as long each time",
            "1 or 2",
        )


class _Writer:
    """One file on its way."""

    def __init__(self, plan: ExportPlan) -> None:
        self._plan = plan
        self._lines: list[str] = []
        self._variables: dict[str, str] = {}  #: full name of a task or group → variable
        self._around: list[str] = []  #: conditions of the groups that are being written
        self._conditional = False  #: there was any condition

    def notes(self) -> list[str]:
        images = sorted({task.image for task in self._plan.tasks() if task.image})
        notes = [f"images are left out, steps run as processes: {', '.join(images)}"] if images else []
        extra = sorted({mount.name for task in self._plan.tasks() for mount in task.mounts[1:]})
        if extra:
            notes.append(f"extra_fs {', '.join(extra)}: their folders must be there on the workers")
        return notes

    def text(self) -> str:
        self._level(self._plan.nodes, "    ")
        post = self._plan.post_process
        if post is not None and not post.left_out:
            self._task(post, "    ", teardown=True)
            before = ", ".join(self._variables[node.full_name] for node in self._plan.nodes)
            self._lines.append(f"    [{before}] >> {self._variables[post.full_name]}")
        pipeline = self._plan.pipeline
        about = "\n".join(
            [
                f"Parameters of the DAG are the pipeline's own; {_SHARED} is the folder that all workers see.",
                *self.notes(),
            ]
        )
        head = _HEAD.format(
            name=pipeline.name,
            about=_plain(about),
            arguments="\n".join(f"    {key}={value}," for key, value in self._arguments(pipeline).items()),
            imports="import operator\nimport re\n" if self._conditional else "",
            helpers=f"{jinja.HELPERS}\n\n" if self._conditional else "",
        )
        return head + "\n".join(self._lines) + "\n"

    def _arguments(self, pipeline: Pipeline) -> dict[str, str]:
        params: dict[str, Any] = dict(self._plan.parameters)
        if pipeline.main_fs is not None:
            params[_SHARED] = pipeline.main_fs.mount_path or f"/home/paddleflow/storage/mnt/{pipeline.main_fs.name}"
        params[_USER] = "paddleflow"
        macros = "{" + ", ".join(f"{name!r}: {name}" for name in jinja.MACROS) + "}"
        return {
            "dag_id": repr(pipeline.name),
            "schedule": "None",
            "catchup": "False",
            "max_active_tasks": repr(pipeline.parallelism),
            "fail_fast": repr(pipeline.strategy == FAIL_FAST),
            "params": _table(params, "    "),
            **({"user_defined_macros": macros} if self._conditional else {}),
        }

    def _level(self, nodes: Sequence[Node], indent: str) -> None:
        """Tasks and groups, then who waits for whom."""
        beside = {}
        for node in nodes:
            if isinstance(node, Task):
                self._task(node, indent)
            elif node.left_out:
                self._left_out(node, indent)
            else:
                self._group(node, indent)
            beside[node.name] = self._variables[node.full_name]
        for node in nodes:
            if node.deps:
                before = ", ".join(beside[dep] for dep in node.deps)
                self._lines.append(f"{indent}[{before}] >> {beside[node.name]}")

    def _group(self, group: DagGroup, indent: str) -> None:
        variable = self._variable(group.full_name)
        self._lines.append(f"{indent}with TaskGroup({group.name!r}) as {variable}:")
        self._around.append(group.condition)
        self._level(group.children, indent + "    ")
        self._around.pop()

    def _left_out(self, node: Node, indent: str) -> None:
        variable = self._variable(node.full_name)
        reason = f"Left out: {node.left_out}."
        self._lines.append(f"{indent}{variable} = EmptyOperator(task_id={node.name!r}, doc_md={reason!r})")

    def _task(self, task: Task, indent: str, *, teardown: bool = False) -> None:
        if task.left_out:
            self._left_out(task, indent)
            return
        arguments = {
            "task_id": repr(task.name),
            # a text that ends in .sh would be read as a file's name
            "bash_command": repr(self._condition(task) + self._jinja(self._command(task)) + "\n"),
            "skip_on_exit_code": "None",
            "env": _table({key: self._jinja(value) for key, value in task.env.items()}, indent + "    "),
            "append_env": "True",
            **_retries(task.retry),
        }
        if task.timeout:
            arguments["execution_timeout"] = f"timedelta(seconds={task.timeout:g})"
        variable = self._variable(task.full_name)
        self._lines.append(f"{indent}{variable} = BashOperator(")
        self._lines += [f"{indent}    {key}={value}," for key, value in arguments.items()]
        self._lines.append(f"{indent}){'.as_teardown(on_failure_fail_dagrun=True)' if teardown else ''}")

    def _condition(self, task: Task) -> str:
        """What ends the task at once where its condition, or that of a group around it, is false."""
        conditions = [each for each in (*self._around, task.condition) if each]
        if not conditions:
            return ""
        self._conditional = True
        return "{% if not (" + fill(" and ".join(conditions), self._expression) + f") %}}{_LEFT_OUT}\n{{% endif %}}"

    def _command(self, task: Task) -> str:
        """In the shared folder, with a folder for what it makes."""
        lines = [f'mkdir -p "$(dirname "{path}")"; rm -rf "{path}"' for path in task.outputs]
        if self._plan.pipeline.main_fs is not None and task.env.get("PF_MOUNT_PATH") != "NONE":
            lines.append('cd "$PF_WORK_DIR" || exit 1')
        return "\n".join([*lines, task.command])

    def _jinja(self, text: str) -> str:
        return fill(text, self._open, lambda part: _JINJA.sub(lambda sign: '{{ "' + sign[0] + '" }}', part))

    def _open(self, kind: str, name: str) -> str:
        """What stands at an open place of a text."""
        return "{{ " + _named(kind, name) + " }}" + self._below(kind)

    def _expression(self, kind: str, name: str) -> str:
        """What stands at an open place of an expression."""
        below = self._below(kind)
        return f'{_named(kind, name)} ~ "{below}"' if below else _named(kind, name)

    def _below(self, kind: str) -> str:
        main = self._plan.pipeline.main_fs
        return f"/{main.sub_path.strip('/')}" if kind == SHARED and main is not None and main.sub_path else ""

    def _variable(self, full_name: str) -> str:
        base = re.sub(r"\W", "_", full_name)
        base = f"{base}_" if base in _TAKEN else base
        found, number = base, 2
        while found in self._variables.values():
            found, number = f"{base}_{number}", number + 1
        self._variables[full_name] = found
        return found


def _named(kind: str, name: str) -> str:
    return {RUN: "run_id", USER: f'params["{_USER}"]', SHARED: f'params["{_SHARED}"]'}.get(kind, f'params["{name}"]')


#: names that the file uses itself, and words of Python
_TAKEN = frozenset(
    [
        "BashOperator",
        "EmptyOperator",
        "Given",
        "DAG",
        "TaskGroup",
        "content",
        "dag",
        "given",
        "operator",
        "re",
        "timedelta",
        "False",
        "None",
        "True",
        "and",
        "as",
        "assert",
        "async",
        "await",
        "break",
        "class",
        "continue",
        "def",
        "del",
        "elif",
        "else",
        "except",
        "finally",
        "for",
        "from",
        "global",
        "if",
        "import",
        "in",
        "is",
        "lambda",
        "nonlocal",
        "not",
        "or",
        "pass",
        "raise",
        "return",
        "try",
        "while",
        "with",
        "yield",
    ]
)


def _retries(retry: Retry) -> dict[str, str]:
    if not retry.times:
        return {}
    found = {"retries": repr(retry.times), "retry_delay": f"timedelta(seconds={retry.delay:g})"}
    if retry.factor == 2.0:
        found |= {"retry_exponential_backoff": "True", "max_retry_delay": f"timedelta(seconds={retry.most:g})"}
    return found


def _table(values: Mapping[str, object], indent: str) -> str:
    lines = [f"{indent}    {key!r}: {value!r}," for key, value in values.items()]
    return "\n".join(["{", *lines, f"{indent}}}"]) if lines else "{}"


def _plain(text: str) -> str:
    """Text that may stand inside a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")
