"""What the commands of one call share: the output format, and the client, made when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from paddleflow.sdk.client import PaddleFlow
    from paddleflow.sdk.jobs import Job
    from paddleflow.sdk.runs import Run

LATEST = frozenset({"@latest", "-"})
JOB_ID = 28  #: characters of a whole job id
ARRAY = "array-"  #: what ids of arrays begin with
SEARCHED = 1000  #: newest jobs among which a prefix is looked for


class Session:
    """The global options of a call."""

    def __init__(
        self,
        output: str = "table",
        config: str | None = None,
        server: str | None = None,
        context: str | None = None,
    ) -> None:
        self.output = output
        self.config = config
        self.server = server
        self.context = context

    @property
    def machine(self) -> bool:
        """Whether the output is for programs."""
        return self.output in {"json", "yaml"}

    @cached_property
    def client(self) -> PaddleFlow:
        from paddleflow.sdk.client import connect

        # A person waits for the answer "it is not running", so this tries only once more.
        return connect(self.server, context=self.context, config=self.config, retries=1)

    def job(self, id: str) -> Job:
        """The job of an id, of a unique prefix of one (`job-6afc`, `6afc`), or the newest one (`@latest`, `-`)."""
        if id.startswith(ARRAY):
            from paddleflow.errors import Invalid

            raise Invalid(f"{id} is an array of jobs", hint=f"name one of them: paddleflow job list --array {id}")
        whole = len(id) >= JOB_ID or not _may_be_prefix(id, "job-")
        return self.client.jobs.handle(id if whole and id not in LATEST else self._job_id(id))

    def jobs(self, id: str) -> list[Job]:
        """All jobs of an array (`array-6afc…`), or one job as `job` finds it."""
        if not id.startswith(ARRAY):
            return [self.job(id)]
        from paddleflow.errors import NotFound

        found = list(self.client.jobs.list(array=id))[::-1]
        if not found:
            raise NotFound(f"array[{id}] has no jobs", code="JobNotFound", hint="paddleflow job list shows all")
        return found

    def _job_id(self, id: str) -> str:
        from paddleflow.errors import Invalid, NotFound

        if id in LATEST:
            newest = next(iter(self.client.jobs.page(max_keys=1)), None)
            if newest is None:
                raise NotFound("there are no jobs yet", code="JobNotFound")
            return newest.id
        prefix = id if id.startswith("job-") else f"job-{id}"
        found = [job.id for job in self.client.jobs.page(max_keys=SEARCHED) if job.id.startswith(prefix)]
        if len(found) > 1:
            raise Invalid(
                f"{len(found)} jobs begin with {prefix}",
                hint=f"give more of the id: {found[0]} or {found[1]}, for example",
            )
        return found[0] if found else id

    def run(self, id: str) -> Run:
        """The run of an id, of its number (`7`, `run-7`), or the newest one (`@latest`, `-`)."""
        if id in LATEST:
            from paddleflow.errors import NotFound

            newest = next(iter(self.client.runs.page(max_keys=1)), None)
            if newest is None:
                raise NotFound("there are no runs yet", code="RunNotFound")
            return self.client.runs.handle(newest.id)
        number = id.removeprefix("run-")
        return self.client.runs.handle(f"run-{number:0>6}" if number.isascii() and number.isdigit() else id)


def _may_be_prefix(id: str, prefix: str) -> bool:
    digits = id.removeprefix(prefix)
    return id in LATEST or (len(digits) >= 4 and all(char in "0123456789abcdef" for char in digits))


pass_session = click.make_pass_decorator(Session)


def note(message: str) -> None:
    """Something beside the data, on stderr."""
    from paddleflow.base.text import printable  # not at the top, so that help is quick

    click.echo(printable(message), err=True)
